#include "model/fit.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>

// Bytes of KV cache that one token needs.
static double cell_bytes(const llama_model * model, const common_params & params) {
    const double n_row = (double) llama_model_n_embd(model) / std::max(llama_model_n_head(model), 1) *
                         std::max(llama_model_n_head_kv(model), 1);
    return n_row * llama_model_n_layer(model) *
           (ggml_type_size(params.cache_type_k) / (double) ggml_blck_size(params.cache_type_k) +
            ggml_type_size(params.cache_type_v) / (double) ggml_blck_size(params.cache_type_v));
}

// Of all GPUs together, since the cells of each layer lie where the layer does; without one, of the host.
static double free_bytes() {
    double n_free = 0;
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        size_t             free = 0, total = 0;
        ggml_backend_dev_t dev = ggml_backend_dev_get(i);
        if (ggml_backend_dev_type(dev) == GGML_BACKEND_DEVICE_TYPE_GPU) {
            ggml_backend_dev_memory(dev, &free, &total);
            n_free += (double) free;
        }
    }
    if (n_free > 0) {
        return n_free;
    }
    const long n_pages = sysconf(
#ifdef _SC_AVPHYS_PAGES
        _SC_AVPHYS_PAGES
#else
        _SC_PHYS_PAGES
#endif
    );
    return (double) n_pages * (double) sysconf(_SC_PAGESIZE);
}

// The length of the texts that the model was trained with before its own rope scaling, if it has one.
static double original_length(const llama_model * model, const common_params & params, int32_t n_train) {
    if (params.yarn_orig_ctx > 0) {
        return params.yarn_orig_ctx;
    }
    char text[64] = "";
    llama_model_meta_val_str(model, "general.architecture", text, sizeof(text));
    const std::string key = std::string(text) + ".rope.scaling.original_context_length";
    return llama_model_meta_val_str(model, key.c_str(), text, sizeof(text)) > 0 ? strtod(text, nullptr)
                                                                                : n_train;
}

// A scale says how much longer than in training texts may be. A base, or YaRN without a scale, does not.
// n_train: the model's before it has a context, since llama.cpp changes it when it makes one with YaRN.
static double scaled_length(const llama_model * model, const common_params & params, int32_t n_train) {
    if (params.rope_freq_scale > 0.0f) {
        return std::max((double) n_train,
                        std::round(original_length(model, params, n_train) / params.rope_freq_scale));
    }
    const bool asked = params.rope_freq_base > 0.0f || params.yarn_orig_ctx > 0 ||
                       params.rope_scaling_type == LLAMA_ROPE_SCALING_TYPE_LINEAR ||
                       params.rope_scaling_type == LLAMA_ROPE_SCALING_TYPE_YARN;
    return asked ? INT32_MAX : n_train;
}

int32_t default_n_ctx(const llama_model * model, const common_params & params) {
    const int32_t n_model = llama_model_n_ctx_train(model);
    const double  n_train = params.rope_freq_scale > 0.0f ? scaled_length(model, params, n_model) : n_model;
    const double  n_wanted =
        std::min(n_train * params.n_parallel, std::max(n_train, (double) n_default_cells));
    const double n_memory = free_bytes() / 4 / std::max(cell_bytes(model, params), 1.0);
    return (int32_t) std::max(512.0, std::min(n_wanted, n_memory)) / 256 * 256;
}

int32_t sequence_limit(const llama_model * model, const common_params & params, int32_t n_train,
                       int32_t n_ctx) {
    const int32_t limit = (int32_t) std::min((double) n_ctx, scaled_length(model, params, n_train));
    if (limit > n_train) {
        fprintf(
            stderr,
            "llama-batched: a sequence may have %d tokens, more than the %d of the model's training, because "
            "of the options of rope scaling\n",
            limit, n_train);
    }
    return limit;
}
