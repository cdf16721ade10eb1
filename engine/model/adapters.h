// LoRA adapters: those that are loaded, and the sets of them that requests use.
//
// A context has one set of adapters at a time, so the requests of a decode step have the same set. Cells that were
// computed with one set cannot be used with another one; a set is known by its key. A request's salt keeps its cells
// from all others, as if they were of another set. Adapters are loaded and unloaded while the engine runs; a set keeps its
// adapters in memory.
#pragma once

#include "util/fields.h"
#include "weights/adapter_file.h"

#include "llama.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

const int64_t n_max_adapter_id = std::numeric_limits<int32_t>::max();

struct adapter {
    int64_t              id = 0; // of this process, never given to another adapter
    std::string          path;
    float                scale = 0.0f; // for requests that name no adapters
    uint64_t             hash  = 0;    // of the file; without a prefix cache a number of its own
    llama_adapter_lora * lora  = nullptr;
};

using adapter_ptr = std::shared_ptr<const adapter>;

struct adapter_set {
    std::vector<std::pair<adapter_ptr, float>> scales;  // other than 0, by id
    uint64_t                                   key = 0; // hash of adapters and scales; 0: no adapter
    uint64_t cells_key                             = 0; // `key`, or of it and a salt: whose cells are shared
};

// An adapter that is to be loaded, with its file, which was checked.
struct wanted_adapter {
    int64_t      id    = 0;
    float        scale = 0.0f;
    adapter_file file;
};

// An adapter of the command line: --adapter ID:SCALE:PATH.
struct listed_adapter {
    int64_t     id    = 0;
    float       scale = 0.0f;
    std::string path;
};

// The fields of an entry of `lora`, and of the adapter of load_adapter.
const field_table & adapter_fields();
const field_table & loaded_adapter_fields();

// Sets the adapters for the next decode of this context.
void apply_adapters(llama_context * ctx, const adapter_set & set);

// Any thread may call it, unless a function says otherwise.
class adapter_list {
  public:
    // folder: the prefix cache, whose keys contain a hash of an adapter's file; empty: there is none.
    adapter_list(llama_model * model, std::string folder) : model(model), folder(std::move(folder)) {}

    // At the start, with the next id. False, after a line on stderr, when the file is no adapter of this model.
    bool load_first(const std::string & path, float scale);

    // Checks the file. command_error with the reason if it cannot be loaded.
    wanted_adapter check(const listed_adapter & listed) const;
    // Between two decodes. command_error if it cannot be loaded, or if its id is not above all earlier ones.
    void load(const wanted_adapter & wanted);
    // From now on no set has this adapter. command_error if there is none with this id.
    void unload(int64_t id);
    // Whether there are adapters to be freed: they were unloaded, and nobody holds a set with them.
    bool has_unused() const;
    // Between two decodes, when no context has them: frees them, and returns the keys of their cells.
    std::vector<uint64_t> free_unused();

    // A list of adapter_fields, which have been checked: these adapters and no others. command_error for an unknown id.
    // salt: of the request; empty: it has none.
    adapter_set read(const nlohmann::json & value, const std::string & salt = "");
    adapter_set defaults(const std::string & salt = "");
    // [{"id", "path", "scale"}]
    std::string to_json() const;

  private:
    void        add(adapter && a, uint64_t contents);
    adapter_ptr find(int64_t id) const;
    adapter_set with_key(std::vector<std::pair<adapter_ptr, float>> scales, const std::string & salt);

    llama_model * const                      model;
    const std::string                        folder;
    mutable std::mutex                       mutex; // of the members below
    std::vector<adapter_ptr>                 loaded;
    std::vector<adapter_ptr>                 unloaded;  // and still in memory
    int64_t                                  n_ids = 0; // all ids so far are smaller
    std::map<uint64_t, std::vector<int64_t>> sets;      // ids by cells_key, of the sets that were made
};
