#include "model/adapters.h"

#include "util/json.h"

#include "hash/xxhash/xxhash.h" // vendored by llama.cpp

#include <algorithm>
#include <cstdio>
#include <utility>

using json = nlohmann::json;

static const double max_scale  = 100;
static const size_t n_max_sets = 10000; // whose keys are known: clients choose scales

//
// fields
//

const field_table & adapter_fields() {
    static const field_table table = {
        "lora",
        "lora.",
        {
            {"id", integer_between(0, n_max_adapter_id), true},
            {"scale", number_between(-max_scale, max_scale)},
        },
    };
    return table;
}

const field_table & loaded_adapter_fields() {
    static const field_table table = {
        "adapter",
        "adapter.",
        {
            {"id", integer_between(0, n_max_adapter_id), true},
            {"path", string_of(1, 4096), true},
            {"scale", number_between(-max_scale, max_scale)},
        },
    };
    return table;
}

//
// loading
//

void adapter_list::add(adapter && a, uint64_t contents) {
    a.hash = folder.empty() ? (uint64_t) a.id + 1 : contents;
    n_ids  = a.id + 1;
    loaded.push_back(std::make_shared<const adapter>(std::move(a)));
}

bool adapter_list::load_first(const std::string & path, float scale) {
    const weight_files file = weight_files::of_one(path); // hashed below, if the file is unchanged since then
    std::string        reason;
    llama_adapter_lora * const lora = load_adapter(model, path, reason);
    if (!lora) {
        fprintf(stderr, "llama-batched: the adapter %s cannot be loaded\n", path.c_str());
        return false;
    }
    if (llama_adapter_get_alora_n_invocation_tokens(lora) > 0) {
        fprintf(stderr, "llama-batched: %s works only after certain tokens (aLoRA), which is not supported\n",
                path.c_str());
        return false;
    }
    add({n_ids, path, scale, 0, lora}, folder.empty() ? 0 : contents_of(file, folder));
    return true;
}

wanted_adapter adapter_list::check(const listed_adapter & listed) const {
    return {listed.id, listed.scale, check_adapter_file(model, listed.path, folder)};
}

// The mutex is only for the list, so that readers of commands do not wait for a large file. Decodes are kept away by
// the caller, since llama.cpp counts the model's adapters there.
void adapter_list::load(const wanted_adapter & wanted) {
    if (wanted.id < n_ids) {
        invalid("adapter.id", "adapter.id is " + std::to_string(wanted.id) + "; it must be at least " +
                                  std::to_string(n_ids) + ", since an id is given once");
    }
    const std::string &        path = wanted.file.path;
    std::string                reason;
    llama_adapter_lora * const lora = load_adapter(model, path, reason);
    if (!lora) {
        invalid("adapter.path", path + " cannot be loaded as an adapter: " + reason);
    }
    if (!wanted.file.state.unchanged()) { // what was checked and hashed is not what was loaded
        llama_adapter_lora_free(lora);
        invalid("adapter.path", path + " was replaced while it was loaded; load it again");
    }
    const std::lock_guard<std::mutex> lock(mutex);
    add({wanted.id, path, wanted.scale, 0, lora}, wanted.file.contents);
}

void adapter_list::unload(int64_t id) {
    const std::lock_guard<std::mutex> lock(mutex);
    unloaded.push_back(find(id));
    loaded.erase(std::find(loaded.begin(), loaded.end(), unloaded.back()));
}

// No set is made of an unloaded adapter, so one that nobody holds now is not held later.
static bool is_unused(const adapter_ptr & a) {
    return a.use_count() == 1;
}

bool adapter_list::has_unused() const {
    const std::lock_guard<std::mutex> lock(mutex);
    return std::any_of(unloaded.begin(), unloaded.end(), is_unused);
}

