#include "chat/message.h"

#include "util/utf8.h"

#include <chat.h> // llama.cpp's common/chat.h
#include <hash/xxhash/xxhash.h>
#include <log.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

using json = nlohmann::json;

static const size_t n_parts = 256; // a text is parsed again after it has grown by 1/256

// The part of `now` after `returned`, which is updated; empty while `now` does not begin with `returned`.
static std::string take_rest(std::string & returned, const std::string & now) {
    if (now.size() <= returned.size() || now.compare(0, returned.size(), returned) != 0) {
        return "";
    }
    std::string       bytes = now.substr(returned.size());
    const std::string rest  = take_utf8(bytes);
    returned                = now.substr(0, now.size() - bytes.size());
    return rest;
}

// 9 letters and digits: the templates of Mistral's models accept no other ids.
static std::string id_of(const std::string & seed, size_t i) {
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint64_t          hash     = XXH64(seed.data(), seed.size(), i);
    std::string       id;
    for (; id.size() < 9; hash /= 62) {
        id += digits[hash % 62];
    }
    return id;
}

chat_message::chat_message(std::shared_ptr<const chat_format> chat, std::string seed)
    : format(std::move(chat)), seed(std::move(seed)), begun(format->start.thinks) {
    if (format->parser->is_continuation) {
        read(false); // the client knows the part of the message that is in the prompt
    }
}

// A parse reads the whole text, so a long text is not parsed for every token.
chat_delta chat_message::feed(std::string_view piece, bool last) {
    const size_t n_before = text.size();
    text += piece;
    const std::string & tag = format->start.thinking_start;
    const size_t        at  = begun || tag.empty() ? text.npos : text.find_first_not_of(" \t\r\n");
    begun                   = begun || (at != text.npos && text.compare(at, tag.size(), tag) == 0);
    for (const std::string & end : format->start.thinking_ends) {
        thought = thought || text.find(end, n_before - std::min(n_before, end.size())) != std::string::npos;
    }
    if (!last && (piece.empty() || (text.size() - n_read) * n_parts < text.size())) {
        return {};
    }
    n_read = text.size();
    return read(last);
}

// False: the text is neither a message of this format nor the beginning of one.
static bool parse(const std::string & text, bool is_partial, const common_chat_parser_params & parser,
                  common_chat_msg & message) {
    const int verbosity = common_log_get_verbosity_thold();
    common_log_set_verbosity_thold(LOG_LEVEL_ERROR); // it would log the text
    bool fits = true;
    try {
        message = common_chat_parse(text, is_partial, parser);
    } catch (const std::exception &) {
        fits = false;
    }
    common_log_set_verbosity_thold(verbosity);
    return fits;
}

chat_delta chat_message::read(bool last) {
    common_chat_msg now;
    chat_delta      delta;
    const bool      fits = parse(text, !last, *format->parser, now);
    if (last && !fits) {
        parse(text, true, *format->parser, now);
    }
    if (last && !fits && now.empty() && content.empty() && reasoning.empty() && calls.empty()) {
        delta.content = text; // an answer that cannot be parsed is returned as it is
        return delta;
    }
    delta.reasoning  = take_rest(reasoning, now.reasoning_content);
    delta.content    = take_rest(content, now.content);
    delta.tool_calls = take_calls(now, last);
    return delta;
}

// The name of the last call may become longer until its arguments begin.
std::string chat_message::take_calls(const common_chat_msg & now, bool last) {
    json returned = json::array();
    for (size_t i = 0; i < now.tool_calls.size(); i++) {
        const common_chat_tool_call & tool  = now.tool_calls[i];
        const bool                    known = i < calls.size();
        if (!known && !last && tool.arguments.empty() && i + 1 == now.tool_calls.size()) {
            break;
        }
        calls.resize(std::max(calls.size(), i + 1));
        json piece = {{"index", i}, {"arguments", take_rest(calls[i], tool.arguments)}};
        if (!known) {
            piece["id"]   = tool.id.empty() ? id_of(seed, i) : tool.id;
            piece["name"] = tool.name;
        }
        if (!known || !piece["arguments"].get_ref<const std::string &>().empty()) {
            returned.push_back(std::move(piece));
        }
    }
    return returned.empty() ? "" : returned.dump(-1, ' ', false, json::error_handler_t::replace);
}
