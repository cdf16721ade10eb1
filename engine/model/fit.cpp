#include "model/fit.h"

#include <algorithm>
#include <unistd.h>

static const int32_t n_default_cells = 65536; // more would cost start-up time and memory that few use

// Bytes of KV cache that one token needs.
static double cell_bytes(const llama_model * model, const common_params & params) {
    const double n_row = (double) llama_model_n_embd(model) / std::max(llama_model_n_head(model), 1) *
                         std::max(llama_model_n_head_kv(model), 1);
    return n_row * llama_model_n_layer(model) *
           (ggml_type_size(params.cache_type_k) / (double) ggml_blck_size(params.cache_type_k) +
            ggml_type_size(params.cache_type_v) / (double) ggml_blck_size(params.cache_type_v));
}

static double free_bytes() {
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        size_t             free = 0, total = 0;
        ggml_backend_dev_t dev = ggml_backend_dev_get(i);
        if (ggml_backend_dev_type(dev) == GGML_BACKEND_DEVICE_TYPE_GPU) {
            ggml_backend_dev_memory(dev, &free, &total);
            return (double) free;
        }
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

int32_t default_n_ctx(const llama_model * model, const common_params & params) {
    const double n_train = llama_model_n_ctx_train(model);
    const double n_wanted =
        std::min(n_train * params.n_parallel, std::max(n_train, (double) n_default_cells));
    const double n_memory = free_bytes() / 4 / std::max(cell_bytes(model, params), 1.0);
    return (int32_t) std::max(512.0, std::min(n_wanted, n_memory)) / 256 * 256;
}
