// Vectors for texts: a second context on the same model, made when it is first wanted.
//
// It gives a vector for each token; what they come to for a text (pooling) is computed here, so that a
// text may come in chunks and a running stream never waits for more than one. Models that read a whole text
// at once (encoders) get it in one piece; they generate nothing that could wait.
#pragma once

#include "model/facts.h"

#include <deque>
#include <string>
#include <vector>

// What the model's file says; without a pooling of its own a model generates, and the mean is taken.
embedding_facts read_embedding_facts(const llama_model * model);

// A context for vectors of texts of up to facts.embedding.n_max tokens; nullptr when there is no memory.
llama_context * make_embedding_context(const model_facts & facts, llama_context_params params);

// The vector of one text of a command.
struct text_vector {
    std::string         id; // of the command
    int64_t             index    = 0;
    int32_t             n_tokens = 0;
    std::vector<double> numbers; // of length 1, or zeros
};

// The end of a command.
struct embedding_end {
    std::string id;
    int64_t     count    = 0; // of texts that have their vectors
    int64_t     n_tokens = 0; // of those
    std::string error;        // empty: it is done, or was cancelled
};

struct embedding_results {
    std::vector<text_vector>   vectors;
    std::vector<embedding_end> ended;
};

class embedder {
  public:
    // ctx: one that there is already; nullptr: it is made when it is needed.
    embedder(const model_facts & facts, const llama_context_params & params, llama_context * ctx);
    ~embedder();

    bool busy() const { return !jobs.empty(); }
    bool has(const std::string & id) const;
    void submit(const std::string & id, std::vector<std::vector<llama_token>> && texts);
    // Nothing ends when there is no command of this id.
    embedding_results cancel(const std::string & id);
    // Computes at most n_max tokens, or one whole text where there are no chunks.
    embedding_results step(int32_t n_max);

  private:
    struct job {
        std::string                           id;
        std::vector<std::vector<llama_token>> texts;
        size_t                                i_text   = 0; // the first that is not done
        int32_t                               n_done   = 0; // tokens of that one
        int64_t                               n_tokens = 0; // of all that are
        std::vector<double>                   sum;          // of that one's vectors, as far as they count
    };
    struct piece { // of a text, in a batch
        size_t  i_text;
        int32_t i_first; // row of the batch
        int32_t n_tokens;
    };

    bool               make_context();
    std::vector<piece> fill(const job & j, int32_t n_max);
    void               take(job & j, const piece & p, embedding_results & results);
    embedding_results  fail(const std::string & message);

    const model_facts    facts;
    llama_context_params params;
    llama_context *      ctx;
    llama_batch          batch = {};
    std::deque<job>      jobs; // in order of arrival
};
