// Which settings the content of cells depends on, as one number: with other settings no snapshot may be restored.
#pragma once

#include "llama.h"

#include <common.h> // llama.cpp's common/common.h

#include <cstdint>

// Of everything but the weights.
uint64_t settings_hash(const common_params & params, const llama_context * ctx);
