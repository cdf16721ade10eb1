// LoRA adapters: those that were loaded with the model, and the sets of them that requests use.
//
// A context has one set of adapters at a time, so the requests of a decode step have the same set. Cells that were
// computed with one set cannot be used with another one; a set is known by its key.
#pragma once

#include "util/fields.h"

#include "llama.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

// A scale for each adapter, by its id; 0: the adapter is not used.
struct adapter_set {
    std::vector<float> scales;
    uint64_t           key = 0; // hash of adapters and scales; 0: no adapter
};

// The fields of an entry of `lora`.
const field_table & adapter_fields();

class adapter_list {
  public:
    // False, after a line on stderr, when the file is no adapter of this model. scale: for requests that name no
    // adapters. folder: the prefix cache, whose keys contain a hash of the file; empty: there is none.
    bool load(llama_model * model, const std::string & path, float scale, const std::string & folder);

    // A list of adapter_fields, which have been checked: these adapters and no others. command_error for an unknown id.
    adapter_set read(const nlohmann::json & value) const;
    adapter_set defaults() const;
    // Sets the adapters for the next decode of this context.
    void apply(llama_context * ctx, const adapter_set & set) const;
    // [{"id", "path", "scale"}] for the event ready.
    std::string to_json() const;

  private:
    struct adapter {
        std::string          path;
        llama_adapter_lora * lora;
        float                scale;
        uint64_t             hash; // of the file; without a prefix cache its number
    };

    adapter_set with_key(std::vector<float> scales) const;

    std::vector<adapter> adapters;
};
