// From the bytes of tokens to the text that is written: valid UTF-8, up to a stop string or the end of a passage.
//
// A token may end in the middle of a character or of a stop string, or behind a sentence that may go on. Such bytes are held back until they are decided, so
// a reader never sees half a character nor a part of a stop string.
#pragma once

#include "text/passages.h"
#include "util/word_finder.h"

#include <string>
#include <string_view>
#include <utility>

class stop_matcher {
  public:
    // returns_stop: the stop string that ends the text is part of it.
    explicit stop_matcher(word_finder_ptr stops = nullptr, bool returns_stop = false,
                          const passage_limit & limit = {})
        : stops(std::move(stops)), returns_stop(returns_stop), passages(limit) {}

    // Takes the bytes of one token and returns the text that is decided now. The first complete stop string ends the
    // text (of several that end at one byte, the longest), and so does the last passage of the limit. With may_stop =
    // false these bytes are no part of a stop string, and count for no passage.
    std::string feed(std::string_view piece, bool may_stop = true);

    // At the end of the sequence: the text that was held back, with U+FFFD for an unfinished character.
    std::string finish();

    size_t n_out() const { return n_released; } // bytes of the tokens whose text has been returned
    bool   decided() const { return pending.empty() && partial.empty(); } // no text is held back
    bool   stopped() const { return stop || passages.ended(); }
    // What ended the text; nullptr: the other one, or none has.
    const std::string * stop_text() const { return stop; }
    const char *        passage() const { return passages.ended() ? passages.asked().name() : nullptr; }

  private:
    bool ends_at(size_t place); // takes a byte of `pending`, and removes what stands behind the text

    word_finder_ptr     stops;
    bool                returns_stop;
    int32_t             state = 0;
    std::string         pending;              // bytes that may be no part of the text
    std::string         partial;              // an unfinished UTF-8 character
    const std::string * stop       = nullptr; // the stop string that ended the text
    size_t              n_released = 0;
    passage_finder      passages;
};
