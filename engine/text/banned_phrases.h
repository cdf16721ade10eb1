// Banned phrases in the text of a sequence.
#pragma once

#include "util/word_finder.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Finds a phrase as soon as the tokens of a sequence complete it, in any case of its ASCII letters. Holds back
// the text of tokens that may be the beginning of a phrase.
class phrase_guard {
  public:
    explicit phrase_guard(word_finder_ptr phrases = nullptr) : phrases(std::move(phrases)) {} // in lower case

    // Takes the bytes of one token. 0: no phrase is complete. k: a phrase is complete and begins in the k-th last token;
    // the guard has removed these k tokens, and the sequence must rewind by them.
    size_t feed(std::string_view piece);

    // The text of the tokens in which no phrase can begin.
    std::string take_clear();
    // At the end of the sequence: all text.
    std::string finish();

    bool   active() const { return phrases != nullptr; }
    size_t n_held() const { return starts.size(); } // tokens whose text is held back

  private:
    size_t n_clear() const; // first tokens that need not be held back

    word_finder_ptr      phrases;
    std::string          held;      // bytes of the tokens
    std::vector<size_t>  starts;    // where each token begins in them
    std::vector<int32_t> states;    // before each token
    int32_t              state = 0; // after the last token
};

std::string ascii_lower(std::string_view text);
