// Loads the model, its adapters and its context.
#pragma once

#include "model/facts.h"

#include <common.h> // llama.cpp's common/common.h

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

const int32_t n_max_sequence_ids = 256; // llama.cpp's LLAMA_MAX_SEQ
const int32_t n_prefix_ids       = 32; // sequence ids for idle prefixes, beyond those that live branches need

struct loaded_model {
    model_facts     facts;
    llama_context * ctx = nullptr;
};

// nullopt, after a line on stderr, when something cannot be loaded. Sets the sizes of context and batch in `params`.
// prefix_cache: the folder that remembers hashes of adapters' files; empty: none. listed: these adapters in place of
// those of --lora; one that cannot be loaded is left out, after a line on stderr. on_progress: called with every 5 %.
std::optional<loaded_model> load_model(common_params & params, const std::string & prefix_cache,
                                       const std::optional<std::vector<listed_adapter>> & listed,
                                       const std::function<void(float)> &                 on_progress);
