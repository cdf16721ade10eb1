// Answer -> message, by the parser that a chat template comes with (llama.cpp's common/chat).
#pragma once

#include "chat/chat.h"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct common_chat_msg; // llama.cpp's

// The part that a piece of text adds to a message.
struct chat_delta {
    std::string content, reasoning;
    std::string tool_calls; // empty, or JSON: [{"index", "id", "name", "arguments"}]; id and name once a call

    bool empty() const { return content.empty() && reasoning.empty() && tool_calls.empty(); }
};

// The answer of one sequence while it is generated.
class chat_message {
  public:
    // seed: the ids of tool calls are hashes of it, so it must differ between sequences.
    chat_message(std::shared_ptr<const chat_format> format, std::string seed);

    // last: the text ends with this piece.
    chat_delta feed(std::string_view text, bool last);

    // Whether the text so far ends amid the answer's thoughts, as far as its tags say.
    bool in_thoughts() const { return !thought && begun; }

    // The same, once the client has got some of them.
    bool is_thinking() const { return !reasoning.empty() && !thought && content.empty() && calls.empty(); }

  private:
    chat_delta  read(bool last);
    std::string take_calls(const common_chat_msg & now, bool last);

    std::shared_ptr<const chat_format> format;
    std::string                        seed;
    std::string                        text;
    std::string                        content, reasoning; // the parts that were returned already
    std::vector<std::string>           calls;      // by call: the arguments that were returned already
    size_t                             n_read = 0; // bytes of text at the last parse
    bool begun   = false; // the text, or the prompt's end, has a beginning of thoughts
    bool thought = false; // the text has an end of them
};
