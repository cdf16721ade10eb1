#include "chat/history.h"

#include "util/indexed_json.h"

#include <algorithm>

using json = indexed_json;

static const char * const white_space = " \t\n\v\f\r";

static bool is_blank(const std::string & text) {
    return text.find_first_not_of(white_space) == std::string::npos;
}

static std::string trimmed(const std::string & text) {
    if (is_blank(text)) {
        return "";
    }
    const size_t begin = text.find_first_not_of(white_space);
    return text.substr(begin, text.find_last_not_of(white_space) + 1 - begin);
}

//
// calls
//

// The arguments of a call, as JSON text. Clients send back what a model wrote, which may be cut or no JSON at all.
static json readable_arguments(const json & given, bool as_object) {
    const std::string text = given.is_string() ? given.get<std::string>()
                             : given.is_null() ? ""
                                               : given.dump();
    if (is_blank(text) || text == "null") {
        return "{}";
    }
    if (!as_object || json::parse(text, nullptr, false).is_object()) {
        return given.is_object() ? given : json(text);
    }
    return json{{"arguments", text}}.dump(-1, ' ', false, json::error_handler_t::replace);
}

static void make_arguments_readable(json & message, bool as_object) {
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || !calls->is_array()) {
        return;
    }
    for (json & call : *calls) {
        if (call.is_object() && call.contains("function") && call["function"].is_object()) {
            json & function       = call["function"];
            function["arguments"] = readable_arguments(function.value("arguments", json()), as_object);
        }
    }
}

//
// the system's messages
//

static bool is_of(const json & message, std::initializer_list<const char *> roles) {
    const auto role = message.find("role");
    return role != message.end() && std::count(roles.begin(), roles.end(), *role) > 0;
}

static bool is_system(const json & message) {
    return is_of(message, {"system", "developer"});
}

// The texts of a message's content.
static std::vector<std::string> texts_of(const json & message) {
    const json content = message.value("content", json());
    if (content.is_string()) {
        return {content.get<std::string>()};
    }
    std::vector<std::string> texts;
    for (const json & part : content.is_array() ? content : json::array()) {
        if (part.is_object() && part.contains("text") && part["text"].is_string()) {
            texts.push_back(part["text"]);
        }
    }
    return texts;
}

static json joined(const json & one, const json & other, const char * role) {
    std::string text;
    for (const json * message : {&one, &other}) {
        for (const std::string & part : texts_of(*message)) {
            text += (text.empty() ? "" : "\n\n") + part;
        }
    }
    return {{"role", role}, {"content", text}};
}

static size_t n_leading(const json & list) {
    return std::find_if_not(list.begin(), list.end(), is_system) - list.begin();
}

// With the messages of the system at the beginning as one.
static json with_one_first(const json & list) {
    const size_t n    = n_leading(list);
    json         made = json::array();
    for (size_t i = 0; i < list.size(); i++) {
        if (i > 0 && i < n) {
            made[0] = joined(made[0], list[i], "system");
        } else {
            made.push_back(list[i]);
        }
    }
    return made;
}

// With the later messages of the system told by the user. Many templates take no two messages of the user in sequence.
static json with_user_telling(const json & list) {
    json made = json::array();
    bool told = false; // the last message is told
    for (size_t i = 0; i < list.size(); i++) {
        json       message = list[i];
        const bool is_told = i > 0 && is_system(message);
        if (is_told) {
            message["role"] = "user";
        }
        if ((told || is_told) && is_of(message, {"user"}) && is_of(made.back(), {"user"})) {
            made.back() = joined(made.back(), message, "user");
            told        = true;
        } else {
            made.push_back(message);
            told = is_told;
        }
    }
    return made;
}

static std::string text_of(const json & list) {
    return list.dump(-1, ' ', false, json::error_handler_t::replace);
}

chat_history read_history(const std::string & messages, bool object_arguments) {
    json       list      = json::parse(messages, nullptr, false);
    const auto is_object = [](const json & message) { return message.is_object(); };
    if (!list.is_array() || !std::all_of(list.begin(), list.end(), is_object)) {
        return {messages, "", {}}; // llama.cpp refuses them
    }
    for (json & message : list) {
        make_arguments_readable(message, object_arguments);
    }
    const size_t n       = n_leading(list);
    const bool   differs = std::any_of(list.begin(), list.begin() + n,
                                       [](const json & message) { return is_of(message, {"developer"}); });
    if (n > 1 && differs) {
        list = with_one_first(list);
    }
    chat_history history = {text_of(list), "", {}};
    for (const json & message : list) {
        const auto texts = is_system(message) ? texts_of(message) : std::vector<std::string>();
        history.of_system.insert(history.of_system.end(), texts.begin(), texts.end());
    }
    if (list.size() > 1 && std::any_of(list.begin() + 1, list.end(), is_system)) {
        history.told_by_user = text_of(with_user_telling(with_one_first(list)));
    }
    return history;
}

bool has_texts(const std::string & prompt, const std::vector<std::string> & texts) {
    return std::all_of(texts.begin(), texts.end(), [&](const std::string & text) {
        return prompt.find(trimmed(text)) != std::string::npos;
    });
}
