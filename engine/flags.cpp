#include "flags.h"

#include <arg.h> // llama.cpp's common/arg.h
#include <chat.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using json = nlohmann::ordered_json;

namespace {

// What is passed to llama.cpp, where it is not read from common_params itself.
struct parameters {
    const common_params &      common;
    const llama_model_params   model;
    const llama_context_params context;
};

// Reads the parameter that an option has set.
using reader = json (*)(const parameters &);

struct acting_option {
    const char * name; // one of its names
    reader       read; // nullptr: it sets no parameter but acts at once (logs)
};

} // namespace

//
// readers of values that are no numbers
//

static json adapters(const parameters & p) {
    json list = json::array();
    for (const common_adapter_lora_info & lora : p.common.lora_adapters) {
        list.push_back({lora.path, p.common.lora_init_without_apply ? 0.0f : lora.scale});
    }
    return list;
}

static json control_vectors(const parameters & p) {
    json list = json::array();
    for (const common_control_vector_load_info & vector : p.common.control_vectors) {
        list.push_back({vector.fname, vector.strength});
    }
    return list;
}

static json control_layers(const parameters & p) {
    return {p.common.control_vector_layer_start, p.common.control_vector_layer_end};
}

static json devices(const parameters & p) {
    json list = json::array();
    for (ggml_backend_dev_t * device = p.model.devices; device && *device; device++) {
        list.push_back(ggml_backend_dev_name(*device));
    }
    return p.model.devices ? list : json("all");
}

static json n_rpc_servers(const parameters &) {
    ggml_backend_reg_t rpc = ggml_backend_reg_by_name("RPC");
    return rpc ? json(ggml_backend_reg_dev_count(rpc)) : json(nullptr);
}

static json tensor_buffers(const parameters & p) {
    json list = json::array();
    for (auto * o = p.model.tensor_buft_overrides; o && o->pattern; o++) {
        list.push_back({o->pattern, ggml_backend_buft_name(o->buft)});
    }
    return list;
}

static json tensor_split(const parameters & p) {
    const size_t n = std::min<size_t>(llama_max_devices(), 4);
    return std::vector<float>(p.model.tensor_split, p.model.tensor_split + n);
}

static json key_values(const parameters & p) {
    json list = json::array();
    for (auto * o = p.model.kv_overrides; o && o->key[0]; o++) {
        list.push_back(o->key);
    }
    return list;
}

static json template_variables(const parameters & p) {
    return p.common.default_template_kwargs;
}

//
// the table
//

