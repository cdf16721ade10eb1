// The fields of a request that say what its texts may be: a grammar (GBNF), a JSON schema, a regular expression, a list
// of choices. Each becomes a grammar, or an error with line and column.
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

// A template's grammar has this text as a JSON string where the schema of the answer belongs.
constexpr const char * schema_mark = "schema-of-the-answer";

struct chat_schema {
    std::string     text; // empty: there is none
    schema::options given;
};

// The most recently used grammars by their text. Any thread may call.
class structure_cache {
  public:
    explicit structure_cache(const llama_vocab * vocab) : vocabulary(std::make_shared<token_tree>(vocab)) {}

    // The grammar of a command whose fields have been checked; at most one of the structure fields may be given.
    // nullptr: none is. Throws command_error.
    std::shared_ptr<grammar> find(const nlohmann::json & fields, const schema::options & given);

    // The texts of all tokens, as a tree that is made.
    std::shared_ptr<token_tree> texts() const {
        vocabulary->nodes();
        return vocabulary;
    }

    // The grammar of a chat. shown: control tokens whose text is part of the answer.
    std::shared_ptr<grammar> find_chat(const std::string & text, const std::set<llama_token> & shown,
                                       const chat_schema & schema);

  private:
    using vocabulary_ptr = std::shared_ptr<token_tree>;

    std::shared_ptr<grammar> find(const std::string & name, const std::string & text, const std::string & key,
                                  const vocabulary_ptr & with, const chat_schema & schema);
    std::shared_ptr<grammar> make(const std::string & name, const std::string & text,
                                  const vocabulary_ptr & with, const chat_schema & schema);

    const vocabulary_ptr                            vocabulary;
    std::mutex                                      mutex;             // of all below
    std::map<std::set<llama_token>, vocabulary_ptr> chat_vocabularies; // few: a model's templates need few
    std::list<std::pair<std::string, std::shared_ptr<grammar>>> known; // by key, most recently used first
};
