// The text of one sequence on its way out: token pieces become valid UTF-8, stop strings are cut off.
//
// Pieces are bytes: a token may end in the middle of a character or of a stop string. What is not yet
// decided is held back, so that a reader never sees half a character nor any part of a stop string.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

// Looks for many words at once, a byte at a time (Aho and Corasick 1975): a byte costs the same however many
// and long they are. Any number of texts share one; each keeps its own state, which is 0 at its beginning.
class word_finder {
  public:
    explicit word_finder(const std::vector<std::string> & words = {});

    int32_t next(int32_t state, char byte) const;

    // The longest end of the bytes so far that is the beginning of a word, in bytes.
    size_t n_begun(int32_t state) const { return nodes[(size_t) state].depth; }
    // The longest word that the bytes so far end in; nullptr: none.
    const std::string * word(int32_t state) const {
        const int32_t found = nodes[(size_t) state].word;
        return found < 0 ? nullptr : &words[(size_t) found];
    }
    bool empty() const { return words.empty(); }

  private:
    struct node {
        int32_t  shorter = 0;  // the state of the next shorter end that begins a word
        int32_t  word    = -1; // the longest that ends here
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
    std::vector<edge>        edges; // those of a node together, by byte
};

using word_finder_ptr = std::shared_ptr<const word_finder>; // nullptr: no word is looked for

class text_stream {
  public:
    explicit text_stream(word_finder_ptr stops = nullptr) : stops(std::move(stops)) {}

    // Takes the bytes of one token and returns the text that is decided by now. The stop string that is
    // complete first ends the text (of those complete at one byte, the longest); with may_stop = false the
    // bytes can neither complete nor begin one.
    std::string feed(std::string_view piece, bool may_stop = true);

    // The end of the sequence: everything that was held back, an unfinished character as U+FFFD.
    std::string finish();

    size_t              n_out() const { return n_released; } // bytes of the tokens whose text is out
    bool                decided() const { return pending.empty() && partial.empty(); } // nothing is held back
    bool                stopped() const { return stop; }
    const std::string & stop_text() const { return *stop; } // only when stopped()

  private:
    word_finder_ptr     stops;
    int32_t             state = 0;
    std::string         pending;              // bytes that may still become part of a stop string
    std::string         partial;              // an unfinished UTF-8 character
    const std::string * stop       = nullptr; // that ended the text
    size_t              n_released = 0;
};

// Banned phrases: finds one as soon as the tokens of a sequence complete it, whatever the case of its ASCII
// letters, and holds back the text of tokens that may still turn out to be the beginning of one.
class phrase_guard {
  public:
    explicit phrase_guard(word_finder_ptr phrases = nullptr) : phrases(std::move(phrases)) {} // in lower case

    // Takes the bytes of one token. 0: no phrase is complete. k: one is, and begins in the k-th last token;
    // the guard has forgotten these k tokens, and the sequence must as well.
    size_t feed(std::string_view piece);

    // The text of tokens that no phrase can begin in any more.
    std::string take_clear();
    // At the end of the sequence: all text.
    std::string finish();

    bool   active() const { return phrases != nullptr; }
    size_t n_held() const { return starts.size(); } // tokens whose text is held back

  private:
    size_t n_clear() const; // tokens from the first on that are held no longer

    word_finder_ptr      phrases;
    std::string          held;      // bytes of the tokens
    std::vector<size_t>  starts;    // where each token begins in them
    std::vector<int32_t> states;    // before each token
    int32_t              state = 0; // behind the last one
};

std::string ascii_lower(std::string_view text);

// Moves whole characters from the front of `bytes` into the result, invalid bytes as U+FFFD (one for each
// maximal broken part, as Unicode 15 §3.9 recommends); an unfinished character at the end stays in `bytes`.
std::string take_utf8(std::string & bytes);
