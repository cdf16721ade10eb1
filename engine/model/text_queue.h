// The texts that become vectors, and which of them the next batch has. Clients take turns, a batch each; one client's
// texts are computed in their order.
//
// A text that is not computed in one batch keeps its cells until it is complete. Two may at a time, one that is longer
// than a batch and one that is not; another one waits for the text before it, and texts that fit into a batch wait for
// none. So there are cells for a longest text and for two batches.
//
// What all texts of a job begin with, as a query that stands before each document, may be computed once in a batch, with
// the sequence ids of all texts that are begun there.
#pragma once

#include "model/adapters.h"
#include "util/client_turns.h"

#include <list>
#include <string>
#include <vector>

#include "llama.h"

// Of a text, in a batch.
struct text_piece {
    size_t       i_text   = 0;
    int32_t      n_before = 0; // tokens of the text that were computed before
    int32_t      n_tokens = 0;
    llama_seq_id seq_id   = 0;
    int32_t      n_shared = 0; // of these, the first ones, whose rows an earlier piece of the batch has
};

// An embed command.
struct text_job {
    std::string                           id;
    std::string                           client;
    std::vector<std::vector<llama_token>> texts;
    int32_t                               priority = 0; // the lower, the earlier
    adapter_set                           adapters;     // as they were loaded
    int32_t             n_shared = 0; // tokens that all texts begin with and that are computed once
    size_t              i_text   = 0; // the first incomplete text
    int32_t             n_done   = 0; // tokens of that text
    int64_t             n_tokens = 0; // of all complete texts
    llama_seq_id        seq_id   = 0; // of that text, if it has begun
    std::vector<double> sum;          // of that text's token vectors, so far

    bool has_begun() const { return n_done > 0; }
    bool is_done() const { return i_text == texts.size(); }
    // Sets n_shared, for a model whose tokens see those before them only. Each text keeps a token of its own.
    void share_beginning();
    // The piece was computed. True: its text is complete now.
    bool take(const text_piece & p);
};

struct text_batch {
    text_job *              job = nullptr;
    std::vector<text_piece> pieces; // of texts that follow each other
};

struct batch_limits {
    int32_t n_max     = 512;  // tokens of the batch
    int32_t n_batch   = 512;  // the most that any batch may have
    bool    in_pieces = true; // texts may be computed in several batches
};

class text_queue {
  public:
    static constexpr int32_t n_texts = 16;          // in one batch
    static constexpr int32_t n_ids   = n_texts + 2; // sequence ids, with those of two texts that have begun

    bool       empty() const { return jobs.empty(); }
    text_job & first() { return jobs.front(); }
    text_job * find(const std::string & id);
    void       submit(text_job && job);
    void       remove(const text_job & job);
    // No text has cells any more: those that have begun begin again.
    void restart();
    // The first one of the jobs'.
    int32_t priority() const;
    // Not empty, if there is a job.
    text_batch next(const batch_limits & limits);

  private:
    std::vector<text_job *> in_turn();
    std::vector<text_piece> pieces_of(const text_job & job, const batch_limits & limits) const;
    bool                    may_begin(const text_job & job, const batch_limits & limits, size_t i) const;
    bool                    others_wait(const text_job & job) const;
    llama_seq_id            free_id(const std::vector<text_piece> & pieces) const;

    std::list<text_job> jobs; // of each client in the order in which they are computed
    client_turns        turns;
};
