// On which devices the model lies: chosen before it is loaded where not all of it has room on the GPUs, and told afterwards.
#pragma once

#include "llama.h"

#include <common.h> // llama.cpp's common/common.h

#include <cstdint>
#include <string>

// Chooses how many layers the GPUs take if the whole model does not fit them, and changes only what the command line leaves
// open: layers and their devices in `model`. Returns the cells for which there is room then; 0: everything fits, or nothing
// was chosen. Says on stderr what it has chosen. Reads the file's header several times, so it does so only if it may matter.
uint32_t fit_to_devices(common_params & params, llama_model_params & model, llama_context_params context);

// After a failed load, one line on stderr if a GPU has too little memory: needed, free, and what to do.
void explain_failed_load(const common_params & params, const llama_model_params & model,
                         llama_context_params context);

// [{"name", "description", "model", "context", "compute", "total"}], in bytes: what lies on each device that computes this
// context, and its whole memory; the CPU last. Not what is free: a fresh process writes the same bytes.
std::string placement_to_json(const llama_context * ctx);
// Of the model's layers, the output one included, those that GPUs take.
int32_t n_layers(const llama_model * model);
int32_t n_gpu_layers(const llama_model * model, const llama_model_params & params);
