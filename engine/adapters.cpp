#include "adapters.h"

#include "hash/xxhash/xxhash.h" // vendored by llama.cpp
#include "protocol.h"
#include "sampling.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

using json = nlohmann::json;

static const double max_scale = 100;

std::string ends_of_file(const std::string & path) {
    std::ifstream file(path, std::ios::binary);
    file.seekg(0, std::ios::end);
    const std::streamoff size = file.tellg();
    std::string          ends = std::to_string(size) + " ";
    for (const std::streamoff from : {std::streamoff(0), std::max(size - (1 << 20), std::streamoff(0))}) {
        std::string part((size_t) std::min(size, std::streamoff(1 << 20)), 0);
        file.seekg(from);
        file.read(part.data(), (std::streamsize) part.size());
        ends += part;
    }
    return ends;
}

bool adapter_list::load(llama_model * model, const std::string & path, float scale) {
    llama_adapter_lora * lora = llama_adapter_lora_init(model, path.c_str());
    if (!lora) {
        fprintf(stderr, "llama-batched: the adapter %s cannot be loaded\n", path.c_str());
        return false;
    }
    if (llama_adapter_get_alora_n_invocation_tokens(lora) > 0) {
        fprintf(stderr, "llama-batched: %s works only after certain tokens (aLoRA), which is not supported\n",
                path.c_str());
        return false;
    }
    const std::string ends = ends_of_file(path);
    adapters.push_back({path, lora, scale, XXH64(ends.data(), ends.size(), 0)});
    return true;
}

adapter_set adapter_list::with_key(std::vector<float> scales) const {
    uint64_t key = 0;
    for (size_t i = 0; i < scales.size(); i++) {
        if (scales[i] != 0.0f) {
            key = XXH64(&scales[i], sizeof(float), key ^ adapters[i].hash);
        }
    }
    return {std::move(scales), key};
}

adapter_set adapter_list::defaults() const {
    std::vector<float> scales;
    for (const adapter & a : adapters) {
        scales.push_back(a.scale);
    }
    return with_key(std::move(scales));
}

adapter_set adapter_list::read(const json & value) const {
    if (!value.is_array()) {
        invalid("lora", std::string("lora is ") + value.type_name() + "; it must be a list of {id, scale}");
    }
    std::vector<float> scales(adapters.size(), 0.0f);
    for (const json & entry : value) {
        if (!entry.is_object() || !entry.contains("id") || entry.size() != 1 + entry.count("scale")) {
            invalid("lora",
                    "lora holds " + entry.dump().substr(0, 60) + "; it must be a list of {id, scale}");
        }
        if (adapters.empty()) {
            invalid("lora", "no adapter is loaded; --lora FILE loads one");
        }
        const int64_t id = read_integer("lora.id", entry["id"], 0, (int64_t) adapters.size() - 1);
        scales[id]       = entry.contains("scale")
                               ? (float) read_number("lora.scale", entry["scale"], -max_scale, max_scale)
                               : 1.0f;
    }
    return with_key(std::move(scales));
}

void adapter_list::apply(llama_context * ctx, const adapter_set & set) const {
    if (adapters.empty()) {
        return;
    }
    std::vector<llama_adapter_lora *> loras;
    std::vector<float>                scales = set.scales;
    for (const adapter & a : adapters) {
        loras.push_back(a.lora);
    }
    llama_set_adapters_lora(ctx, loras.data(), loras.size(), scales.data()); // nothing if they are in force
}

std::string adapter_list::to_json() const {
    json list = json::array();
    for (size_t i = 0; i < adapters.size(); i++) {
        list.push_back({{"id", i}, {"path", adapters[i].path}, {"scale", adapters[i].scale}});
    }
    return list.dump(-1, ' ', false, json::error_handler_t::replace);
}
