// JSON schemas → rules over bytes. docs/structure.md has the keywords.
#pragma once

#include "grammar/rules.h"
#include "grammar/schema/shape.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace schema {

struct compiled {
    grammar_rules            rules; // rule 0 is a value
    std::vector<std::string> warnings;
};

// How the arguments of a call are written where that is no JSON: as a list of members, or, with `quote`, as an object of
// Gemma's notation.
struct call_form {
    enum value { json, text, mixed }; // mixed: a text that reads as JSON of one of `types` is JSON

    struct member {
        std::string           name;
        bool                  required = false; // those that are come first, in their order
        value                 written  = json;
        std::set<std::string> types;
    };
    std::string         before, after, close; // of a member: around its name, and behind its value
    std::string         after_text;           // in place of `after` before a text
    std::string         separator;            // between members
    std::string         quote;                // around strings, in an object whose names have none
    bool                space        = false; // there may be white space between members
    bool                cdata        = false; // a text may stand in <![CDATA[ ]]>
    bool                at_least_one = false; // member
    std::vector<member> members;              // all that can be read
};

// The arguments of a call, or a part of them.
struct call_schema {
    std::shared_ptr<const std::string> document; // many parts may share it
    std::string              part, path; // a schema within the document; empty: the document is an object
    std::optional<call_form> form;       // nullopt: JSON
};

// All throw refusal, or grammar_error where the schema is too large. The budget is that of several schemas.
compiled compile(const std::string & text, const options & given, work_budget & budget);
compiled compile(const std::string & text, const options & given);
compiled compile(const call_schema & call, const options & given, work_budget & budget);

} // namespace schema
