// Reads values of JSON, with an error that names field, value and bound; writes JSON strings.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

// The error of a command: `code` and `param` are for programs, what() is for people.
struct command_error : std::runtime_error {
    command_error(std::string code, const std::string & message, std::string param = "")
        : std::runtime_error(message), code(std::move(code)), param(std::move(param)) {}
    std::string code;
    std::string param;
    int64_t     n_prompt =
        0; // with the code "context_exceeded": the prompt's tokens, or fewer where they were not counted
    int64_t n_ctx = 0; // and the tokens that it may have with the answer
};

// Throws command_error with the code "invalid_request".
[[noreturn]] void invalid(const std::string & param, const std::string & message);

const int n_max_json_depth = 64; // of the objects and lists of a line: what handles them is recursive

// Whether a text of JSON has objects and lists at more than so many levels. nlohmann's own callback for that takes time
// that is quadratic in the members of an object.
bool is_deeper(const std::string & text, int n_levels);

// The object in a line, or command_error.
nlohmann::json parse_object(const std::string & line);

// An integer within bounds, or command_error.
int64_t read_integer(const std::string & name, const nlohmann::json & value, int64_t low, int64_t high);

// A number within bounds, or command_error.
double read_number(const std::string & name, const nlohmann::json & value, double low, double high);

// A field that is a string, or command_error.
std::string read_string(const std::string & name, const nlohmann::json & body);

// Appends a text as a JSON string, in quotation marks.
void append_json_string(std::string & out, std::string_view text);
