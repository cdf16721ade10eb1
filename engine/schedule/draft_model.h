// A small model that guesses what the large one will draw: its likeliest tokens, one after the other, with one row of its
// own for each text (--spec-draft-model). It is asked where the texts themselves say nothing.
#pragma once

#include "schedule/drafting.h"

#include "llama.h"

#include <common.h> // llama.cpp's common/common.h

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

class draft_model : public draft_maker {
  public:
    // The model of --spec-draft-model. nullptr, after a line on stderr, when it cannot be loaded or its cells cannot be
    // truncated.
    static std::unique_ptr<draft_model> load(const common_params & params);
    ~draft_model() override;
    draft_model(const draft_model &)             = delete;
    draft_model & operator=(const draft_model &) = delete;

    // False, after a line on stderr, when its tokens are not those of the model that it guesses for.
    bool fits(const llama_model * large, const std::string & path) const;

    // A text of which it knows little gets no guess yet: a step waits for a part of it only, and for none if that takes
    // longer than what the guesses may save.
    std::vector<std::vector<llama_token>> guess(const std::vector<draft_text> & texts, int32_t n_most,
                                                double t_step) override;
    double                                t_round_us() const override { return t_round; }

  private:
    // Tokens of a text that have cells, under the sequence id that is its place in the list.
    struct track {
        std::pair<int64_t, int32_t> owner = {-1, -1};
        std::vector<llama_token>    tokens;
        int64_t                     last_call = 0;
    };
    // A text of a call.
    struct guessing {
        track *                  own    = nullptr; // nullptr: it is not guessed
        int32_t                  i_row  = -1;      // of the last token; -1: it is not there yet
        double                   chance = 1.0;     // of all its guesses
        std::vector<llama_token> guesses;
    };

    draft_model(std::string path, llama_model * model, llama_context * ctx, int32_t n_tracks);

    track *      track_of(const draft_text & text);
    void         catch_up(guessing & one, const draft_text & text, int32_t n_room);
    bool         share_longest(track & own, const draft_text & text, size_t & n_equal);
    void         add(guessing & one, llama_token token, bool wants_row);
    void         make_room();
    bool         decode();
    void         extend(guessing & one) const;
    llama_seq_id id_of(const track & t) const { return (llama_seq_id) (&t - tracks.data()); }

    const std::string     path;
    llama_model * const   model;
    llama_context * const ctx;
    llama_batch           batch;
    std::vector<track>    tracks;
    int64_t               n_calls = 0, n_rest = 0; // calls; those that it rests, as its cells did not suffice
    double t_round = 0, t_token = 0; // of a token for each text, of one of a prompt;            // us
};

// What next tokens may be guessed from: "none" where wrong guesses could not be removed, "texts", or "model".
const char * drafts_from(const llama_context * ctx, const draft_model * model);
