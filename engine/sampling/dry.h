// Sequence breakers of DRY. llama.cpp looks for each of them in every token of the vocabulary: 30 ms, and 3 ms a breaker.
// So that is done where a command is read, once for the last few lists, and samplers share what was found.
#pragma once

#include <sampling.h> // llama.cpp's common/sampling.h

#include <memory>
#include <string>
#include <vector>

// A DRY sampler that is made for its breakers alone.
using dry_breakers = std::shared_ptr<const llama_sampler>;

// Threads may call it at the same time.
dry_breakers find_dry_breakers(const llama_vocab * vocab, const std::vector<std::string> & texts);

// As llama_sampler_init_dry makes it from these settings, with the breakers in place of their texts.
llama_sampler_ptr make_dry(const common_params_sampling & sampling, const llama_sampler * breakers);
