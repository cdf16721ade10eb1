#include "model/adapters.h"

#include "model/fingerprint.h"
#include "util/json.h"

#include "hash/xxhash/xxhash.h" // vendored by llama.cpp

#include <cstdio>
#include <limits>
#include <random>

using json = nlohmann::json;

static const double max_scale = 100;

// A hash of the file's content; a random number if it cannot be read, so that no stored prefix matches.
static uint64_t contents_of(const weight_files & file, const std::string & folder) {
    const auto hash = file.hash(folder, false, [](bool) { return true; });
    return hash ? *hash : ((uint64_t) std::random_device()() << 32 | std::random_device()());
}

bool adapter_list::load(llama_model * model, const std::string & path, float scale,
                        const std::string & folder) {
    const weight_files file = weight_files::of_one(path); // hashed below, if the file is unchanged since then
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
    adapters.push_back({path, lora, scale, folder.empty() ? adapters.size() + 1 : contents_of(file, folder)});
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

const field_table & adapter_fields() {
    static const field_table table = {
        "lora",
        "lora.",
        {
            {"id", integer_between(0, std::numeric_limits<int32_t>::max()), true},
            {"scale", number_between(-max_scale, max_scale)},
        },
    };
    return table;
}

adapter_set adapter_list::read(const json & value) const {
    std::vector<float> scales(adapters.size(), 0.0f);
    for (const json & entry : value) {
        if (adapters.empty()) {
            invalid("lora", "no adapter is loaded; --lora FILE loads one");
        }
        const int64_t id = read_integer("lora.id", entry["id"], 0, (int64_t) adapters.size() - 1);
        scales[id]       = entry.value("scale", 1.0f);
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
    llama_set_adapters_lora(ctx, loras.data(), loras.size(),
                            scales.data()); // no change if they are already set
}

std::string adapter_list::to_json() const {
    json list = json::array();
    for (size_t i = 0; i < adapters.size(); i++) {
        list.push_back({{"id", i}, {"path", adapters[i].path}, {"scale", adapters[i].scale}});
    }
    return list.dump(-1, ' ', false, json::error_handler_t::replace);
}
