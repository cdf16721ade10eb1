// A schema's JSON: where each part stands, and what its references name. Knows the drafts; not what keywords mean.
#pragma once

#include "util/indexed_json.h"

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace schema {

using json = indexed_json;

// A keyword has no exact meaning here. what() names its path.
struct refusal : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// A name as a part of a JSON pointer: "/" and the name, escaped.
std::string pointer_part(const std::string & name);

class document {
  public:
    explicit document(const std::string & text); // throws refusal

    const json & root() const { return tree; }
    int          draft() const { return number; } // 3, 4, 6, 7, 2019 or 2020

    // The schema that a reference in this schema names; nullptr: none in the document.
    const json * find(const json & from, const std::string & reference);
    // A schema that stands at this path of the document, and is given apart.
    const json & add(const std::string & text, const std::string & path);
    // The only $dynamicAnchor of a name; nullptr: there is none, or more than one.
    const json * find_dynamic(const std::string & name) const;

    std::string path(const json & schema) const; // as a JSON pointer
    // Keywords of later drafts, which are left out of the document.
    const std::set<std::string> & newer_keywords() const { return newer; }
    // Whether a number is the one that was written, whose digits can be more than are kept.
    bool is_exact(const json & number) const { return inexact.count(number.get<double>()) == 0; }
    // A schema that stands for a part of another one has that one's path and references.
    void stands_for(const json & made, const json & original) { places[&made] = place_of(original); }

  private:
    using address = std::shared_ptr<const std::string>;
    struct place {
        address       base;
        const place * above = nullptr; // nullptr: it is none's part
        std::string   part;            // of the path, behind that of `above`
    };

    json          parse(const std::string & text);
    void          find_inexact(const std::string & text);
    void          leave_out_newer(json & schema);
    const place & place_of(const json & schema) const;
    void          index(const json & schema, place at, int depth);
    void          index_below(const json & schema, const place & at, int depth);

    // Numbers with too many digits. It stands before `tree`, since parse() fills both.
    std::set<double> inexact;

    json                                             tree;
    std::deque<json>                                 parts; // given apart
    int                                              number = 2020;
    std::set<std::string>                            newer;  // keywords that are left out
    std::map<const json *, place>                    places; // of all schemas
    std::deque<place>                                others; // on the way to a schema in what is none
    std::map<std::string, const json *>              named;  // by address
    std::map<std::string, std::vector<const json *>> dynamic;
};

} // namespace schema
