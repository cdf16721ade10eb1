// Sampled sequences: how a token becomes text for the client, and what ends, rewinds or retries a sequence.
#pragma once

#include "schedule/update.h"

const sequence_kind & sampled_kind();

// The text of a sequence that has its first tokens already begins behind them. They are those of another one, which it
// forks, or of itself, where it is retried. Text that was held back there is held back here, too, and comes with this
// sequence's own text, ids and logprobs.
void begin_text(const request & r, sequence & s, const sequence & other, const vocabulary & vocab);

// The tokens whose text the client has: without an end-of-text token, and cut where a stop string began. The end of a
// healed prompt is among them.
std::vector<llama_token> seen_tokens(const request & r, const sequence & s, const vocabulary & vocab);
