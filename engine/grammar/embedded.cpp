#include "grammar/embedded.h"

#include "grammar/schema/compile.h"

static const int64_t n_least_work = 2000; // of a schema, however small

grammar_element embedded_schemas::add(grammar_rules & rules, const std::string & text, bool any_order) {
    budget.spend(n_least_work);
    schema::options own = given;
    own.any_order       = own.any_order || any_order;
    const auto key      = std::make_pair(text, own.any_order);
    auto       found    = known.find(key);
    if (found == known.end()) {
        schema::compiled made = schema::compile(text, own, budget);
        warnings.insert(warnings.end(), made.warnings.begin(), made.warnings.end());
        found = known.emplace(key, std::move(made.rules)).first;
    }
    return rules.append(found->second);
}