std::vector<uint64_t> adapter_list::free_unused() {
    const std::lock_guard<std::mutex> lock(mutex);
    std::vector<uint64_t>             keys;
    const auto                        first_used =
        std::stable_partition(unloaded.begin(), unloaded.end(), [](auto & a) { return is_unused(a); });
    for (auto a = unloaded.begin(); a != first_used; a++) {
        for (auto set = sets.begin(); set != sets.end();) {
            const auto & ids  = set->second;
            const bool   ends = std::find(ids.begin(), ids.end(), (*a)->id) != ids.end();
            if (ends) {
                keys.push_back(set->first);
            }
            set = ends ? sets.erase(set) : std::next(set);
        }
        llama_adapter_lora_free((*a)->lora);
    }
    unloaded.erase(unloaded.begin(), first_used);
    return keys;
}

//
// sets
//

adapter_ptr adapter_list::find(int64_t id) const {
    const auto a = std::find_if(loaded.begin(), loaded.end(), [id](const auto & x) { return x->id == id; });
    if (a != loaded.end()) {
        return *a;
    }
    if (loaded.empty()) {
        invalid("lora", "no adapter is loaded; --lora FILE loads one");
    }
    if (loaded.back()->id == (int64_t) loaded.size() - 1) {
        read_integer("lora.id", id, 0, loaded.back()->id);
    }
    std::string ids;
    for (const adapter_ptr & x : loaded) {
        ids += (ids.empty() ? "" : ", ") + std::to_string(x->id);
    }
    invalid("lora.id", "lora.id is " + std::to_string(id) + "; the loaded adapters have the ids " + ids);
}

adapter_set adapter_list::with_key(std::vector<std::pair<adapter_ptr, float>> scales,
                                   const std::string &                        salt) {
    std::vector<int64_t> ids;
    uint64_t             key = 0;
    std::sort(scales.begin(), scales.end(),
              [](const auto & x, const auto & y) { return x.first->id < y.first->id; });
    for (const auto & [a, scale] : scales) {
        key = XXH64(&scale, sizeof(float), key ^ a->hash);
        ids.push_back(a->id);
    }
    const uint64_t cells_key = salt.empty() ? key : XXH64(salt.data(), salt.size(), key);
    if (!ids.empty() && (sets.size() < n_max_sets || sets.count(cells_key))) {
        sets[cells_key] = ids;
    }
    return {std::move(scales), key, cells_key};
}

adapter_set adapter_list::defaults(const std::string & salt) {
    const std::lock_guard<std::mutex>          lock(mutex);
    std::vector<std::pair<adapter_ptr, float>> scales;
    for (const adapter_ptr & a : loaded) {
        if (a->scale != 0.0f) {
            scales.emplace_back(a, a->scale);
        }
    }
    return with_key(std::move(scales), salt);
}

adapter_set adapter_list::read(const json & value, const std::string & salt) {
    const std::lock_guard<std::mutex> lock(mutex);
    std::map<adapter_ptr, float>      named; // the last scale of an id counts
    for (const json & entry : value) {
        named[find(entry["id"])] = entry.value("scale", 1.0f);
    }
    std::vector<std::pair<adapter_ptr, float>> scales;
    std::copy_if(named.begin(), named.end(), std::back_inserter(scales),
                 [](const auto & entry) { return entry.second != 0.0f; });
    return with_key(std::move(scales), salt);
}

void apply_adapters(llama_context * ctx, const adapter_set & set) {
    std::vector<llama_adapter_lora *> loras;
    std::vector<float>                scales;
    for (const auto & [a, scale] : set.scales) {
        loras.push_back(a->lora);
        scales.push_back(scale);
    }
    llama_set_adapters_lora(ctx, loras.data(), loras.size(),
                            scales.data()); // no change if they are already set
}

std::string adapter_list::to_json() const {
    const std::lock_guard<std::mutex> lock(mutex);
    json                              list = json::array();
    for (const adapter_ptr & a : loaded) {
        list.push_back({{"id", a->id}, {"path", a->path}, {"scale", a->scale}});
    }
    return list.dump(-1, ' ', false, json::error_handler_t::replace);
}
