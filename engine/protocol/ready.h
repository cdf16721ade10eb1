// The events of the engine's start.
#pragma once

#include "model/facts.h"

#include <cstdint>

void report_loading(int fd, float progress);
void report_ready(int fd, const model_facts & facts, llama_context * ctx, int32_t n_parallel);
