#include "grammar/structure.h"

#include "grammar/embedded.h"
#include "grammar/gbnf.h"
#include "grammar/json_schema.h"
#include "grammar/lark/lark.h"
#include "grammar/regex.h"
#include "grammar/structural_tag.h"
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
        {"structural_tag", either(any_string(), any_object())},
    };
    return rows;
}

static bool is_json(const std::string & name) {
    return name == "json_schema" || name == "structural_tag";
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

std::string tool_mark(size_t i) {
    return "{tool-schema-" + std::to_string(i) + "}";
}

// A grammar with schemas in the places of their marks.
static grammar_rules read_chat_grammar(const std::string & text, const llama_vocab * vocab,
                                       const chat_schemas & schemas, const schema::options & given,
                                       std::vector<std::string> & warnings) {
    std::map<std::string, const tool_schema *> tools; // by mark
    for (size_t i = 0; i < schemas.tools.size(); i++) {
        tools[tool_mark(i)] = &schemas.tools[i];
    }
    const std::string                      mark = "\"" + std::string(schema_mark) + "\"";
    std::map<std::string, grammar_element> made;
    work_budget                            budget;
    const literal_hook                     hook = [&](grammar_rules & rules, const std::string & literal) {
        const auto tool  = tools.find(literal);
        const bool is_it = tool != tools.end() || (literal == mark && !schemas.answer.empty());
        if (is_it && made.count(literal) == 0) {
            made[literal] =
                rules.append(tool != tools.end() ? read_tool_schema(*tool->second, given, budget, warnings)
                                                 : read_json_schema(schemas.answer, given, warnings));
        }
        return is_it ? std::optional(made[literal]) : std::nullopt;
    };
    return read_gbnf(notation_text("grammar", text), vocab, hook);
}

grammar_rules structure_cache::read(const source & from, const llama_vocab * vocab,
                                    std::vector<std::string> & warnings) {
    if (from.name == "structural_tag" || (from.name == "grammar" && is_lark(from.text))) {
        embedded_schemas schemas(from.given);
        grammar_rules    rules = from.name == "grammar"
                                     ? read_lark(notation_text("grammar", from.text), vocab, schemas)
                                     : read_structural_tag(from.text, vocab, schemas);
        add_warnings(from.name, schemas.warnings, warnings);
        return rules;
    }
    if (from.name == "grammar") {
        return read_chat_grammar(from.text, vocab, from.schemas, from.given, warnings);
    }
    if (from.name == "regex") {
        grammar_rules rules;
        read_regex(rules, notation_text("regex", from.text)); // its first rule is the root
        return rules;
    }
    return from.name == "choice" ? read_choices(from.text)
                                 : read_json_schema(from.text, from.given, warnings);
}

// The field as text: the key of its grammar.
static std::string text_of(const json & value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
}

found_structure structure_cache::make(const source & from, const vocabulary_ptr & with) {
    try {
        found_structure out;
        grammar_rules   rules = read(from, vocabulary->vocab, out.warnings);
        out.rules             = std::make_shared<grammar>(std::move(rules), with);
        return out;
    } catch (const grammar_error & e) {
        invalid(from.name, from.name + (is_json(from.name) ? ": " : ": line 1, column 1: ") + e.what());
    }
}

found_structure structure_cache::find(const json & fields, const schema::options & given_options) {
    std::vector<std::string> given;
    for (const field_row & row : structure_fields()) {
        if (fields.contains(row.name)) {
            given.push_back(row.name);
        }
    }
    if (given.empty()) {
        return {};
    }
    if (given.size() > 1) {
        invalid(given[1], "only one of " + given[0] + " and " + given[1] + " may be given");
    }
    const std::string & name  = given[0];
    const std::string   text  = text_of(fields[name]);
    const size_t        n_max = is_json(name) ? n_max_schema : n_max_text;
    if (text.size() > n_max) {
        invalid(name, name + " has " + std::to_string(text.size()) + " bytes; it may have " +
                          std::to_string(n_max));
    }
    return find({name, text, given_options, {}}, name + " " + key_of(given_options) + " " + text, vocabulary);
}

// All that a schema of a tool is made of, but for its document where the one before has the same.
static std::string key_of(const tool_schema & tool, const tool_schema * before) {
    const schema::call_schema & call    = tool.call;
    const bool                  is_same = before != nullptr && before->call.document == call.document;
    std::string                 key     = tool.name + std::to_string(tool.strict) + call.path + "\n" +
                                          (is_same ? "" : *call.document) + "\n" + call.part;
    if (call.form) {
        const schema::call_form & f = *call.form;
        for (const std::string & part : {f.before, f.after, f.close, f.after_text, f.separator, f.quote}) {
            key += "\n" + part;
        }
        key += std::to_string(f.space) + std::to_string(f.cdata) + std::to_string(f.at_least_one);
        for (const auto & m : f.members) {
            key += "\n" + m.name + std::to_string(m.required) + std::to_string(m.written);
        }
    }
    return key;
}

found_structure structure_cache::find_chat(const std::string & text, const std::set<llama_token> & shown,
                                           const chat_schemas & schemas, const schema::options & given) {
    if (schemas.answer.size() > n_max_schema) {
        invalid("json_schema", "json_schema has " + std::to_string(schemas.answer.size()) +
                                   " bytes; it may have " + std::to_string(n_max_schema));
    }
    std::string of_tools;
    for (size_t i = 0; i < schemas.tools.size() && of_tools.size() <= n_max_chat; i++) {
        of_tools += key_of(schemas.tools[i], i > 0 ? &schemas.tools[i - 1] : nullptr) + "\n";
    }
    const size_t n_bytes = std::max(text.size(), of_tools.size());
    if (n_bytes > n_max_chat) {
        invalid("tools", "tools are converted to a grammar of " + std::to_string(n_bytes) +
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
    static const std::string name = "grammar";
    return find({name, text, given, schemas},
                key + "\n" + key_of(given) + schemas.answer + "\n" + of_tools + "\n" + text, with);
}

found_structure structure_cache::find(const source & from, const std::string & key,
                                      const vocabulary_ptr & with) {
    const auto find_entry = [&] {
        return std::find_if(known.begin(), known.end(), [&](const auto & e) { return e.first == key; });
    };
    std::unique_lock<std::mutex> lock(mutex);
    auto                         entry = find_entry();
    if (entry == known.end()) {
        lock.unlock(); // other threads need not wait for this grammar
        auto made = make(from, with);
        lock.lock();
        known.emplace_front(key, std::move(made));
    } else {
        known.splice(known.begin(), known, entry);
    }
    const found_structure found = known.front().second;
    known.resize(std::min(known.size(), n_known_max));
    return found;
}
