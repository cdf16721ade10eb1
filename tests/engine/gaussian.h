// Rows of logits as models make them, a vocabulary without a model, and sampling settings as a request writes them.
#pragma once

#include "sampling/token_sampler.h"

#include "llama.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

// A model of a vocabulary alone: bytes, and tokens "t300", "t301", ….
const llama_model * model_with(int32_t n_vocab);

// Normally distributed logits; of 262,144 tokens the entropy is 2.4 nats with a deviation of 4.5, 8 with 3, 10.5 with 2.
std::vector<float> gaussian_row(int32_t n_vocab, float deviation, uint32_t seed);

sequence_settings settings_of(const nlohmann::json & sampling, const llama_model * model);

// Reads lines with rows of benchmarks/samplers/ and writes their times.
int time_samplers();

// Reads lines with rows of logits and writes what the samplers leave.
int show_rows();
