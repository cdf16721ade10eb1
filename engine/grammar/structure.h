// The fields of a request that say what its texts may be: a grammar (GBNF or Lark), a JSON schema, a regular expression,
// a list of choices, a structural tag. Each becomes a grammar, or an error with line and column.
#pragma once

#include "grammar/grammar.h"
#include "grammar/json_schema.h"
#include "util/fields.h"

#include <nlohmann/json.hpp>

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

// The fields that name a grammar, one row for each notation.
const std::vector<field_row> & structure_fields();

// A grammar, and what of its schemas is left out, or not known. nullptr: there is none.
struct found_structure {
    std::shared_ptr<grammar> rules;
    std::vector<std::string> warnings;
};

// A template's grammar has this text as a JSON string where the schema of the answer belongs, and tool_mark(i) where
// the schema of a tool does.
constexpr const char * schema_mark = "schema-of-the-answer";
std::string            tool_mark(size_t i);

struct chat_schemas {
    std::string              answer; // empty: there is none
    std::vector<tool_schema> tools;
};

// The most recently used grammars by their text. Any thread may call.
class structure_cache {
  public:
    explicit structure_cache(const llama_vocab * vocab) : vocabulary(std::make_shared<token_tree>(vocab)) {}

    // The grammar of a command whose fields have been checked; at most one of the structure fields may be given.
    // Throws command_error.
    found_structure find(const nlohmann::json & fields, const schema::options & given);

    // The texts of all tokens, as a tree that is made.
    std::shared_ptr<token_tree> texts() const {
        vocabulary->part_with(0);
        return vocabulary;
    }

    // The grammar of a chat. shown: control tokens whose text is part of the answer.
    found_structure find_chat(const std::string & text, const std::set<llama_token> & shown,
                              const chat_schemas & schemas, const schema::options & given);

  private:
    using vocabulary_ptr = std::shared_ptr<token_tree>;

    // What a structure is made of.
    struct source {
        const std::string &     name, &text;
        const schema::options & given;
        const chat_schemas &    schemas;
    };
    found_structure      find(const source & from, const std::string & key, const vocabulary_ptr & with);
    found_structure      make(const source & from, const vocabulary_ptr & with);
    static grammar_rules read(const source & from, const llama_vocab * vocab,
                              std::vector<std::string> & warnings);

    const vocabulary_ptr                               vocabulary;
    std::mutex                                         mutex;             // of all below
    std::map<std::set<llama_token>, vocabulary_ptr>    chat_vocabularies; // few: a model's templates need few
    std::list<std::pair<std::string, found_structure>> known;             // by key, most recently used first
};
