// How many cells the KV cache has when the command line does not say so.
#pragma once

#include "llama.h"

#include <common.h> // llama.cpp's common/common.h

#include <cstdint>

// As many cells as all sequences need at full length, unless that is more than a quarter of the free memory or more
// than requests are likely to use.
int32_t default_n_ctx(const llama_model * model, const common_params & params);
