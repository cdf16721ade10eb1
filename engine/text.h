// The text of one sequence on its way out: token pieces become valid UTF-8, stop strings are cut off.
//
// Pieces are bytes: a token may end in the middle of a character or of a stop string. What is not yet
// decided is held back, so that a reader never sees half a character nor any part of a stop string.
#pragma once

#include <string>
#include <string_view>
#include <vector>

class text_stream {
  public:
    explicit text_stream(std::vector<std::string> stops = {}) : stops(std::move(stops)) {}

    // Takes the bytes of one token and returns the text that is decided by now. The stop string that is
    // complete first ends the text (of those complete at one byte, the longest); with may_stop = false the
    // bytes can neither complete nor begin one.
    std::string feed(std::string_view piece, bool may_stop = true);

    // The end of the sequence: everything that was held back, an unfinished character as U+FFFD.
    std::string finish();

    size_t              n_out() const { return n_released; } // bytes of the tokens whose text is out
    bool                decided() const { return pending.empty() && partial.empty(); } // nothing is held back
    bool                stopped() const { return i_stop >= 0; }
    const std::string & stop_text() const { return stops[i_stop]; } // only when stopped()

  private:
    bool find_stop(size_t n_before, size_t & begin);

    std::vector<std::string> stops;
    std::string              pending;         // bytes that may still become part of a stop string
    std::string              partial;         // an unfinished UTF-8 character
    int                      i_stop     = -1; // the stop string that ended the text
    size_t                   n_released = 0;
};

// Banned phrases: finds one as soon as the tokens of a sequence complete it, whatever the case of its ASCII
// letters, and holds back the text of tokens that may still turn out to be the beginning of one.
class phrase_guard {
  public:
    explicit phrase_guard(std::vector<std::string> phrases = {});

    // Takes the bytes of one token. 0: no phrase is complete. k: one is, and begins in the k-th last token;
    // the guard has forgotten these k tokens, and the sequence must as well.
    size_t feed(std::string_view piece);

    // The text of tokens that no phrase can begin in any more.
    std::string take_clear();
    // At the end of the sequence: all text.
    std::string finish();

    bool   active() const { return !phrases.empty(); }
    size_t n_held() const { return starts.size(); } // tokens whose text is held back

  private:
    size_t n_clear() const; // tokens from the first on that are held no longer

    std::vector<std::string> phrases; // in lower case
    std::string              held;    // bytes of the tokens
    std::string              lower;   // the same in lower case
    std::vector<size_t>      starts;  // where each token begins in them
};

std::string ascii_lower(std::string_view text);

// Length of the longest end of `text` that is the beginning, not the whole, of one of `words`.
size_t unfinished_suffix(const std::string & text, const std::vector<std::string> & words);

// Moves whole characters from the front of `bytes` into the result, invalid bytes as U+FFFD (one for each
// maximal broken part, as Unicode 15 §3.9 recommends); an unfinished character at the end stays in `bytes`.
std::string take_utf8(std::string & bytes);
