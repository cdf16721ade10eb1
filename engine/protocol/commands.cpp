#include "protocol/commands.h"

#include "protocol/event_line.h"
#include "protocol/operations.h"

#include <algorithm>

using json = nlohmann::json;

namespace {

const size_t n_quick = 16 << 10; // bytes of a line; the tokens of more text take milliseconds

// Fields that take long to read, even when they are short.
const char * const slow_fields[] = {"\"grammar\"",       "\"json_schema\"",    "\"regex\"",
                                    "\"choice\"",        "\"structural_tag\"", "\"banned_strings\"",
                                    "\"token_healing\"", "\"dry_multiplier\""};

// Finds op, id and client in a line, and stops as early as possible.
struct head_reader : nlohmann::json_sax<json> {
    command_head head;
    std::string  name; // of the next value
    int          depth = 0;

    bool start_object(size_t) override { return ++depth > 0; }
    bool end_object() override { return --depth > 0; }
    bool start_array(size_t) override { return ++depth > 1; } // only an object is a command
    bool end_array() override { return --depth > 0; }
    bool key(std::string & value) override {
        if (depth == 1) {
            name = value;
        }
        return depth > 1 || head.op.empty() || head.id.empty() || name == "client";
    }
    bool string(std::string & value) override {
        if (depth == 1) {
            std::string * const where = name == "op"       ? &head.op
                                        : name == "id"     ? &head.id
                                        : name == "client" ? &head.client
                                                           : nullptr;
            if (where) {
                *where = value;
            }
        }
        return true;
    }
    bool null() override { return true; }
    bool boolean(bool) override { return true; }
    bool number_integer(int64_t) override { return true; }
    bool number_unsigned(uint64_t) override { return true; }
    bool number_float(double, const std::string &) override { return true; }
    bool binary(json::binary_t &) override { return true; }
    bool parse_error(size_t, const std::string &, const nlohmann::detail::exception &) override {
        return false;
    }
};

} // namespace

command_head read_head(const std::string & line) {
    head_reader reader;
    json::sax_parse(line, &reader);
    return std::move(reader.head);
}

bool takes_long(const command_head & head, const std::string & line) {
    const operation * row = find_operation(head.op);
    if (row && row->thread != read_by::worker_if_long) {
        return row->thread == read_by::worker;
    }
    return line.size() > n_quick ||
           std::any_of(std::begin(slow_fields), std::end(slow_fields),
                       [&](const char * name) { return line.find(name) != std::string::npos; });
}

static void require_generation(const command_facts & facts) {
    if (facts.embedding.only) {
        invalid("", std::string("this is an embedding model (pooling: ") + facts.embedding.pooling_name() +
                        "); it makes vectors of texts and generates none");
    }
}

static void parse_fields(command & c, const json & body, const command_facts & facts) {
    const std::string op  = read_string("op", body);
    const operation * row = find_operation(op);
    if (!row) {
        invalid("op", "there is no op \"" + op + "\"");
    }
    check_fields(body, row->fields);
    c.what     = row->kind;
    c.client   = body.value("client", "");
    c.priority = body.value("priority", 0);
    if (row->kind == command::generate) {
        require_generation(facts);
    }
    if (row->parse) {
        row->parse(c, body, facts);
    }
    if (c.request) {
        c.request->client   = c.client;
        c.request->priority = c.priority;
    }
}

command parse_command(const std::string & line, int64_t number, const command_facts & facts) {
    command            c;
    const command_head head = read_head(line);
    c.number                = number;
    c.id                    = head.id;
    try {
        const json body = parse_object(line);
        c.id            = read_string("id", body);
        parse_fields(c, body, facts);
    } catch (const command_error & e) {
        return refusal(head, number, e);
    } catch (const std::exception & e) {
        return refusal(head, number, command_error("engine_error", e.what()));
    }
    return c;
}

command answer_of(std::string line) {
    command c;
    c.line = std::move(line);
    return c;
}

// An invalid cancel or extend must not look like the end of the request that it names.
command refusal(const command_head & head, int64_t number, const command_error & e) {
    const bool about_another = head.op == "cancel" || head.op == "extend";
    return answer_of(error_line(about_another ? "" : head.id, e, number));
}
