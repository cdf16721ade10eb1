// The events of the engine's start.
#pragma once

#include "model/facts.h"

#include <cstdint>

void report_loading(int fd, float progress);
// drafts: what next tokens may be guessed from.
void report_ready(int fd, const model_facts & facts, llama_context * ctx, int32_t n_parallel,
                  const char * drafts);
