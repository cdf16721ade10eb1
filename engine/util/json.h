// Reads values of a command's JSON, each with an error that says what is wrong; writes JSON strings.
#pragma once

#include <nlohmann/json.hpp>

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

// Something that a client asked for and cannot have: `code` and `param` are for programs, what() is for
// people.
struct command_error : std::runtime_error {
    command_error(std::string code, const std::string & message, std::string param = "")
        : std::runtime_error(message), code(std::move(code)), param(std::move(param)) {}
    std::string code;
    std::string param;
};

[[noreturn]] void invalid(const std::string & param, const std::string & message);

// The object that a line holds, nested no deeper than a bound: what comes after the parser is recursive.
nlohmann::json parse_object(const std::string & line);

// A whole number from JSON, or command_error with the bounds.
int64_t read_integer(const std::string & name, const nlohmann::json & value, int64_t low, int64_t high);

// A number, the same way.
double read_number(const std::string & name, const nlohmann::json & value, double low, double high);

// The field of that name, which must be a string.
std::string read_string(const std::string & name, const nlohmann::json & body);

bool read_flag(const std::string & name, const nlohmann::json & value);

// One of the names of a list, as its place there.
size_t read_name(const std::string & name, const nlohmann::json & value,
                 const std::vector<std::string> & names);

// A list of strings, bounded in number and length.
std::vector<std::string> read_strings(const std::string & name, const nlohmann::json & value);

void append_json_string(std::string & out, std::string_view text);
