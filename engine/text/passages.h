// Where the k-th sentence or paragraph of a text ends. It knows the characters of many scripts, and the abbreviations of a
// few languages; nothing of tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

enum class passage_unit { sentences, paragraphs };

struct passage_limit {
    int32_t      n    = 0; // passages; 0: no limit
    passage_unit unit = passage_unit::sentences;

    const char * name() const { return unit == passage_unit::sentences ? "sentences" : "paragraphs"; }
};

// Reads a text byte by byte. A paragraph ends at a line break; lines without text count for nothing. A sentence ends
// behind its full stop and the quotes and brackets that close there, if what follows may begin another one; and before a
// blank line. So the end is known one character later, which is not part of the passage.
class passage_finder {
  public:
    explicit passage_finder(const passage_limit & limit = {}) : limit(limit) { now.line_is_new = true; }

    // True: the byte completes the character that shows that the last passage has ended, n_behind() bytes ago.
    bool next(char byte);
    // The bytes at the end of the text that are not part of the last passage, if it turns out that it has ended.
    size_t n_behind() const;
    // The text so far counts for nothing.
    void restart() { *this = passage_finder(limit); }
    // All passages are there; nothing more is read.
    bool                  ended() const { return limit.n > 0 && n_ended >= limit.n; }
    const passage_limit & asked() const { return limit; }

  private:
    // What is read of the passage that has begun.
    struct passage_state {
        bool     has_text    = false; // of a sentence: a letter or a digit
        uint32_t end         = 0;     // the last of its marks: . ? ! …
        int32_t  n_marks     = 0;     // sentence's ends that are the last thing that is no space: ?!
        bool     closed      = false; // a quote or bracket closes behind them
        size_t   n_spaces    = 0;     // bytes of spaces and line breaks at the end
        int32_t  n_breaks    = 0;     // line breaks among them
        uint32_t last_space  = 0;
        bool     in_word     = false; // the next letter belongs to the last word
        bool     is_quoted   = false; // « is open
        bool     line_is_new = false; // nothing stands behind the last line break
        bool     begins_line = false; // the last word does

        std::u32string word; // the last one, with the full stops in it
    };

    bool take(uint32_t c);
    void take_space(uint32_t c);
    void take_mark(uint32_t c);
    void take_closer();
    void take_plain(uint32_t c);
    bool closes(uint32_t c) const;
    bool is_over_before(uint32_t c) const;
    bool is_abbreviation(uint32_t following) const;
    void end_passage();

    passage_limit limit;
    int32_t       n_ended = 0;
    std::string   character;  // its bytes so far
    size_t        n_last = 0; // bytes of the character that showed the end
    passage_state now;
};
