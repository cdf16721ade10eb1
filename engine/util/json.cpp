#include "util/json.h"

#include <algorithm>
#include <cstdio>
#include <limits>

using json = nlohmann::json;

static const int    n_max_depth = 64;   // of nested JSON
static const size_t n_max_list  = 1024; // stop strings, breakers, ...
static const size_t n_max_bytes = 4096; // of one such string

void invalid(const std::string & param, const std::string & message) {
    throw command_error("invalid_request", message, param);
}

static std::string number(double value) {
    char text[32];
    snprintf(text, sizeof(text), "%.15g", value);
    return text;
}

double read_number(const std::string & name, const json & value, double low, double high) {
    if (!value.is_number()) {
        invalid(name, name + " is " + value.type_name() + "; it must be a number");
    }
    const double x = value.get<double>();
    if (!(x >= low && x <= high)) { // so that NaN fails too
        invalid(name,
                name + " is " + number(x) + "; it must be between " + number(low) + " and " + number(high));
    }
    return x;
}

int64_t read_integer(const std::string & name, const json & value, int64_t low, int64_t high) {
    if (!value.is_number_integer()) {
        invalid(name, name + " is " + (value.is_number() ? number(value.get<double>()) : value.type_name()) +
                          "; it must be a whole number");
    }
    const bool too_large =
        value.is_number_unsigned() && value.get<uint64_t>() > (uint64_t) std::numeric_limits<int64_t>::max();
    const int64_t x = too_large ? std::numeric_limits<int64_t>::max() : value.get<int64_t>();
    if (x < low || x > high) {
        invalid(name, name + " is " + value.dump() + "; it must be between " + std::to_string(low) + " and " +
                          std::to_string(high));
    }
    return x;
}

// Nesting is bounded before parsing, since what comes after the parser is recursive.
static bool too_deep(const std::string & line) {
    int  depth     = 0;
    bool in_string = false;
    for (size_t i = 0; i < line.size(); i++) {
        const char c = line[i];
        if (in_string) {
            i += c == '\\';
            in_string = c != '"';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > n_max_depth) {
                return true;
            }
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return false;
}

json parse_object(const std::string & line) {
    if (too_deep(line)) {
        invalid("", "the command is nested more than " + std::to_string(n_max_depth) + " levels deep");
    }
    json body;
    try {
        body = json::parse(line);
    } catch (const json::exception & e) { // no JSON, or a number beyond any type
        invalid("", std::string("the command is not JSON: ") + e.what());
    }
    if (!body.is_object()) {
        invalid("", std::string("the command is ") + body.type_name() + "; it must be an object");
    }
    return body;
}

std::string read_string(const std::string & name, const json & body) {
    const auto it = body.find(name);
    if (it == body.end()) {
        invalid(name, name + " is missing");
    }
    if (!it->is_string()) {
        invalid(name, name + " is " + it->type_name() + "; it must be a string");
    }
    return it->get<std::string>();
}

bool read_flag(const std::string & name, const json & value) {
    if (!value.is_boolean()) {
        invalid(name, name + " is " + value.type_name() + "; it must be true or false");
    }
    return value.get<bool>();
}

size_t read_name(const std::string & name, const json & value, const std::vector<std::string> & names) {
    const auto it = std::find_if(names.begin(), names.end(), [&](const auto & n) { return value == n; });
    if (it == names.end()) {
        std::string list;
        for (const std::string & known : names) {
            list += (list.empty() ? "\"" : ", \"") + known + "\"";
        }
        invalid(name, name + " is " + (value.is_string() ? value.dump() : value.type_name()) +
                          "; it must be one of " + list);
    }
    return (size_t) (it - names.begin());
}

std::vector<std::string> read_strings(const std::string & name, const json & value) {
    if (!value.is_array()) {
        invalid(name, name + " is " + value.type_name() + "; it must be a list of strings");
    }
    if (value.size() > n_max_list) {
        invalid(name, name + " has " + std::to_string(value.size()) + " entries; at most " +
                          std::to_string(n_max_list) + " are allowed");
    }
    std::vector<std::string> strings;
    for (const json & entry : value) {
        if (!entry.is_string()) {
            invalid(name, name + " holds " + entry.type_name() + "; it must be a list of strings");
        }
        strings.push_back(entry.get<std::string>());
        if (strings.back().empty() || strings.back().size() > n_max_bytes) {
            invalid(name, name + " holds a string of " + std::to_string(strings.back().size()) +
                              " bytes; 1 to " + std::to_string(n_max_bytes) + " are allowed");
        }
    }
    return strings;
}

void append_json_string(std::string & out, std::string_view text) {
    out += '"';
    for (const char c : text) {
        switch (c) {
            case '"':  out += "\\\""; break;
            case '\\': out += "\\\\"; break;
            case '\n': out += "\\n"; break;
            case '\r': out += "\\r"; break;
            case '\t': out += "\\t"; break;
            default:
                if ((unsigned char) c < 0x20) {
                    char escape[8];
                    snprintf(escape, sizeof(escape), "\\u%04x", c);
                    out += escape;
                } else {
                    out += c;
                }
        }
    }
    out += '"';
}
