#include "util/fields.h"

#include "util/json.h"

#include <algorithm>
#include <limits>

using json         = nlohmann::json;
using ordered_json = nlohmann::ordered_json;

static const size_t n_max_entries = 1024; // of stop strings, breakers, …
static const size_t n_max_bytes   = 4096; // of one such string
static const size_t n_max_listed  = 4;    // fields of an object that an error names
static const size_t n_max_shown   = 60;   // bytes of a value that an error repeats

//
// types of values
//

// A row for each type of JSON: its name and the names of its bounds in JSON Schema, and the words of errors.
static const struct {
    const char * name;
    const char * low;
    const char * high;
    const char * one;
    const char * many;
} json_types[] = {
    {"integer", "minimum", "maximum", "a whole number", "whole numbers"},
    {"number", "minimum", "maximum", "a number", "numbers"},
    {"boolean", "", "", "true or false", "true or false"},
    {"string", "minLength", "maxLength", "a string", "strings"},
    {"array", "minItems", "maxItems", "a list", "lists"},
    {"object", "", "", "an object", "objects"},
};

static value_type type_of(value_type::json_type is) {
    value_type type;
    type.is = is;
    return type;
}

static value_type bounded(value_type type, double low, double high) {
    type.is_bounded = true;
    type.low        = low;
    type.high       = high;
    return type;
}

value_type integer_between(int64_t low, int64_t high) {
    return bounded(type_of(value_type::integer), (double) low, (double) high);
}

value_type number_between(double low, double high) {
    return bounded(type_of(value_type::number), low, high);
}

value_type true_or_false() {
    return type_of(value_type::boolean);
}

value_type any_string() {
    return type_of(value_type::string);
}

value_type string_of(size_t n_min, size_t n_max) {
    return bounded(any_string(), (double) n_min, (double) n_max);
}

value_type one_of(std::vector<std::string> names) {
    value_type type = any_string();
    type.names      = std::move(names);
    return type;
}

value_type list_of(const value_type & items) {
    value_type type = type_of(value_type::array);
    type.items      = std::make_shared<const value_type>(items);
    return type;
}

value_type list_of(const value_type & items, size_t n_min, size_t n_max) {
    return bounded(list_of(items), (double) n_min, (double) n_max);
}

value_type short_strings() {
    return list_of(string_of(1, n_max_bytes), 0, n_max_entries);
}

value_type short_strings_or(const field_table & fields) {
    return list_of(either(string_of(1, n_max_bytes), object_with(fields)), 0, n_max_entries);
}

value_type token_ids() {
    return list_of(integer_between(0, std::numeric_limits<int32_t>::max()));
}

value_type any_object() {
    return type_of(value_type::object);
}

value_type object_with(const field_table & fields) {
    value_type type = any_object();
    type.fields     = std::make_shared<const field_table>(fields);
    return type;
}

value_type either(value_type one, const value_type & other) {
    one.other = std::make_shared<const value_type>(other);
    return one;
}

//
// checks
//

static std::string quoted_names(const std::vector<std::string> & names) {
    std::string list;
    for (const std::string & name : names) {
        list += (list.empty() ? "\"" : ", \"") + name + "\"";
    }
    return list;
}

// "{id, scale}" for an object of few fields
static std::string short_description(const field_table & fields) {
    std::string list;
    for (const field_row & row : fields.rows) {
        list += (list.empty() ? "" : ", ") + row.name;
    }
    return "{" + list + "}";
}

// "a list of strings", or in the plural "lists of strings"
static std::string description(const value_type & type, bool is_plural) {
    std::string text = is_plural ? json_types[type.is].many : json_types[type.is].one;
    if (type.items) {
        text += " of " + description(*type.items, true);
    } else if (!type.names.empty()) {
        text = "one of " + quoted_names(type.names);
    } else if (type.fields && type.fields->rows.size() <= n_max_listed) {
        text = short_description(*type.fields);
    }
    return type.other ? text + " or " + description(*type.other, is_plural) : text;
}

// A value in an error, which must not repeat a prompt.
static std::string shown(const json & value) {
    return value.is_structured() ? value.type_name() : value.dump().substr(0, n_max_shown);
}

static bool is_of(const json & value, value_type::json_type type) {
    switch (type) {
        case value_type::integer:
        case value_type::number:  return value.is_number();
        case value_type::boolean: return value.is_boolean();
        case value_type::string:  return value.is_string();
        case value_type::array:   return value.is_array();
        default:                  return value.is_object();
    }
}

