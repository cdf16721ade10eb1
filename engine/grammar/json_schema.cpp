#include "grammar/json_schema.h"

#include "util/json.h"
#include "util/utf8.h"

#include <algorithm>

using json = schema::json;

const std::vector<field_row> & schema_option_fields() {
    static const std::vector<field_row> rows = {
        {"lenient", true_or_false()},
        {"json_additional", true_or_false()},
        {"property_order", one_of({"schema", "any"})},
        {"json_whitespace", one_of({"compact", "one", "free"})},
    };
    return rows;
}

schema::options read_schema_options(const nlohmann::json & fields) {
    schema::options   out;
    const std::string space = fields.value("json_whitespace", "one");
    out.lenient             = fields.value("lenient", false);
    out.open                = fields.value("json_additional", false);
    out.any_order           = fields.value("property_order", "schema") == "any";
    out.space               = space == "compact" ? schema::options::compact
                              : space == "free"  ? schema::options::free
                                                 : schema::options::one;
    return out;
}

std::string key_of(const schema::options & given) {
    return std::to_string(given.lenient) + std::to_string(given.open) + std::to_string(given.any_order) +
           std::to_string(given.space);
}

static const size_t n_max_warnings = 16;  // of a schema
static const size_t n_max_warning  = 300; // bytes; a pattern may have many

void add_warnings(const std::string & name, const std::vector<std::string> & found,
                  std::vector<std::string> & warnings) {
    for (size_t i = 0; i < std::min(found.size(), n_max_warnings); i++) {
        warnings.push_back(name + ": " + shortened(found[i], n_max_warning));
    }
}

grammar_rules read_json_schema(const std::string & text, const schema::options & given,
                               std::vector<std::string> & warnings) {
    try {
        schema::compiled made = schema::compile(text, given);
        add_warnings("json_schema", made.warnings, warnings);
        return std::move(made.rules);
    } catch (const schema::refusal & e) {
        invalid("json_schema", std::string("json_schema: ") + e.what());
    } catch (const grammar_error & e) {
        invalid("json_schema", std::string("json_schema: ") + e.what());
    }
}

// The same call with any arguments.
static schema::call_schema free_call(schema::call_schema call) {
    json properties = json::object();
    for (const auto & member : call.form ? call.form->members : std::vector<schema::call_form::member>()) {
        properties[member.name] = true;
    }
    const bool has_names = call.form && call.form->quote.empty();
    const json any       = {{"properties", has_names ? properties : json::object()},
                            {"additionalProperties", !has_names}};
    call.document        = std::make_shared<const std::string>(any.dump());
    call.part            = call.part.empty() ? "" : "true";
    return call;
}

grammar_rules read_tool_schema(const tool_schema & tool, const schema::options & given, work_budget & budget,
                               std::vector<std::string> & warnings) {
    schema::options own = given;
    own.lenient         = !tool.strict;
    std::string why;
    try {
        schema::compiled made = schema::compile(tool.call, own, budget);
        add_warnings(tool.name, made.warnings, warnings);
        return std::move(made.rules);
    } catch (const schema::refusal & e) {
        why = e.what();
    } catch (const grammar_error & e) {
        why = e.what();
    }
    if (tool.strict) {
        invalid("tools", tool.name + ": " + why);
    }
    add_warnings(tool.name, {why + "; all of it is left out"}, warnings);
    work_budget of_its_own;
    return schema::compile(free_call(tool.call), own, of_its_own).rules;
}
