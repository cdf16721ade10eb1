// Commands become requests: a new one, the continuation of a known sequence, more sequences of one that runs.
#pragma once

#include "cache/token_history.h"
#include "model/facts.h"
#include "schedule/request.h"

// The request of a generate, prefix or score command. Throws command_error when it continues what is not known (any
// more), or what is too long.
std::unique_ptr<request> make_request(command && c, const request_lists & requests,
                                      const record_list & history, const model_facts & facts);

// More sequences for a request that is not done, as its others or as a fork of one of them; a later limit. Returns the
// index of the first new one. r: nullptr when there is none of that id. Throws command_error.
int64_t extend_request(request * r, const command & c, const model_facts & facts);
