#include "model/facts.h"

#include "util/json.h"

const char * embedding_facts::pooling_name() const {
    switch (pooling) {
        case LLAMA_POOLING_TYPE_CLS:  return "cls";
        case LLAMA_POOLING_TYPE_LAST: return "last";
        case LLAMA_POOLING_TYPE_RANK: return "rank";
        default:                      return "mean";
    }
}

void exceed_context(const std::string & param, const std::string & message, int64_t n_prompt, int64_t n_ctx) {
    command_error error("context_exceeded",
                        message + " exceeds the available context size of " + std::to_string(n_ctx) +
                            " tokens per sequence",
                        param);
    error.n_prompt = n_prompt;
    error.n_ctx    = n_ctx;
    throw error;
}

void check_prompt_length(int64_t n_tokens, const model_facts & facts, bool at_least) {
    if (n_tokens + 1 > facts.n_ctx_seq) {
        const std::string counted = (at_least ? "at least " : "") + std::to_string(n_tokens);
        exceed_context("prompt", "the prompt has " + counted + " tokens; with one more it", n_tokens,
                       facts.n_ctx_seq);
    }
}
