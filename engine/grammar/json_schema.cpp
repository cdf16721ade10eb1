#include "grammar/json_schema.h"

#include "grammar/gbnf.h"
#include "grammar/regex.h"
#include "util/json.h"
#include "util/sandbox.h"

#include "json-schema-to-grammar.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

static const int          n_max_depth  = 64; // levels of a schema
static const char * const pattern_mark = "structure-pattern-";

// A schema without its patterns: llama.cpp's converter supports few regular expressions, and compares them with the
// JSON text of a string, not with the string. A mark with a number stands in the place of each pattern.
struct marked_schema {
    std::string              text;
    std::vector<std::string> patterns;
};

static marked_schema take_patterns(const std::string & schema) {
    marked_schema marked;
    bool          is_pattern = false; // the next value
    const auto    replace    = [&](int depth, nlohmann::ordered_json::parse_event_t event,
                                   nlohmann::ordered_json & value) {
        using event_t = nlohmann::ordered_json::parse_event_t;
        if (depth > n_max_depth) {
            invalid("json_schema",
                    "json_schema is nested more than " + std::to_string(n_max_depth) + " levels deep");
        }
        if (std::exchange(is_pattern, event == event_t::key && value == "pattern") && value.is_string() &&
            event == event_t::value) {
            marked.patterns.push_back(value.get<std::string>());
            value = std::string("^") + pattern_mark + std::to_string(marked.patterns.size() - 1) + "$";
        }
        return true;
    };
    try {
        marked.text = nlohmann::ordered_json::parse(schema, replace).dump();
    } catch (const nlohmann::json::exception & e) {
        invalid("json_schema", std::string("json_schema: ") + e.what());
    }
    return marked;
}

// The grammar of a schema. The converter needs unbounded time and memory for some schemas, and circular references
// overflow its stack.
static std::string convert(const std::string & schema) {
    const auto work = [&schema]() -> std::string {
        try {
            return json_schema_to_grammar(common_json::parse(schema), true);
        } catch (const std::exception & e) {
            return std::string("\0", 1) + e.what();
        }
    };
    std::string  output; // warnings, \0, then the grammar, or \0 and an error
    const bool   done = run_in_sandbox(work, n_max_converted, output);
    const size_t mark = output.find('\0');
    if (!done || mark == std::string::npos) {
        invalid("json_schema", "json_schema is too large: its conversion to a grammar takes more than " +
                                   std::to_string(t_sandbox_ms / 1000) + " seconds or " +
                                   std::to_string(n_max_converted) + " bytes, or has no bound");
    }
    const std::string grammar = output.substr(mark + 1);
    if (mark > 0 || grammar.empty() || grammar[0] == '\0') { // after a warning the grammar would allow more
        std::string message =
            mark > 0 ? output.substr(0, mark) : grammar.substr(std::min<size_t>(1, grammar.size()));
        std::replace(message.begin(), message.end(), '\n', ' ');
        invalid("json_schema", "json_schema: " + message);
    }
    return grammar;
}

// The pattern that a literal text is the mark of; nullptr: the text has no mark.
static const std::string * find_pattern(const std::vector<std::string> & patterns,
                                        const std::string &              literal) {
    if (patterns.empty() || literal.find(pattern_mark) == std::string::npos) {
        return nullptr;
    }
    const std::string mark   = pattern_mark;
    const std::string digits = literal.compare(0, mark.size(), mark) == 0 ? literal.substr(mark.size()) : "";
    const size_t      number = strtoul(digits.c_str(), nullptr, 10);
    if (number >= patterns.size() || digits != std::to_string(number)) {
        invalid("json_schema", "json_schema: a pattern is not supported at its place in the schema");
    }
    return &patterns[number];
}

grammar_rules read_json_schema(const std::string & schema, const llama_vocab * vocab) {
    const marked_schema marked = take_patterns(schema);
    const literal_hook  hook   = [&](grammar_rules & rules, const std::string & literal) {
        const std::string * pattern = find_pattern(marked.patterns, literal);
        return pattern ? std::optional(read_schema_pattern(rules, *pattern)) : std::nullopt;
    };
    return read_gbnf(notation_text("json_schema", convert(marked.text), ", as a grammar"), vocab, hook);
}
