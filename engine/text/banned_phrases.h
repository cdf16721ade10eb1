// Banned phrases in the text of a sequence.
#pragma once

#include "util/word_finder.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Finds a phrase as soon as the tokens of a sequence complete it, in any case of its ASCII letters. Holds back
// the text of tokens that may be the beginning of a phrase, and of others that may have to go.
class phrase_guard {
  public:
    // In lower case; nullptr: there are none. others: other tokens may have to be held back.
    explicit phrase_guard(word_finder_ptr phrases = nullptr, bool others = false)
        : phrases(std::move(phrases)), others(others) {}

    // Takes the bytes of one token. 0: no phrase is complete. k: a phrase is complete and begins in the k-th last token;
    // the guard has removed these k tokens, and the sequence must rewind by them.
    size_t feed(std::string_view piece);

    // The last n tokens, or as many as are held back, are removed as well. Their number.
    size_t remove(size_t n);

    // The text of the tokens in which no phrase can begin, but for the last n_others.
    std::string take_clear(size_t n_others = 0);
    // At the end of the sequence: all text.
    std::string finish();

    bool   active() const { return phrases || others; }
    size_t n_held() const { return starts.size(); } // tokens whose text is held back

  private:
    size_t n_clear(size_t n_others) const; // first tokens that need not be held back

    word_finder_ptr      phrases;
    bool                 others;
    std::string          held;      // bytes of the tokens
    std::vector<size_t>  starts;    // where each token begins in them
    std::vector<int32_t> states;    // before each token
    int32_t              state = 0; // after the last token
};

std::string ascii_lower(std::string_view text);
