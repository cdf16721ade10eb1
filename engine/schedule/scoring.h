// Scored sequences: their tokens are given, and each row of logits says how likely the next one was.
#pragma once

#include "schedule/update.h"

const sequence_kind & scored_kind();

// Tokens before the scored ones count as scored already. Nothing predicts the first token of all.
void begin_score(const request & r, sequence & s, const scored_text & text, const vocabulary & vocab);
