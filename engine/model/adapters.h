// LoRA adapters: those that were loaded with the model, and how much of each a request wants.
//
// A context has one set of adapters at a time, so a decode step is of requests with the same set, and cells
// that were computed with one set are of no use to another: a key stands for each set.
#pragma once

#include "llama.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

// How much of each adapter, by its id; 0: nothing of it.
struct adapter_set {
    std::vector<float> scales;
    uint64_t           key = 0; // of adapters and scales; 0: of no adapter
};

class adapter_list {
  public:
    // False when the file is no adapter of this model; the log says why. `scale` is that of requests which
    // name no adapters. `folder`: of the prefix cache, where other
    // processes are to know it again by all that it holds; empty: there is none.
    bool load(llama_model * model, const std::string & path, float scale, const std::string & folder);

    // [{"id", "scale"}]: these and no others; command_error when it is none.
    adapter_set read(const nlohmann::json & value) const;
    adapter_set defaults() const;
    // What the next decode of this context uses.
    void apply(llama_context * ctx, const adapter_set & set) const;
    // [{"id", "path", "scale"}] for the event ready.
    std::string to_json() const;

  private:
    struct adapter {
        std::string          path;
        llama_adapter_lora * lora;
        float                scale;
        uint64_t             hash; // of the file, or its number here
    };

    adapter_set with_key(std::vector<float> scales) const;

    std::vector<adapter> adapters;
};
