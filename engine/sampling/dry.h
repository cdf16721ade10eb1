// DRY samplers. llama.cpp looks for each sequence breaker in every token of the vocabulary, 40 ms for the four usual ones
// with 262,144 tokens. So that is done once for the last few settings, and each sequence has a copy.
#pragma once

#include <sampling.h> // llama.cpp's common/sampling.h

// As llama_sampler_init_dry makes it from these settings. Threads may call it at the same time.
llama_sampler_ptr copy_of_dry(const llama_vocab * vocab, const common_params_sampling & sampling);
