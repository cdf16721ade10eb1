// The file of a LoRA adapter, before llama.cpp loads it.
//
// llama.cpp's loader, or the first step with what it has loaded, ends the process for some wrong files. So a file is
// checked first, in a subprocess, where a fault of the GGUF reader harms nothing.
#pragma once

#include "weights/fingerprint.h"

#include "llama.h"

#include <cstdint>
#include <string>

struct adapter_file {
    std::string  path;
    weight_files state;        // as it was checked
    uint64_t     contents = 0; // a hash; 0: there is no prefix cache, which needs it
};

// Throws command_error with the reason if the file is no adapter of this model. Otherwise all of the file has been
// read, so the system has it in memory when it is loaded. folder: that of the prefix cache; empty: there is none.
adapter_file check_adapter_file(const llama_model * model, const std::string & path,
                                const std::string & folder);

// A hash of the file's contents; a random number if it cannot be read, so that no stored prefix matches.
uint64_t contents_of(const weight_files & file, const std::string & folder);

// Loads the adapter. nullptr: `reason` is what llama.cpp logged. Nothing else may use the model's adapters meanwhile,
// not even a decode.
llama_adapter_lora * load_adapter(llama_model * model, const std::string & path, std::string & reason);

// For the callback of llama.cpp's log: keeps an error of the adapter that this thread loads.
void note_adapter_error(enum ggml_log_level level, const char * text);
