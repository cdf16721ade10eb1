#include "util/json.h"

#include <algorithm>
#include <cstdio>
#include <limits>

using json = nlohmann::json;

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

// This is checked before parsing, because code that handles JSON (copies, checks, destructors) is recursive.
bool is_deeper(const std::string & text, int n_levels) {
    int  depth     = 0;
    bool in_string = false;
    for (size_t i = 0; i < text.size(); i++) {
        const char c = text[i];
        if (in_string) {
            i += c == '\\';
            in_string = c != '"';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > n_levels) {
                return true;
            }
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return false;
}

json parse_object(const std::string & line) {
    if (is_deeper(line, n_max_json_depth)) {
        invalid("", "the command is nested more than " + std::to_string(n_max_json_depth) + " levels deep");
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
