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

void check_prompt_length(int64_t n_tokens, const model_facts & facts, bool at_least) {
    if (n_tokens + 1 > facts.n_ctx_seq) {
        throw command_error("context_exceeded",
                            "the prompt has " + std::string(at_least ? "at least " : "") +
                                std::to_string(n_tokens) +
                                " tokens; with one more it exceeds the context of " +
                                std::to_string(facts.n_ctx_seq) + " tokens per sequence",
                            "prompt");
    }
}
