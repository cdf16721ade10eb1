#include "grammar/structure.h"

#include "grammar/gbnf.h"
#include "grammar/json_schema.h"
#include "grammar/regex.h"
#include "util/json.h"

#include <algorithm>

using json = nlohmann::json;

static const size_t n_max_text    = 64 << 10; // bytes of a grammar, expression, of all choices
static const size_t n_max_schema  = 1 << 20;  // bytes
static const size_t n_max_chat    = 1 << 20;  // bytes of the grammar of a chat
static const size_t n_max_choices = 1024;
static const size_t n_known_max   = 16; // grammars in the cache

const std::vector<field_row> & structure_fields() {
    static const std::vector<field_row> rows = {
        {"grammar", any_string()},
        {"json_schema", either(any_string(), any_object())},
        {"regex", any_string()},
        {"choice", list_of(string_of(1, n_max_text), 1, n_max_choices)},
    };
    return rows;
}

static grammar_rules read_choices(const std::string & text) {
    grammar_rules rules;
    rules.add_rule(0);
    for (const json & choice : json::parse(text)) {
        grammar_rules::sequence out;
        rules.append_text(out, choice.get<std::string>());
        rules.add_alternative(0, out);
    }
    return rules;
}

// A grammar with the schema in the place of its mark.
static grammar_rules read_chat_grammar(const std::string & text, const llama_vocab * vocab,
                                       const chat_schema & schema) {
    const std::string  mark = "\"" + std::string(schema_mark) + "\"";
    const literal_hook hook = [&](grammar_rules & rules, const std::string & literal) {
        return literal == mark ? std::optional(rules.append(read_json_schema(schema.text, schema.given)))
                               : std::nullopt;
    };
    return read_gbnf(notation_text("grammar", text), vocab, schema.text.empty() ? literal_hook() : hook);
}

static grammar_rules read_rules(const std::string & name, const std::string & text, const llama_vocab * vocab,
                                const chat_schema & schema) {
    if (name == "grammar") {
        return read_chat_grammar(text, vocab, schema);
    }
    if (name == "regex") {
        grammar_rules rules;
        read_regex(rules, text); // its first rule is the root
        return rules;
    }
    return name == "choice" ? read_choices(text) : read_json_schema(text, schema.given);
}

// The field as text: the key of its grammar.
static std::string text_of(const json & value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
}

std::shared_ptr<grammar> structure_cache::make(const std::string & name, const std::string & text,
                                               const vocabulary_ptr & with, const chat_schema & schema) {
    try {
        grammar_rules rules = read_rules(name, text, vocabulary->vocab, schema);
        return std::make_shared<grammar>(std::move(rules), with);
    } catch (const grammar_error & e) {
        invalid(name, name + ": line 1, column 1: " + e.what());
    }
}

std::shared_ptr<grammar> structure_cache::find(const json & fields, const schema::options & given_options) {
    std::vector<std::string> given;
    for (const field_row & row : structure_fields()) {
        if (fields.contains(row.name)) {
            given.push_back(row.name);
        }
    }
    if (given.empty()) {
        return nullptr;
    }
    if (given.size() > 1) {
        invalid(given[1], "only one of " + given[0] + " and " + given[1] + " may be given");
    }
    const std::string & name  = given[0];
    const std::string   text  = text_of(fields[name]);
    const size_t        n_max = name == "json_schema" ? n_max_schema : n_max_text;
    if (text.size() > n_max) {
        invalid(name, name + " has " + std::to_string(text.size()) + " bytes; it may have " +
                          std::to_string(n_max));
    }
    return find(name, text, name + " " + key_of(given_options) + " " + text, vocabulary, {"", given_options});
}

std::shared_ptr<grammar> structure_cache::find_chat(const std::string &           text,
                                                    const std::set<llama_token> & shown,
                                                    const chat_schema &           schema) {
    if (schema.text.size() > n_max_schema) {
        invalid("json_schema", "json_schema has " + std::to_string(schema.text.size()) +
                                   " bytes; it may have " + std::to_string(n_max_schema));
    }
    if (text.size() > n_max_chat) {
        invalid("tools", "tools are converted to a grammar of " + std::to_string(text.size()) +
                             " bytes; it may have " + std::to_string(n_max_chat));
    }
    vocabulary_ptr with;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        vocabulary_ptr &                  chat_vocabulary = chat_vocabularies[shown];
        if (!chat_vocabulary) {
            chat_vocabulary = std::make_shared<token_tree>(vocabulary->vocab, shown);
        }
        with = chat_vocabulary;
    }
    std::string key = "chat";
    for (llama_token token : shown) {
        key += " " + std::to_string(token);
    }
    return find("grammar", text, key + "\n" + key_of(schema.given) + schema.text + "\n" + text, with, schema);
}

std::shared_ptr<grammar> structure_cache::find(const std::string & name, const std::string & text,
                                               const std::string & key, const vocabulary_ptr & with,
                                               const chat_schema & schema) {
    const auto find_entry = [&] {
        return std::find_if(known.begin(), known.end(), [&](const auto & e) { return e.first == key; });
    };
    std::unique_lock<std::mutex> lock(mutex);
    auto                         entry = find_entry();
    if (entry == known.end()) {
        lock.unlock(); // other threads need not wait for this grammar
        auto made = make(name, text, with, schema);
        lock.lock();
        known.emplace_front(key, std::move(made));
    } else {
        known.splice(known.begin(), known, entry);
    }
    const auto found = known.front().second;
    known.resize(std::min(known.size(), n_known_max));
    return found;
}
