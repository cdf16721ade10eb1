// Banned phrases, and matches of banned expressions, in the text of a sequence.
#pragma once

#include "text/banned_patterns.h"
#include "util/word_finder.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Finds a phrase as soon as the tokens of a sequence complete it, in any case of its ASCII letters; or a match of an
// expression, which counts as one. Holds back the text of tokens that may be the beginning of a phrase, and of others that
// may have to go.
class phrase_guard {
  public:
    // In lower case; nullptr: there are none. others: other tokens may have to be held back.
    explicit phrase_guard(word_finder_ptr phrases = nullptr, pattern_finder_ptr patterns = nullptr,
                          bool others = false)
        : phrases(std::move(phrases)), patterns(std::move(patterns)), others(others) {}

    // Takes the bytes of one token. 0: no phrase is complete. k: a phrase is complete and begins in the k-th last token;
    // the guard has removed these k tokens, and the sequence must rewind by them.
    size_t feed(std::string_view piece);

    // The last n tokens, or as many as are held back, are removed as well. Their number.
    size_t remove(size_t n);

    // The text of the tokens in which no phrase can begin, but for the last n_others.
    std::string take_clear(size_t n_others = 0);
    // At the end of the sequence: all text.
    std::string finish();

    bool   active() const { return phrases || patterns || others; }
    size_t n_held() const { return starts.size(); } // tokens whose text is held back

  private:
    size_t n_clear(size_t n_others) const; // first tokens that need not be held back
    size_t undecided_before(size_t i) const;
    size_t first_begun() const { return begun.empty() ? pattern_finder::none : begun[0].at; }

    word_finder_ptr      phrases;
    pattern_finder_ptr   patterns;
    bool                 others;
    std::string          held;         // bytes of the tokens
    size_t               n_before = 0; // bytes of the text before them
    std::vector<size_t>  starts;       // where each token begins in them
    std::vector<int32_t> states;       // before each token
    std::vector<size_t>
            begins;    // before each token: where the first match that may have begun begins in the text
    int32_t state = 0; // after the last token

    std::vector<pattern_finder::begun> begun; // after the last token
};

std::string ascii_lower(std::string_view text);
