// What the tokens of a sequence say to a client.
#pragma once

#include "model/facts.h"
#include "schedule/request.h"

// The text of a token as a client sees it: of control tokens only what a chat's parser wants.
std::string piece_of(const request & r, llama_token token, const model_facts & facts);

// The text of a sequence that has its first tokens already (a fork) begins behind them: what was held back there is
// held back here too, and comes with this one's own text.
void begin_text(const request & r, sequence & s, const model_facts & facts);

// What a client saw of a sequence, as tokens: when it is over, without an end-of-text token, and cut where a
// stop string began.
std::vector<llama_token> seen_tokens(const request & r, const sequence & s, const model_facts & facts);
