// Commands become requests: a new one, the continuation of a known sequence, more sequences for one that runs.
#pragma once

#include "cache/token_history.h"
#include "model/facts.h"
#include "model/vocabulary.h"
#include "schedule/request.h"

// The request of a generate, prefix, pin or score command. Throws command_error when it continues a sequence that is not known
// (any more), one that is too long, or a pin for which there is no room.
std::unique_ptr<request> make_request(command && c, const request_lists & requests,
                                      const record_list & history, const model_facts & facts,
                                      const vocabulary & vocab, const prefix_tree & tree);

// The error of a request that has too few cells beside the pins.
command_error beside_pins(const request & r, const prefix_tree & tree);
// The pin of this name becomes idle. False: there is none.
bool unpin(request_lists & requests, const std::string & name, prefix_tree & tree);

// All cells were lost: the pins wait to be computed again, as requests of the engine's own.
void pin_again(request_lists & requests, int32_t n_ctx_seq);

// More sequences for a request that has not ended, like its others or as forks of one of them; or another limit. Returns
// the index of the first new one. r: nullptr when no request has that id. Throws command_error.
int64_t extend_request(request * r, const command & c, const vocabulary & vocab);
