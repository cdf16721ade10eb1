// From the bytes of tokens to the text that is written: valid UTF-8, up to a stop string.
//
// A token may end in the middle of a character or of a stop string. Such bytes are held back until they are decided, so
// a reader never sees half a character nor a part of a stop string.
#pragma once

#include "util/word_finder.h"

#include <string>
#include <string_view>
#include <utility>

class text_stream {
  public:
    // returns_stop: the stop string that ends the text is part of it.
    explicit text_stream(word_finder_ptr stops = nullptr, bool returns_stop = false)
        : stops(std::move(stops)), returns_stop(returns_stop) {}

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
    bool                returns_stop;
    int32_t             state = 0;
    std::string         pending;              // bytes that may be the beginning of a stop string
    std::string         partial;              // an unfinished UTF-8 character
    const std::string * stop       = nullptr; // the stop string that ended the text
    size_t              n_released = 0;
};