// clang-format off
static const acting_option acting_options[] = {
    {"--model",                       [](const parameters & p) -> json { return p.common.model.path; }},
    {"--ctx-size",                    [](const parameters & p) -> json { return p.context.n_ctx; }},
    {"--parallel",                    [](const parameters & p) -> json { return p.common.n_parallel; }},
    {"--batch-size",                  [](const parameters & p) -> json { return p.context.n_batch; }},
    {"--ubatch-size",                 [](const parameters & p) -> json { return p.context.n_ubatch; }},
    {"--threads",                     [](const parameters & p) -> json { return p.context.n_threads; }},
    {"--threads-batch",               [](const parameters & p) -> json { return p.context.n_threads_batch; }},
    {"--prio",                        [](const parameters & p) -> json { return p.common.cpuparams.priority; }},
    {"--numa",                        [](const parameters & p) -> json { return p.common.numa; }},
    {"--flash-attn",                  [](const parameters & p) -> json { return p.context.flash_attn_type; }},
    {"--rope-scaling",                [](const parameters & p) -> json { return p.context.rope_scaling_type; }},
    {"--rope-scale",                  [](const parameters & p) -> json { return p.context.rope_freq_scale; }},
    {"--rope-freq-base",              [](const parameters & p) -> json { return p.context.rope_freq_base; }},
    {"--rope-freq-scale",             [](const parameters & p) -> json { return p.context.rope_freq_scale; }},
    {"--yarn-orig-ctx",               [](const parameters & p) -> json { return p.context.yarn_orig_ctx; }},
    {"--yarn-ext-factor",             [](const parameters & p) -> json { return p.context.yarn_ext_factor; }},
    {"--yarn-attn-factor",            [](const parameters & p) -> json { return p.context.yarn_attn_factor; }},
    {"--yarn-beta-slow",              [](const parameters & p) -> json { return p.context.yarn_beta_slow; }},
    {"--yarn-beta-fast",              [](const parameters & p) -> json { return p.context.yarn_beta_fast; }},
    {"--kv-offload",                  [](const parameters & p) -> json { return p.context.offload_kqv; }},
    {"--op-offload",                  [](const parameters & p) -> json { return p.context.op_offload; }},
    {"--cache-type-k",                [](const parameters & p) -> json { return ggml_type_name(p.context.type_k); }},
    {"--cache-type-v",                [](const parameters & p) -> json { return ggml_type_name(p.context.type_v); }},
    {"--repack",                      [](const parameters & p) -> json { return p.model.use_extra_bufts; }},
    {"--no-host",                     [](const parameters & p) -> json { return p.model.no_host; }},
    {"--load-mode",                   [](const parameters & p) -> json { return p.model.load_mode; }},
    {"--lazy-mode",                   [](const parameters & p) -> json { return p.model.lazy_mode; }},
    {"--check-tensors",               [](const parameters & p) -> json { return p.model.check_tensors; }},
    {"--n-gpu-layers",                [](const parameters & p) -> json { return p.model.n_gpu_layers; }},
    {"--fit",                         [](const parameters & p) -> json { return p.common.fit_params; }},
    {"--fit-target",                  [](const parameters & p) -> json { return p.common.fit_params_target[0] >> 20; }},
    {"--fit-ctx",                     [](const parameters & p) -> json { return p.common.fit_params_min_ctx; }},
    {"--split-mode",                  [](const parameters & p) -> json { return p.model.split_mode; }},
    {"--tensor-split",                tensor_split},
    {"--main-gpu",                    [](const parameters & p) -> json { return p.model.main_gpu; }},
    {"--device",                      devices},
    {"--rpc",                         n_rpc_servers},
    {"--override-tensor",             tensor_buffers},
    {"--cpu-moe",                     tensor_buffers},
    {"--n-cpu-moe",                   tensor_buffers},
    {"--n-cpu-ffn",                   tensor_buffers},
    {"--override-kv",                 key_values},
    {"--lora",                        adapters},
    {"--lora-scaled",                 adapters},
    {"--lora-init-without-apply",     adapters},
    {"--control-vector",              control_vectors},
    {"--control-vector-scaled",       control_vectors},
    {"--control-vector-layer-range",  control_layers},
    {"--spec-draft-model",            [](const parameters & p) -> json { return p.common.speculative.draft.mparams.path; }},
    {"--spec-draft-ngl",              [](const parameters & p) -> json { return p.common.speculative.draft.n_gpu_layers; }},
    {"--spec-draft-device",           [](const parameters & p) -> json { return p.common.speculative.draft.devices.size(); }},
    {"--spec-draft-type-k",           [](const parameters & p) -> json { return ggml_type_name(p.common.speculative.draft.cache_type_k); }},
    {"--spec-draft-type-v",           [](const parameters & p) -> json { return ggml_type_name(p.common.speculative.draft.cache_type_v); }},
    {"--pooling",                     [](const parameters & p) -> json { return p.common.pooling_type; }},
    {"--jinja",                       [](const parameters & p) -> json { return p.common.use_jinja; }},
    {"--chat-template",               [](const parameters & p) -> json { return p.common.chat_template; }},
    {"--chat-template-file",          [](const parameters & p) -> json { return p.common.chat_template; }},
    {"--chat-template-kwargs",        template_variables},
    {"--skip-chat-parsing",           [](const parameters & p) -> json { return p.common.force_pure_content_parser; }},
    {"--reasoning",                   [](const parameters & p) -> json { return p.common.enable_reasoning; }},
    {"--reasoning-format",            [](const parameters & p) -> json { return common_reasoning_format_name(p.common.reasoning_format); }},
    {"--reasoning-effort",            template_variables},
    {"--reasoning-preserve",          template_variables},
    {"--reasoning-budget",            [](const parameters & p) -> json { return p.common.sampling.reasoning_budget_tokens; }},
    {"--reasoning-budget-message",    [](const parameters & p) -> json { return p.common.sampling.reasoning_budget_message; }},
    {"--log-disable",                 nullptr},
    {"--log-file",                    nullptr},
    {"--log-jsonl",                   nullptr},
    {"--log-colors",                  nullptr},
    {"--log-prefix",                  nullptr},
    {"--log-timestamps",              nullptr},
    {"--verbose",                     [](const parameters & p) -> json { return p.common.verbosity; }},
    {"--verbosity",                   [](const parameters & p) -> json { return p.common.verbosity; }},
};
// clang-format on

