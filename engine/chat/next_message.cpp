#include "chat/next_message.h"

#include "util/json.h"

using json = nlohmann::ordered_json;

static json messages_of(const nlohmann::json & fields) {
    const nlohmann::json & given = fields["messages"];
    return json::parse(given.is_string() ? given.get<std::string>() : given.dump());
}

// Those behind the last message of the assistant.
static json new_messages(const json & messages) {
    json list = json::array();
    for (const json & message : messages) {
        if (message.is_object() && message.value("role", "") == "assistant") {
            list.clear();
        } else {
            list.push_back(message);
        }
    }
    if (list.empty()) {
        invalid("messages",
                "messages has no message behind the last one of the assistant; with continue there must "
                "be one, since the answer that it names stands before them");
    }
    return list;
}

// A text that the messages do not have: its place in the prompt is that of the answer.
static std::string mark_for(const json & messages) {
    const std::string text = messages.dump(-1, ' ', false, json::error_handler_t::replace);
    std::string       mark = "qzanswerqz";
    while (text.find(mark) != std::string::npos) {
        mark += std::to_string(mark.size());
    }
    return mark;
}

static prompt_parts parts_behind(const prompt_parts & parts, const std::string & mark) {
    size_t n_out = joined_text(parts).rfind(mark);
    if (n_out == std::string::npos) {
        invalid("continue",
                "continue is not possible with this chat template: it does not write the text of the "
                "message before the last one");
    }
    n_out += mark.size();
    prompt_parts rest;
    for (const prompt_part & part : parts) {
        const size_t n = std::min(n_out, part.text.size());
        n_out -= n;
        rest.push_back({part.text.substr(n), part.special});
    }
    return rest;
}

chat_prompt prompt_behind_answer(chat_templates & templates, const nlohmann::json & fields) {
    if (fields.value("continue_final_message", false)) {
        invalid("continue_final_message", "only one of continue and continue_final_message may be given");
    }
    const json        added = new_messages(messages_of(fields));
    const std::string mark  = mark_for(added);
    json messages = {{{"role", "user"}, {"content", "?"}}, {{"role", "assistant"}, {"content", mark}}};
    messages.insert(messages.end(), added.begin(), added.end());
    nlohmann::json whole = fields;
    whole["messages"]    = messages.dump(-1, ' ', false, json::error_handler_t::replace);
    chat_prompt prompt   = templates.apply(whole);
    prompt.parts         = parts_behind(prompt.parts, mark);
    return prompt;
}
