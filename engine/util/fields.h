// The fields that a JSON object may have, as tables: a row is the name of a field and the type of its value. Objects
// are checked by these rows and --fields prints them as JSON Schema, so the two cannot differ.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

struct field_table;

// The values that a field may have. The functions below make them.
struct value_type {
    enum json_type { integer, number, boolean, string, array, object };

    json_type                is;
    bool                     is_bounded = false;
    double                   low = 0.0, high = 0.0; // of a number, of a string's bytes, of an array's length
    std::vector<std::string> names;                 // of a string: it is one of these; empty: any

    std::shared_ptr<const value_type>  items;  // of an array
    std::shared_ptr<const field_table> fields; // of an object; nullptr: any
    std::shared_ptr<const value_type>  other;  // values of this type are allowed, too; nullptr: none
};

struct field_row {
    std::string name;
    value_type  type;
    bool        is_required = false;
};

// The fields of one kind of object.
struct field_table {
    std::string            name;   // in errors, and in what --fields prints
    std::string            prefix; // before a field's name in errors: "continue.", or nothing
    std::vector<field_row> rows;
};

value_type integer_between(int64_t low, int64_t high);
value_type number_between(double low, double high);
value_type true_or_false();
value_type any_string();
value_type string_of(size_t n_min, size_t n_max); // bytes
value_type one_of(std::vector<std::string> names);
value_type list_of(const value_type & items);
value_type list_of(const value_type & items, size_t n_min, size_t n_max);
value_type short_strings(); // a list of stop strings or the like, bounded in number and size
value_type short_strings_or(const field_table & fields); // or objects
value_type token_ids(); // a list; the vocabulary's size is checked where they are read
value_type any_object();
value_type object_with(const field_table & fields);
value_type either(value_type one, const value_type & other);

// Throws command_error unless the object has all required fields, no field without a row, and no value that its
// row does not allow.
void check_fields(const nlohmann::json & object, const field_table & table);

// A table as JSON Schema. A table of a field is a reference to `#/$defs/NAME`, and is added to `definitions`.
nlohmann::ordered_json json_schema(const field_table & table, nlohmann::ordered_json & definitions);
