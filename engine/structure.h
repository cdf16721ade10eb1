// The notations in which a request says what its texts may be: a grammar (GBNF), a JSON schema, a regular
// expression, a list of choices. Each is read into rules, and what is wrong with it is said with line and
// column.
#pragma once

#include "grammar.h"

#include <nlohmann/json.hpp>

#include <list>
#include <memory>
#include <string>
#include <utility>

extern const char * const structure_fields[4];

// Grammars by their text; the latest are kept. Only for the thread that reads commands.
class structure_cache {
  public:
    explicit structure_cache(const llama_vocab * vocab) : vocabulary(std::make_shared<token_tree>(vocab)) {}

    // The grammar of a command, of which at most one field may be there; nullptr: none is. Throws
    // command_error.
    std::shared_ptr<grammar> find(const nlohmann::json & fields);

  private:
    std::shared_ptr<grammar> make(const std::string & name, const std::string & text);

    const std::shared_ptr<token_tree>                           vocabulary;
    std::list<std::pair<std::string, std::shared_ptr<grammar>>> known; // latest first
};