static void check_length(const std::string & name, const std::string & holder, size_t n, const char * unit,
                         const value_type & type) {
    if (type.is_bounded && ((double) n < type.low || (double) n > type.high)) {
        const std::string least = type.low > 0 ? std::to_string((size_t) type.low) + " to " : "at most ";
        invalid(name, holder + std::to_string(n) + " " + unit + "; " + least +
                          std::to_string((size_t) type.high) + " are allowed");
    }
}

// One of the types that `type` stands for, of which the value is; nullptr: it is of none.
static const value_type * find_type(const json & value, const value_type & type) {
    return is_of(value, type.is) ? &type : type.other ? find_type(value, *type.other) : nullptr;
}

// list: of which the value is an entry; nullptr: of none
static void check_value(const std::string & name, const json & value, const value_type & allowed,
                        const value_type * list = nullptr) {
    const value_type * type = find_type(value, allowed);
    if (!type) {
        invalid(name, name + (list ? " holds " : " is ") + shown(value) + "; it must be " +
                          description(list ? *list : allowed, false));
    }
    switch (type->is) {
        case value_type::integer: read_integer(name, value, (int64_t) type->low, (int64_t) type->high); break;
        case value_type::number:  read_number(name, value, type->low, type->high); break;
        case value_type::boolean: break;
        case value_type::string:
            check_length(name, name + (list ? " holds a string of " : " has "),
                         value.get_ref<const std::string &>().size(), "bytes", *type);
            if (!type->names.empty() && std::count(type->names.begin(), type->names.end(),
                                                   value.get_ref<const std::string &>()) == 0) {
                invalid(name, name + " is " + shown(value) + "; it must be " + description(*type, false));
            }
            break;
        case value_type::array:
            check_length(name, name + " has ", value.size(), "entries", *type);
            for (const json & entry : value) {
                check_value(name, entry, *type->items, type);
            }
            break;
        case value_type::object:
            if (type->fields) {
                check_fields(value, *type->fields);
            }
    }
}

void check_fields(const json & object, const field_table & table) {
    for (const auto & [name, value] : object.items()) {
        const auto row = std::find_if(table.rows.begin(), table.rows.end(),
                                      [&name = name](const field_row & r) { return r.name == name; });
        if (row == table.rows.end()) {
            invalid(table.prefix.empty() ? name : table.name, table.name + " has no field \"" + name + "\"");
        }
        check_value(table.prefix + name, value, row->type);
    }
    for (const field_row & row : table.rows) {
        if (row.is_required && !object.contains(row.name)) {
            invalid(table.prefix.empty() ? row.name : table.name, table.prefix + row.name + " is missing");
        }
    }
}

//
// JSON Schema
//

static ordered_json schema_of(const value_type & type, ordered_json & definitions) {
    if (type.other) {
        value_type one = type;
        one.other      = nullptr;
        return {{"anyOf", {schema_of(one, definitions), schema_of(*type.other, definitions)}}};
    }
    if (type.fields) {
        const std::string & name = type.fields->name;
        if (!definitions.contains(name)) {
            const ordered_json schema = json_schema(*type.fields, definitions);
            definitions[name]         = schema;
        }
        return {{"$ref", "#/$defs/" + name}};
    }
    ordered_json schema = {{"type", json_types[type.is].name}};
    if (type.is_bounded && type.is == value_type::number) {
        schema["minimum"] = type.low;
        schema["maximum"] = type.high;
    } else if (type.is_bounded) {
        schema[json_types[type.is].low]  = (int64_t) type.low;
        schema[json_types[type.is].high] = (int64_t) type.high;
    }
    if (!type.names.empty()) {
        schema["enum"] = type.names;
    }
    if (type.items) {
        schema["items"] = schema_of(*type.items, definitions);
    }
    return schema;
}

ordered_json json_schema(const field_table & table, ordered_json & definitions) {
    ordered_json properties = ordered_json::object(), required = ordered_json::array();
    for (const field_row & row : table.rows) {
        properties[row.name] = schema_of(row.type, definitions);
        if (row.is_required) {
            required.push_back(row.name);
        }
    }
    return {{"type", "object"},
            {"required", required},
            {"additionalProperties", false},
            {"properties", properties}};
}
