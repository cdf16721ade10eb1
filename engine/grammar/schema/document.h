// A schema's JSON: where each part stands, and what its references name. Knows the drafts; not what keywords mean.
#pragma once

#include <nlohmann/json.hpp>

#include <deque>
#include <map>
#include <string>
#include <vector>

namespace schema {

using json = nlohmann::ordered_json;

// A keyword has no exact meaning here. what() names its path.
struct refusal : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class document {
  public:
    explicit document(const std::string & text); // throws refusal

    const json & root() const { return tree; }
    int          draft() const { return number; } // 4, 6, 7, 2019 or 2020

    // The schema that a reference in this schema names; nullptr: none in the document.
    const json * find(const json & from, const std::string & reference);
    // A schema that stands at this path of the document, and is given apart.
    const json & add(const std::string & text, const std::string & path);
    // The only $dynamicAnchor of a name; nullptr: there is none, or more than one.
    const json * find_dynamic(const std::string & name) const;

    std::string path(const json & schema) const; // as a JSON pointer
    // A schema that stands for a part of another one has that one's path and references.
    void stands_for(const json & made, const json & original) { places[&made] = places[&original]; }

  private:
    struct place {
        std::string base, path;
    };

    static json parse(const std::string & text);
    void        index(const json & schema, const std::string & base, const std::string & path, int depth);
    void index_below(const json & schema, const std::string & base, const std::string & path, int depth);

    json                                             tree;
    std::deque<json>                                 parts; // given apart
    int                                              number = 2020;
    std::map<const json *, place>                    places;
    std::map<std::string, const json *>              named; // by address
    std::map<std::string, std::vector<const json *>> dynamic;
};

} // namespace schema
