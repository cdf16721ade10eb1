// Commands become requests: a new one, the continuation of a known sequence, more sequences for one that runs.
#pragma once

#include "cache/token_history.h"
#include "model/facts.h"
#include "model/vocabulary.h"
#include "schedule/request.h"

// The request of a generate, prefix or score command. Throws command_error when it continues a sequence that is not known
// (any more), or one that is too long.
std::unique_ptr<request> make_request(command && c, const request_lists & requests,
                                      const record_list & history, const model_facts & facts,
                                      const vocabulary & vocab);

// More sequences for a request that has not ended, like its others or as forks of one of them; or another limit. Returns
// the index of the first new one. r: nullptr when no request has that id. Throws command_error.
int64_t extend_request(request * r, const command & c, const vocabulary & vocab);
