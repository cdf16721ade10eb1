#include "protocol/prompt.h"

#include "protocol/values.h"

#include <algorithm>
#include <limits>

using json = nlohmann::json;

value_type text_or_parts() {
    const field_table part = {
        "prompt", "prompt.", {{"text", any_string(), true}, {"special", true_or_false()}}};
    return either(any_string(), list_of(object_with(part)));
}

const std::vector<field_row> & prompt_fields() {
    static const std::vector<field_row> rows = {{"prompt", text_or_parts()}, {"tokens", token_ids()}};
    return rows;
}

prompt_parts read_parts(const json & value) {
    if (value.is_string()) {
        return {{value.get<std::string>(), true}};
    }
    prompt_parts parts;
    for (const json & part : value) {
        parts.push_back({part["text"].get<std::string>(), part.value("special", false)});
    }
    return parts;
}

const std::vector<field_row> & limit_fields() {
    static const std::vector<field_row> rows = {
        {"truncate_prompt_tokens", integer_between(-1, std::numeric_limits<int32_t>::max())},
        {"truncation_side", one_of({"left", "right"})},
    };
    return rows;
}

prompt_limit read_limit(const json & body, const char * side) {
    if (body.contains("truncate_prompt_tokens") && body["truncate_prompt_tokens"] == 0) {
        invalid("truncate_prompt_tokens", "truncate_prompt_tokens is 0; it must be -1 or at least 1");
    }
    return {body.value("truncate_prompt_tokens", 0), body.value("truncation_side", side) == "right"};
}

int32_t cut_to(const prompt_limit & limit, std::vector<llama_token> & tokens, int32_t n_fitting,
               int32_t n_front, int32_t n_back) {
    const int32_t n_kept = limit.n_tokens < 0 ? n_fitting : limit.n_tokens;
    const int32_t n_cut  = (int32_t) tokens.size() - n_kept;
    if (limit.n_tokens == 0 || n_cut <= 0) {
        return 0;
    }
    n_back           = std::min(n_back, n_kept - 1);
    n_front          = std::min(n_front, n_kept - 1 - n_back);
    const auto begin = limit.first ? tokens.end() - n_back - n_cut : tokens.begin() + n_front;
    tokens.erase(begin, begin + n_cut);
    return n_cut;
}

//
// private tokens
//

private_texts::private_texts(const json & body, const command_facts & facts)
    : texts(body.value("private_tokens", std::vector<std::string>())), finder(texts) {
    for (const std::string & text : texts) {
        const auto ids = common_tokenize(facts.vocab, text, false, true);
        if (ids.size() == 1) {
            tokens.push_back(ids[0]);
        }
    }
    const bool rewinds = !llama_model_is_recurrent(facts.model) && !llama_model_is_hybrid(facts.model);
    if (!rewinds && tokens.size() < texts.size()) {
        invalid("private_tokens",
                "private_tokens has a text that is no token of the model; that is not possible "
                "with this model, since a recurrent state cannot be rewound");
    }
}

// A text may begin in one plain part and end in the next one.
void private_texts::check(const std::string & field, const prompt_parts & parts) const {
    int32_t state = 0;
    for (size_t i = 0; i < parts.size(); i++) {
        state = parts[i].special ? 0 : state;
        for (const char c : parts[i].special ? std::string() : parts[i].text) {
            state = finder.next(state, c);
            if (const std::string * word = finder.word(state)) {
                const std::string name = field + "[" + std::to_string(i) + "]";
                invalid(name, name + " has \"" + *word + "\", which is one of private_tokens");
            }
        }
    }
}

void private_texts::check_messages(const json & body) const {
    if (!texts.empty() && body.value("plain_content", false)) {
        const json & messages = body["messages"];
        check_private(finder, messages.is_string() ? messages.get<std::string>() : messages.dump());
    }
}

//
// prompts
//

// Whether the tokens begin with one space more than the text: SentencePiece puts one before it.
static bool has_front_space(const std::vector<llama_token> & tokens, const std::string & text,
                            const llama_vocab * vocab) {
    const size_t n_spaces = std::min(text.find_first_not_of(' '), text.size());
    std::string  bytes;
    for (size_t i = 0; i < tokens.size() && bytes.size() <= n_spaces; i++) {
        bytes += common_token_to_piece(vocab, tokens[i], true);
    }
    return bytes.find_first_not_of(' ') > n_spaces && bytes.size() > n_spaces;
}

void read_prompt(generate_command & request, const json & body, const prompt_parts * made,
                 const command_facts & facts) {
    const bool continues = request.continue_from.index >= 0;
    const bool is_cut = request.limit.n_tokens != 0; // and then checked, when it is known what it continues
    if (body.contains("prompt") && body.contains("tokens")) {
        invalid("prompt", "only one of prompt (text) and tokens (ids) may be given");
    }
    if (body.contains("tokens")) {
        request.prompt = read_tokens(body["tokens"], facts);
        request.exact  = true;
    } else if (made || body.contains("prompt") || !continues) {
        if (!made && !body.contains("prompt")) {
            read_string("prompt", body); // throws
        }
        const prompt_parts parts = made ? *made : read_parts(body["prompt"]);
        const std::string  text  = joined_text(parts);
        // a text that is too long at any number of bytes a token is not tokenized
        check_prompt_length(is_cut ? 0 : (int64_t) (text.size() / facts.n_piece_max), facts, true);
        const auto plain = tokenize_parts(parts, facts.vocab, false);
        request.prompt   = !continues ? tokenize_parts(parts, facts.vocab, true)
                           : made     ? tokenize_behind(parts, facts.vocab)
                                      : plain;
        if (!llama_vocab_get_add_eos(facts.vocab)) {
            request.n_bos       = (int32_t) (request.prompt.size() - plain.size());
            request.front_space = !continues && has_front_space(plain, text, facts.vocab);
        }
        if (!continues && body.value("echo", false)) {
            request.text = text;
        }
    }
    if (request.prompt.empty() && !continues) {
        invalid("prompt", "the prompt is empty, and the model has no token to begin with");
    }
    check_prompt_length(is_cut ? 0 : (int64_t) request.prompt.size(), facts);
}
