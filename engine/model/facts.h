// Facts about the loaded model.
#pragma once

#include "model/adapters.h"

#include "llama.h"

#include <cstdint>
#include <memory>
#include <string>

// How the model computes vectors of texts.
struct embedding_facts {
    enum llama_pooling_type pooling      = LLAMA_POOLING_TYPE_MEAN;
    bool                    only         = false; // the model only computes vectors, it generates no text
    int32_t                 n_dimensions = 0;
    int32_t                 n_max        = 0; // tokens of one text

    const char * pooling_name() const;
    // Whether it says how relevant a document is to a query, in place of vectors.
    bool ranks() const { return pooling == LLAMA_POOLING_TYPE_RANK; }
};

// The facts that readers of commands need.
struct model_facts {
    const llama_model * model        = nullptr;
    const llama_vocab * vocab        = nullptr;
    int32_t             n_ctx_seq    = 0; // tokens of one sequence at most
    size_t              n_piece_max  = 0; // bytes of the longest token
    int32_t             n_gpu_layers = 0; // layers that GPUs compute

    std::shared_ptr<adapter_list> adapters; // with threads that read commands
    embedding_facts               embedding;
};

// Throws command_error with the code "context_exceeded". message: the beginning of the error, up to "it".
[[noreturn]] void exceed_context(const std::string & param, const std::string & message, int64_t n_prompt,
                                 int64_t n_ctx);

// Throws command_error when a prompt of n_tokens leaves no room for another token. at_least: n_tokens is a lower bound.
void check_prompt_length(int64_t n_tokens, const model_facts & facts, bool at_least = false);
