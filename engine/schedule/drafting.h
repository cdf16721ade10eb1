// How many tokens are drafted: guesses at the next tokens of a sequence, which are rows of the same step as its last one.
// They are worth what rows cost, by the steps so far, and how often such guesses were right.
#pragma once

#include "schedule/draft_index.h"

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

// The time of a step by its tokens, as measured: twice at least, since the first step of a size may have to reserve memory.
// What was measured long ago is taken to be less, so that a size that was slow for another reason is tried again. A step of
// another size than the one before takes longer, since its graph is made anew; that is known by itself.
class step_curve {
  public:
    // n_tokens: 0 of a step that tells nothing of its size.
    void add(int32_t n_tokens, int64_t t_us);
    // The time that it takes to do a step of so many tokens now, and one of n_plain tokens next.
    double now(int32_t n_tokens, int32_t n_plain) const;
    // Of a step of so many tokens, in us: between two that were measured in a straight line; above them half as steep as
    // these are.
    double at(int32_t n_tokens) const;
    bool   knows(int32_t n_tokens) const;
    bool   is_stale(int32_t n_tokens) const; // it is known, but was not measured for a while

    static const int32_t n_max = 64; // tokens

  private:
    struct point {
        double  t        = 0;
        int32_t n_times  = 0;
        bool    is_plain = false; // some were behind a step of the same size
        int64_t last     = 0;     // step
    };

    double of(int32_t n_tokens) const;

    std::array<point, n_max + 1> points;
    int64_t                      n_steps  = 0;
    int32_t                      n_last   = 0; // tokens of the last step
    double                       t_change = 0; // us that another size takes
};

// Where guesses come from.
struct draft_source {
    enum kind { prompt, own, siblings, earlier, model, grammar, n };
    static constexpr const char * names[n] = {"prompt", "own", "siblings", "earlier", "model", "grammar"};
};

// What speaks for guesses.
struct draft_evidence {
    draft_source::kind source  = draft_source::grammar;
    int32_t            n_equal = 0; // tokens before them that are equal (draft_place); of texts only
    int32_t            n_sure  = 0; // of a grammar's: the first ones, which it allows only
};

struct draft_count {
    int64_t n         = 0;              // steps' guesses for a sequence
    int64_t n_guessed = 0, n_right = 0; // tokens
};
using draft_counts_by_source = std::array<draft_count, draft_source::n>;

// How often guesses were right, by their evidence: the first one, and each behind a right one.
class guess_rates {
  public:
    // Of these guesses the first n_right were right, and the next one, if there was one, was not.
    void add(const draft_evidence & why, int32_t n_guessed, int32_t n_right);
    // The same, but of few guesses: what a request begins with.
    guess_rates few() const;
    // A step passes: what is known fades, so that guesses that were wrong are tried again.
    void fade();
    // The chance that guess i, from 0 on, and all before it are right.
    double chance(const draft_evidence & why, int32_t i) const;
    // Of so many guesses: how many are right, on average.
    double expected(const draft_evidence & why, int32_t n) const;

  private:
    struct rate {
        double right = 0, all = 0;
    };

    static const size_t n_classes = 3; // of n_equal
    static size_t       rate_of(const draft_evidence & why, int32_t i);

    std::array<rate, 2 * (n_classes * draft_source::grammar + 1)>
        rates; // first and next ones; last: of a grammar
};

// A sequence that has guesses.
struct draft_offer {
    int32_t             n_most = 0; // guesses
    draft_evidence      why;
    const guess_rates * rates       = nullptr;
    int32_t             n_sequences = 1; // that share the row
};

// How many guesses of each offer a step takes that has n_tokens without them, from which n_rows sequences draw: as many as
// make the most tokens a second.
// n_room: guesses at most; t_share: the step may take so many times as long, at most.
std::vector<int32_t> choose_drafts(const std::vector<draft_offer> & offers, const step_curve & curve,
                                   int32_t n_tokens, int32_t n_rows, int32_t n_room, double t_share);

// A text that a draft model goes on from.
struct draft_text {
    std::pair<int64_t, int32_t>     owner; // a request and a sequence of it
    const std::vector<llama_token> *prompt = nullptr, *generated = nullptr;
    double                          t_worth = 0; // us: what all its guesses may save, about

    size_t      size() const { return prompt->size() + generated->size(); }
    llama_token at(size_t i) const {
        return i < prompt->size() ? (*prompt)[i] : (*generated)[i - prompt->size()];
    }
};

// What makes guesses beyond what texts and grammars say.
class draft_maker {
  public:
    virtual ~draft_maker() = default;
    // At most n_most tokens behind each of the texts, while a step takes about t_step us without them.
    virtual std::vector<std::vector<llama_token>> guess(const std::vector<draft_text> & texts, int32_t n_most,
                                                        double t_step) = 0;
    // Of one token for each text, as measured; 0: not yet.
    virtual double t_round_us() const = 0;
};

// What is worth asking a draft maker for.
struct draft_rounds {
    int32_t n      = 0; // tokens for each text
    double  t_gain = 0; // us that this saves of the time that the step's tokens take without it
};

// As many as make the most tokens a second, before the guesses are known, the maker's own time counted. n_texts: that are
// guessed. The rest is as for choose_drafts.
draft_rounds choose_rounds(const guess_rates & rates, const step_curve & curve, int32_t n_tokens,
                           int32_t n_rows, int32_t n_texts, double t_round, int32_t n_most);
