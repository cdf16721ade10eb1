#include "grammar/json_schema.h"

#include "grammar/schema/compile.h"
#include "util/json.h"

const std::vector<field_row> & schema_option_fields() {
    static const std::vector<field_row> rows = {
        {"json_additional", true_or_false()},
        {"property_order", one_of({"schema", "any"})},
        {"json_whitespace", one_of({"compact", "one", "free"})},
    };
    return rows;
}

schema::options read_schema_options(const nlohmann::json & fields) {
    schema::options   out;
    const std::string space = fields.value("json_whitespace", "one");
    out.open                = fields.value("json_additional", false);
    out.any_order           = fields.value("property_order", "schema") == "any";
    out.space               = space == "compact" ? schema::options::compact
                              : space == "free"  ? schema::options::free
                                                 : schema::options::one;
    return out;
}

std::string key_of(const schema::options & given) {
    return std::to_string(given.open) + std::to_string(given.any_order) + std::to_string(given.space);
}

grammar_rules read_json_schema(const std::string & text, const schema::options & given) {
    try {
        return schema::compile(text, given).rules;
    } catch (const schema::refusal & e) {
        invalid("json_schema", std::string("json_schema: ") + e.what());
    } catch (const grammar_error & e) {
        invalid("json_schema", std::string("json_schema: ") + e.what());
    }
}
