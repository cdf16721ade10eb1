#include "model/settings_hash.h"

#include "build-info.h"
#include "hash/xxhash/xxhash.h" // vendored by llama.cpp

#include <cstdio>
#include <cstdlib>
#include <string>

// Whether the model uses its second set of rope factors: models that have two use it for contexts above a length that
// their file names.
static bool has_long_rope(const llama_context * ctx) {
    const llama_model * model    = llama_get_model(ctx);
    char                text[64] = "";
    llama_model_meta_val_str(model, "general.architecture", text, sizeof(text));
    const std::string key = std::string(text) + ".rope.scaling.original_context_length";
    return llama_model_meta_val_str(model, key.c_str(), text, sizeof(text)) > 0 &&
           llama_n_ctx_seq(ctx) > strtoull(text, nullptr, 10);
}

// Numbers are written in hexadecimal: to_string would round them.
uint64_t settings_hash(const common_params & params, const llama_context * ctx) {
    const llama_context_params c    = common_context_params_to_llama(params);
    const auto                 real = [](double x) {
        char text[40];
        snprintf(text, sizeof(text), "%a ", x);
        return std::string(text);
    };
    std::string facts = std::string(llama_commit()) + " ";
    for (const int x : {(int) c.type_k, (int) c.type_v, (int) c.flash_attn_type, (int) c.attention_type,
                        (int) c.rope_scaling_type, (int) c.yarn_orig_ctx, (int) has_long_rope(ctx)}) {
        facts += std::to_string(x) + " ";
    }
    for (const float x : {c.rope_freq_base, c.rope_freq_scale, c.yarn_ext_factor, c.yarn_attn_factor,
                          c.yarn_beta_fast, c.yarn_beta_slow}) {
        facts += real(x);
    }
    if (llama_model_n_swa(llama_get_model(ctx)) > 0) {
        facts += "windows whole "; // once only the last window was saved
    }
    for (const llama_model_kv_override & o : params.kv_overrides) {
        facts += std::string(o.key) + "=" + std::to_string((int) o.tag) + " ";
        switch (o.tag) {
            case LLAMA_KV_OVERRIDE_TYPE_INT:   facts += std::to_string(o.val_i64) + " "; break;
            case LLAMA_KV_OVERRIDE_TYPE_FLOAT: facts += real(o.val_f64); break;
            case LLAMA_KV_OVERRIDE_TYPE_BOOL:  facts += std::to_string(o.val_bool) + " "; break;
            case LLAMA_KV_OVERRIDE_TYPE_STR:   facts += std::string(o.val_str) + " "; break;
        }
    }
    if (!params.control_vectors.empty()) {
        const common_control_vector_data vector = common_control_vector_load(params.control_vectors);
        facts += std::to_string(XXH64(vector.data.data(), vector.data.size() * sizeof(float), 0)) + " " +
                 std::to_string(params.control_vector_layer_start) + " " +
                 std::to_string(params.control_vector_layer_end);
    }
    return XXH64(facts.data(), facts.size(), 0);
}
