// How many cells the KV cache has when the command line does not say so, and how many of them a sequence may have.
#pragma once

#include "llama.h"

#include <common.h> // llama.cpp's common/common.h

#include <cstdint>

const int32_t n_default_cells = 65536; // more would cost start-up time and memory that few use

// As many cells as all sequences need at full length, unless that is more than a quarter of the free memory or more
// than requests are likely to use.
int32_t default_n_ctx(const llama_model * model, const common_params & params);

// How many tokens one sequence may have, prompt and all: n_train, the training length, or more where options of rope
// scaling say so and the KV cache has room; then with a line on stderr. With YaRN llama.cpp changes the model's training
// length when it makes a context, so n_train is that of before.
int32_t sequence_limit(const llama_model * model, const common_params & params, int32_t n_train,
                       int32_t n_ctx);
