#include "model/placement.h"

#include "util/json.h"

#include "../src/llama-ext.h" // of llama.cpp: the memory by device

#include <fit.h> // llama.cpp's common/fit.h
#include <ggml-backend.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <map>
#include <sys/stat.h>
#include <vector>

static const double mib               = 1024 * 1024;
static const double n_weights_at_most = 1.2; // of the file's size
static const double n_cell_at_most    = mib; // bytes of a cell; a 70B has 0.31, a 13B without groups 0.8
static const double n_besides         = 2048 * mib; // bytes: default cells, buffers, and what is left free

namespace {

struct memory_size {
    uint64_t free = 0, total = 0; // bytes
};

} // namespace

static memory_size memory_of(ggml_backend_dev_t device) {
    size_t free = 0, total = 0;
    ggml_backend_dev_memory(device, &free, &total);
    return {free, total};
}

// The GPUs that llama.cpp uses for this command line; integrated ones only where there are no others. Those of other
// machines count, too (--rpc).
static std::vector<ggml_backend_dev_t> gpus(const common_params & params) {
    std::vector<ggml_backend_dev_t> found, integrated;
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        ggml_backend_dev_t device = ggml_backend_dev_get(i);
        const auto         type   = ggml_backend_dev_type(device);
        const auto         asked  = std::find(params.devices.begin(), params.devices.end(), device);
        if (!params.devices.empty() && asked == params.devices.end()) {
            continue;
        }
        if (type == GGML_BACKEND_DEVICE_TYPE_GPU) {
            found.push_back(device);
        } else if (type == GGML_BACKEND_DEVICE_TYPE_IGPU) {
            integrated.push_back(device);
        }
    }
    return found.empty() ? integrated : found;
}

static double free_on(const std::vector<ggml_backend_dev_t> & devices) {
    double n = 0;
    for (ggml_backend_dev_t device : devices) {
        n += (double) memory_of(device).free;
    }
    return n;
}

// Of the first file; a model in parts is larger, so its fit is always computed.
static uint64_t file_size(const std::string & path) {
    struct stat s;
    const bool  in_parts = path.find("-of-") != std::string::npos;
    return !in_parts && stat(path.c_str(), &s) == 0 ? (uint64_t) s.st_size : UINT64_MAX / 4;
}

//
// before the load
//

static bool may_be_too_large(const common_params & params) {
    const double n_model = n_weights_at_most * (double) file_size(params.model.path);
    const double n_cells = n_cell_at_most * params.n_ctx;
    const auto   devices = gpus(params);
    return !devices.empty() && n_model + n_cells + n_besides > free_on(devices);
}

uint32_t fit_to_devices(common_params & params, llama_model_params & model, llama_context_params context) {
    if (!params.fit_params || !may_be_too_large(params)) {
        return 0;
    }
    const common_params before   = params; // a fit that fails leaves what it has tried
    const int32_t       n_before = model.n_gpu_layers;
    const uint32_t      n_asked  = context.n_ctx;
    const auto          status   = common_fit_params(
        params.model.path.c_str(), &model, &context, params.tensor_split,
        params.tensor_buft_overrides.empty() ? nullptr : params.tensor_buft_overrides.data(),
        params.fit_params_target.data(), (uint32_t) params.fit_params_min_ctx, nullptr, GGML_LOG_LEVEL_ERROR);
    if (status != COMMON_PARAMS_FIT_STATUS_SUCCESS) {
        params = before;
        model  = common_model_params_to_llama(params);
        return 0;
    }
    if (model.n_gpu_layers != n_before) {
        fprintf(stderr,
                "llama-batched: the model is larger than the %.0f MiB that are free on the GPUs: "
                "they take %d layers, and the CPU the rest\n",
                free_on(gpus(params)) / mib, model.n_gpu_layers);
    }
    return n_asked == 0 ? context.n_ctx : 0;
}

void explain_failed_load(const common_params & params, const llama_model_params & model,
                         llama_context_params context) {
    if (gpus(params).empty()) {
        return;
    }
    context.n_ctx = context.n_ctx > 0 ? context.n_ctx : (uint32_t) params.fit_params_min_ctx;
    try {
        std::vector<ggml_backend_dev_t> devices;
        uint32_t                        n_layers = 0, n_train = 0, n_experts = 0;
        const auto sizes = common_get_device_memory_data(params.model.path.c_str(), &model, &context, devices,
                                                         n_layers, n_train, n_experts, GGML_LOG_LEVEL_NONE);
        for (size_t i = 0; i < devices.size(); i++) {
            const double n_needed = (double) (sizes[i].model + sizes[i].context + sizes[i].compute);
            if (n_needed > (double) sizes[i].free) {
                fprintf(
                    stderr,
                    "llama-batched: %.0f MiB are needed on %s, and %.0f are free: %sgive a smaller --ctx, or "
                    "-ctk q8_0 -ctv q8_0\n",
                    n_needed / mib, ggml_backend_dev_name(devices[i]), (double) sizes[i].free / mib,
                    params.n_gpu_layers >= 0 ? "leave out -ngl or give fewer layers, " : "");
            }
        }
    } catch (const std::exception &) { // the file is at fault, and llama.cpp has said so
    }
}

//
// after the load
//

static void append_device(std::string & out, ggml_backend_dev_t device,
                          const llama_memory_breakdown_data & used) {
    out += out.size() > 1 ? ",{\"name\":" : "{\"name\":";
    append_json_string(out, ggml_backend_dev_name(device));
    out += ",\"description\":";
    append_json_string(out, ggml_backend_dev_description(device));
    const std::pair<const char *, uint64_t> numbers[] = {{"model", used.model},
                                                         {"context", used.context},
                                                         {"compute", used.compute},
                                                         {"total", memory_of(device).total}};
    for (const auto & [name, value] : numbers) {
        out += std::string(",\"") + name + "\":" + std::to_string(value);
    }
    out += "}";
}

std::string placement_to_json(const llama_context * ctx) {
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    std::map<ggml_backend_dev_t, llama_memory_breakdown_data> used;
    for (const auto & [type, one] : llama_get_memory_breakdown(ctx)) {
        ggml_backend_dev_t device =
            ggml_backend_buft_is_host(type) ? cpu : ggml_backend_buft_get_device(type);
        llama_memory_breakdown_data & sum = used[device ? device : cpu];
        sum.model += one.model;
        sum.context += one.context;
        sum.compute += one.compute;
    }
    std::string out = "[";
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        ggml_backend_dev_t device = ggml_backend_dev_get(i);
        if (device != cpu && used.count(device) > 0) {
            append_device(out, device, used[device]);
        }
    }
    append_device(out, cpu, used[cpu]);
    return out + "]";
}

int32_t n_layers(const llama_model * model) {
    return llama_model_n_layer(model) + 1;
}

int32_t n_gpu_layers(const llama_model * model, const llama_model_params & params) {
    const int32_t n = n_layers(model);
    return llama_model_n_devices(model) == 0 ? 0
           : params.n_gpu_layers < 0         ? n
                                             : std::min(n, params.n_gpu_layers);
}
