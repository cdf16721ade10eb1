// The command line: llama.cpp's options, and those of llama-batched beside them.
#pragma once

#include "model/adapters.h"

#include <common.h> // llama.cpp's common/common.h

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

struct options {
    common_params            llama;
    std::optional<uint64_t>  cache_cells; // of the KV cache, for idle prefixes; none: a quarter of the cells
    uint64_t                 cache_ram = 0;              // bytes of host memory for prefixes
    std::string              prefix_cache;               // folder for prefixes on disk; empty: none
    uint64_t                 prefix_cache_size = 0;      // bytes of the files in the folder
    std::string              packed_weights;             // folder for packed weights; empty: none
    std::vector<std::string> logits_processor;           // a program and its arguments; empty: none
    double                   processor_seconds = 10.0;   // that it may take for the rows of one request
    std::optional<std::vector<listed_adapter>> adapters; // of --adapter; none: those of --lora
    bool                                       self_test  = false;
    bool                                       fields     = false;
    bool                                       list_flags = false;
};

// nullopt, after a line on stderr, when an option is wrong.
std::optional<options> read_options(int argc, char ** argv);
