// Vectors of texts: a second context on the same model, made with the first embed command.
//
// The context gives a vector for each token; the pooling is done here, so that a text can be computed in chunks and a
// running stream waits for one chunk at most. Encoders need a text in one piece; they generate nothing that could wait.
// Which texts a batch has, text_queue decides. A model that ranks has its head in the pooling, which is left to llama.cpp
// there: its vector is the relevance of a document to a query, as the head gives it.
#pragma once

#include "model/facts.h"
#include "model/text_queue.h"

#include <string>
#include <vector>

// Read from the model's file, but the pooling from `wanted`, unless it is unspecified. A model whose file names no pooling
// generates text; its vectors are means by default.
embedding_facts read_embedding_facts(const llama_model *     model,
                                     enum llama_pooling_type wanted = LLAMA_POOLING_TYPE_UNSPECIFIED);

// A context for vectors of texts of up to facts.embedding.n_max tokens; nullptr when there is no memory.
llama_context * make_embedding_context(const model_facts & facts, llama_context_params params);

// The vector of one text of a command.
struct text_vector {
    std::string         id; // of the command
    int64_t             index    = 0;
    int32_t             n_tokens = 0;
    std::vector<double> numbers; // of norm 1, or zeros; of a model that ranks: what its head gives
};

// The end of a command.
struct embedding_end {
    std::string id;
    int64_t     count    = 0; // of texts whose vectors are computed
    int64_t     n_tokens = 0; // of those texts
    std::string error;        // empty: the command is done or was cancelled
};

struct embedding_results {
    std::vector<text_vector>   vectors;
    std::vector<embedding_end> ended;
};

class embedder {
  public:
    // ctx: an existing context; nullptr: one is made when it is needed.
    embedder(const model_facts & facts, const llama_context_params & params, llama_context * ctx);
    ~embedder();

    bool busy() const { return !queue.empty(); }
    bool has(const std::string & id) { return queue.find(id); }
    // The first priority of the commands, if it is busy.
    int32_t priority() const { return queue.priority(); }
    void    submit(const std::string & id, const std::string & client,
                   std::vector<std::vector<llama_token>> && texts, int32_t priority);
    // The results are empty if there is no command with this id.
    embedding_results cancel(const std::string & id);
    // The context has no adapters until the next step.
    void reset_adapters();
    // Computes at most n_max tokens, or, for an encoder, one complete text.
    embedding_results step(int32_t n_max);

  private:
    bool         make_context();
    batch_limits limits(int32_t n_max) const;
    void         fill(const text_batch & b);
    void         take(text_job & j, const text_piece & p, int32_t i_first, embedding_results & results);
    void         add(text_job & j, const text_piece & p, int32_t i_first) const;
    std::vector<double> vector_of(text_job & j, const text_piece & p) const;
    embedding_results   fail(text_job & j, const std::string & message);

    const model_facts    facts;
    llama_context_params params;
    llama_context *      ctx;
    llama_batch          batch = {};
    text_queue           queue;
};
