// From the bytes of tokens to the text that is written: valid UTF-8, without stop strings.
//
// A token may end in the middle of a character or of a stop string. Such bytes are held back until they are decided, so
// a reader never sees half a character nor a part of a stop string.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

// Searches for many words at once, byte by byte (Aho and Corasick 1975): the cost of a byte does not depend on the number
// and length of the words. Many texts share one finder; each text has its own state, which is 0 at the beginning.
class word_finder {
  public:
    explicit word_finder(const std::vector<std::string> & words = {});

    int32_t next(int32_t state, char byte) const;

    // The length of the longest suffix of the bytes so far that is a prefix of a word.
    size_t n_begun(int32_t state) const { return nodes[(size_t) state].depth; }
    // The longest word that is a suffix of the bytes so far; nullptr: none.
    const std::string * word(int32_t state) const {
        const int32_t found = nodes[(size_t) state].word;
        return found < 0 ? nullptr : &words[(size_t) found];
    }
    bool empty() const { return words.empty(); }

  private:
    struct node {
        int32_t  shorter = 0;  // the state of the next shorter suffix that is a prefix of a word
        int32_t  word    = -1; // the longest word that ends here
        uint32_t depth   = 0;
        uint32_t first   = 0; // of its edges
        uint32_t n_edges = 0;
    };
    struct edge {
        uint8_t byte;
        int32_t to;
    };

    void    link();
    int32_t child(int32_t state, uint8_t byte) const; // -1: none

    std::vector<std::string> words;
    std::vector<node>        nodes; // by depth
    std::vector<edge>        edges; // grouped by node, sorted by byte
};

using word_finder_ptr = std::shared_ptr<const word_finder>; // nullptr: no words

class text_stream {
  public:
    explicit text_stream(word_finder_ptr stops = nullptr) : stops(std::move(stops)) {}

    // Takes the bytes of one token and returns the text that is decided now. The first complete stop string ends the
    // text (of several that end at one byte, the longest). With may_stop = false these bytes are no part of a stop
    // string.
    std::string feed(std::string_view piece, bool may_stop = true);

    // At the end of the sequence: the text that was held back, with U+FFFD for an unfinished character.
    std::string finish();

    size_t n_out() const { return n_released; } // bytes of the tokens whose text has been returned
    bool   decided() const { return pending.empty() && partial.empty(); } // no text is held back
    bool   stopped() const { return stop; }
    const std::string & stop_text() const { return *stop; } // only when stopped()

  private:
    word_finder_ptr     stops;
    int32_t             state = 0;
    std::string         pending;              // bytes that may be the beginning of a stop string
    std::string         partial;              // an unfinished UTF-8 character
    const std::string * stop       = nullptr; // the stop string that ended the text
    size_t              n_released = 0;
};

// Banned phrases: finds one as soon as the tokens of a sequence complete it, in any case of its ASCII letters. Holds back
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

// Moves complete characters from the front of `bytes` into the result, and U+FFFD for invalid bytes (one for each maximal
// invalid part, as Unicode 15 §3.9 recommends). An unfinished character at the end stays in `bytes`.
std::string take_utf8(std::string & bytes);