static const acting_option * find_acting(const common_arg & option) {
    const auto is_of = [&](const acting_option & row) {
        return std::any_of(option.args.begin(), option.args.end(),
                           [&](const char * name) { return strcmp(name, row.name) == 0; });
    };
    const auto row = std::find_if(std::begin(acting_options), std::end(acting_options), is_of);
    return row == std::end(acting_options) ? nullptr : row;
}

static int n_values(const common_arg & option) {
    return option.handler_str_str ? 2 : option.handler_string || option.handler_int ? 1 : 0;
}

static std::vector<common_arg> options_of_server() {
    common_params params;
    return common_params_parser_init(params, LLAMA_EXAMPLE_SERVER).options;
}

// The option with this name, in which "_" may stand for "-"; nullptr: there is none.
static const common_arg * find_option(const std::vector<common_arg> & options, std::string name) {
    if (name.rfind("--", 0) == 0) {
        std::replace(name.begin(), name.end(), '_', '-');
    }
    for (const common_arg & option : options) {
        for (const auto * names : {&option.args, &option.args_neg}) {
            if (std::find(names->begin(), names->end(), name) != names->end()) {
                return &option;
            }
        }
    }
    return nullptr;
}

// These print something and end the process, so they act, too.
static bool is_question(const common_arg & option) {
    static const char * const names[] = {"--help", "--version", "--cache-list", "--completion-bash",
                                         "--list-devices"};
    return std::any_of(std::begin(names), std::end(names), [&](const char * name) {
        return std::find(option.args.begin(), option.args.end(), std::string(name)) != option.args.end();
    });
}

bool refuse_idle_flags(int argc, char ** argv) {
    const std::vector<common_arg> options = options_of_server();
    for (int i = 1; i < argc; i++) {
        const common_arg * option = find_option(options, argv[i]);
        if (!option) {
            break; // llama.cpp's parser refuses it
        }
        if (!find_acting(*option) && !is_question(*option)) {
            fprintf(stderr, "llama-batched: %s does not act here; docs/flags.md says what to use\n", argv[i]);
            return false;
        }
        i += n_values(*option);
    }
    for (const common_arg & option : options) {
        if (option.env && strncmp(option.env, "LLAMA_", 6) == 0 && !find_acting(option) &&
            getenv(option.env)) {
            fprintf(stderr,
                    "llama-batched: the variable %s does not act here; docs/flags.md says what to use\n",
                    option.env);
            unsetenv(option.env);
        }
    }
    return true;
}

std::string list_flags(common_params & params) {
    const parameters values = {params, common_model_params_to_llama(params),
                               common_context_params_to_llama(params)};
    json             list   = json::array();
    for (const common_arg & option : options_of_server()) {
        const acting_option * acting = find_acting(option);
        list.push_back({
            {"names", option.args},
            {"off", option.args_neg},
            {"values", n_values(option)},
            {"env", option.env ? json(option.env) : json(nullptr)},
            {"acts", acting != nullptr},
            {"value", acting && acting->read ? acting->read(values) : json(nullptr)},
        });
    }
    return list.dump() + "\n";
}
