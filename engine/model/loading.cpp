#include "model/loading.h"

#include "model/embedding.h"
#include "model/fit.h"
#include "model/placement.h"
#include "util/json.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace {

struct progress_report {
    const std::function<void(float)> & on_progress;
    float                              reported = -1.0f;
};

} // namespace

static bool report_progress(float progress, void * user_data) {
    auto & report = *(progress_report *) user_data;
    if (progress >= report.reported + 0.05f || progress >= 1.0f) {
        report.on_progress(progress);
        report.reported = progress;
    }
    return true;
}

// In bytes.
static size_t longest_piece(const llama_vocab * vocab) {
    size_t n = 1;
    for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); token++) {
        n = std::max(n, strlen(llama_vocab_get_text(vocab, token)));
    }
    return n;
}

// Those of the context that generates.
static llama_context_params context_params(const common_params & params) {
    // ids of live branches, of an idle branch beside each, of idle prefixes, and of the copies of a snapshot's parts
    const int32_t n_seq_max = std::min(n_max_sequence_ids, 2 * params.n_parallel + n_prefix_ids + 1);
    const int32_t n_step    = std::max(std::min(params.n_batch, params.n_ubatch), n_seq_max);

    llama_context_params cparams  = common_context_params_to_llama(params);
    cparams.n_ubatch              = (uint32_t) n_step; // at least n_seq_max, as llama.cpp asserts
    cparams.n_batch               = cparams.n_ubatch;  // a step is one batch of one piece
    cparams.n_seq_max             = n_seq_max;
    cparams.n_outputs_max_per_seq = 0;
    cparams.pooling_type          = LLAMA_POOLING_TYPE_UNSPECIFIED; // --pooling is for the other context
    return cparams;
}

static llama_context * make_context(llama_model * model, common_params & params) {
    if (params.n_ctx == 0) {
        params.n_ctx = default_n_ctx(model, params);
    }
    const llama_context_params cparams = context_params(params);
    params.n_batch = params.n_ubatch = (int32_t) cparams.n_batch;
    return llama_init_from_model(model, cparams);
}

// Where the model leaves little room on the GPUs, there are as many cells as still fit.
static llama_model * load_weights(common_params & params, llama_model_params & mparams) {
    const uint32_t n_fitted = fit_to_devices(params, mparams, context_params(params));
    llama_model *  model    = llama_model_load_from_file(params.model.path.c_str(), mparams);
    const bool     in_part  = mparams.n_gpu_layers != params.n_gpu_layers;
    if (model && n_fitted > 0) {
        const int32_t n_default = in_part ? 0 : default_n_ctx(model, params);
        params.n_ctx            = std::max(std::min((int32_t) n_fitted, n_default_cells), n_default);
    }
    return model;
}

// False, after a line on stderr, when the files do not fit the model. Without control vectors it does nothing.
static bool apply_control_vectors(llama_context * ctx, const common_params & params) {
    if (params.control_vectors.empty()) {
        return true;
    }
    const common_control_vector_data vector = common_control_vector_load(params.control_vectors);
    const int32_t                    first  = std::max(params.control_vector_layer_start, 1);
    const int32_t last = params.control_vector_layer_end > 0 ? params.control_vector_layer_end
                                                             : llama_model_n_layer(llama_get_model(ctx));
    const bool    applied =
        vector.n_embd != -1 &&
        llama_set_adapter_cvec(ctx, vector.data.data(), vector.data.size(), vector.n_embd, first, last) == 0;
    if (!applied) {
        fprintf(stderr, "llama-batched: the control vectors cannot be applied to this model\n");
    }
    return applied;
}

// An embedding model gets a context for vectors.
static llama_context * make_context(llama_model * model, model_facts & facts, common_params & params) {
    llama_context * ctx = facts.embedding.only ? nullptr : make_context(model, params);
    if (!facts.embedding.only && (!ctx || llama_get_memory(ctx))) {
        return ctx;
    }
    facts.embedding.only = true; // without a KV cache it is an encoder, even if its file names no pooling
    llama_free(ctx);
    return make_embedding_context(facts, common_context_params_to_llama(params));
}

// Whether the file has what makes relevance of a pooled vector. Of a model in several files the others are not read.
static bool has_head(const std::string & path) {
    const gguf_init_params params = {true, nullptr};
    gguf_context * const   file   = gguf_init_from_file(path.c_str(), params);
    const bool             found =
        file && (gguf_find_key(file, "split.count") >= 0 || gguf_find_tensor(file, "cls.weight") >= 0 ||
                 gguf_find_tensor(file, "cls.output.weight") >= 0);
    gguf_free(file);
    return found;
}

// Those of the list, as far as they can be loaded: a server that restarts its engine should not stay down for a file that
// was removed. Without a list those of --lora; then false, after a line on stderr, when one cannot be loaded.
static bool load_adapters(adapter_list & adapters, const common_params & params,
                          const std::optional<std::vector<listed_adapter>> & listed) {
    if (!listed) {
        return std::all_of(params.lora_adapters.begin(), params.lora_adapters.end(), [&](const auto & lora) {
            return adapters.load_first(lora.path, params.lora_init_without_apply ? 0.0f : lora.scale);
        });
    }
    for (const listed_adapter & one : *listed) {
        try {
            adapters.load(adapters.check(one));
        } catch (const command_error & e) {
            fprintf(stderr, "llama-batched: %s\n", e.what());
        }
    }
    return true;
}

std::optional<loaded_model> load_model(common_params & params, const std::string & prefix_cache,
                                       const std::optional<std::vector<listed_adapter>> & listed,
                                       const std::function<void(float)> &                 on_progress) {
    progress_report report                  = {on_progress};
    params.load_progress_callback           = report_progress;
    params.load_progress_callback_user_data = &report;
    llama_model_params mparams              = common_model_params_to_llama(params);
    llama_model *      model                = load_weights(params, mparams);
    loaded_model       loaded;
    model_facts &      facts   = loaded.facts;
    const int32_t      n_train = model ? llama_model_n_ctx_train(model) : 0;
    facts.adapters             = std::make_shared<adapter_list>(model, prefix_cache);
    if (model && load_adapters(*facts.adapters, params, listed)) {
        facts.model     = model;
        facts.vocab     = llama_model_get_vocab(model);
        facts.embedding = read_embedding_facts(model, params.pooling_type);
        if (facts.embedding.ranks() && !has_head(params.model.path)) {
            fprintf(stderr,
                    "llama-batched: %s has no head (cls.weight, cls.output.weight), so it cannot rank\n",
                    params.model.path.c_str());
            return std::nullopt;
        }
        loaded.ctx = make_context(model, facts, params);
    }
    if (!loaded.ctx || !apply_control_vectors(loaded.ctx, params)) {
        if (!model || (facts.model && !loaded.ctx)) {
            explain_failed_load(params, mparams, context_params(params));
        }
        fprintf(stderr, "llama-batched: %s cannot be loaded\n", params.model.path.c_str());
        return std::nullopt;
    }
    facts.n_gpu_layers = n_gpu_layers(model, mparams);
    facts.n_ctx_seq    = sequence_limit(model, params, n_train, (int32_t) llama_n_ctx(loaded.ctx));
    facts.n_piece_max  = longest_piece(facts.vocab);
    return loaded;
}
