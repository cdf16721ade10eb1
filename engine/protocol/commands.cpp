#include "protocol/commands.h"

#include "protocol/events.h"
#include "protocol/operations.h"
#include "util/text.h"

#include <algorithm>
#include <limits>

using json = nlohmann::json;

static const size_t n_max_embedded = 2048; // texts of an embed command

static void parse_extend(command & c, const json & body, const command_facts &) {
    extend_command & e = c.extension;
    if (body.contains("add")) {
        e.n_add = (int32_t) read_integer("add", body["add"], 0, n_max_sequences);
    } else if (body.contains("max_tokens") && !body.contains("fork")) {
        e.n_add = 0; // a later limit, and nothing else
    }
    if (body.contains("max_tokens")) {
        e.n_predict =
            (int32_t) read_integer("max_tokens", body["max_tokens"], -1, std::numeric_limits<int32_t>::max());
    }
    if (body.contains("fork")) {
        e.fork = read_sequence_name("fork", body["fork"], false);
    }
}

static void require_generation(const command_facts & facts) {
    if (facts.embedding.only) {
        invalid("", std::string("this is an embedding model (pooling: ") + facts.embedding.pooling_name() +
                        "); it makes vectors of texts and generates none");
    }
}

static void parse_embed(command & c, const json & body, const command_facts & facts) {
    const json texts = body.value("input", json());
    if (facts.embedding.pooling == LLAMA_POOLING_TYPE_RANK) {
        invalid("", "this model ranks texts (pooling: rank); it makes no vectors");
    }
    if (!texts.is_array() || texts.empty() || texts.size() > n_max_embedded) {
        invalid("input", "input must be a list of 1 to " + std::to_string(n_max_embedded) +
                             " texts or lists of token ids");
    }
    for (const json & text : texts) {
        const std::string name = "input[" + std::to_string(c.texts.size()) + "]";
        if (!text.is_string() && !text.is_array()) {
            invalid("input", name + " is " + text.type_name() + "; it must be a text or a list of token ids");
        }
        c.texts.push_back(text.is_string() ? common_tokenize(facts.vocab, text.get<std::string>(), true, true)
                                           : read_tokens(text, facts, "input"));
        const size_t n = c.texts.back().size();
        if (n == 0 || n > (size_t) facts.embedding.n_max) {
            throw command_error(n == 0 ? "invalid_request" : "context_exceeded",
                                name + " has " + std::to_string(n) + " tokens; it must have 1 to " +
                                    std::to_string(facts.embedding.n_max),
                                "input");
        }
    }
}

static void parse_cancel(command & c, const json & body, const command_facts &) {
    c.index =
        body.contains("index") ? (int32_t) read_integer("index", body["index"], 0, n_max_sequences) : -1;
}

static void answer_tokenize(command & c, const json & body, const command_facts & facts) {
    const bool special = body.contains("add_special") && read_flag("add_special", body["add_special"]);
    const auto tokens  = common_tokenize(facts.vocab, read_string("text", body), special, true);
    event_line answer(c.line, "result", c.id);
    answer.raw("tokens", json(tokens).dump());
    if (body.contains("pieces") && read_flag("pieces", body["pieces"])) {
        json pieces = json::array(); // of bytes: a token may have a part of a character
        for (llama_token token : tokens) {
            const std::string piece = common_token_to_piece(facts.vocab, token, true);
            pieces.push_back(std::vector<uint8_t>(piece.begin(), piece.end()));
        }
        answer.raw("pieces", pieces.dump());
    }
}

static void answer_detokenize(command & c, const json & body, const command_facts & facts) {
    std::string bytes;
    for (llama_token token : read_tokens(body.value("tokens", json()), facts)) {
        bytes += common_token_to_piece(facts.vocab, token, true);
    }
    std::string text = take_utf8(bytes);
    event_line(c.line, "result", c.id).text("text", text + (bytes.empty() ? "" : "\xEF\xBF\xBD"));
}

// The prompt that a chat with these messages would have.
static void answer_template(command & c, const json & body, const command_facts & facts) {
    event_line(c.line, "result", c.id).text("prompt", facts.chats->apply(body).text);
}

namespace {

// Whether a command is read where it comes in, or by a worker.
enum effort { at_once, by_size, by_worker };

struct operation {
    const char *              name;
    command::kind             kind;
    effort                    work;
    std::vector<const char *> fields; // beside op, id and client
    void (*parse)(command & c, const json & body, const command_facts & facts);
};

// clang-format off
const operation operations[] = {
    {"generate",   command::generate, by_size,   {"prompt", "tokens", "continue", "n", "max_tokens", "min_tokens", "stop", "banned_strings",
                                                  "sampling", "sequences", "logprobs", "cache", "echo", "grammar", "json_schema",
                                                  "regex", "choice", "lora", "logprobs_mode", "diversity", "first_token", "sum_logprobs",
                                                  "dedupe"},                                             parse_generate   },
    {"chat",       command::generate, by_worker, {"messages", "tools", "tool_choice", "parallel_tool_calls", "json_schema",
                                                  "reasoning_format", "enable_thinking", "chat_template_kwargs",
                                                  "add_generation_prompt", "continue_final_message", "n", "max_tokens",
                                                  "min_tokens", "stop", "banned_strings", "sampling", "sequences", "logprobs",
                                                  "cache", "echo", "grammar", "regex", "choice", "diversity", "first_token",
                                                  "sum_logprobs", "dedupe", "lora", "logprobs_mode"},    parse_chat       },
    {"prefix",     command::generate, by_size,   {"prompt", "tokens", "lora"},                           parse_prefix     },
    {"score",      command::generate, by_worker, {"prompt", "tokens", "texts", "logprobs", "cache",
                                                  "lora"},                                               parse_score      },
    {"extend",     command::extend,   at_once,   {"add", "max_tokens", "fork"},                          parse_extend     },
    {"cancel",     command::cancel,   at_once,   {"index"},                                              parse_cancel     },
    {"status",     command::status,   at_once,   {},                                                     nullptr          },
    {"embed",      command::embed,    by_worker, {"input"},                                              parse_embed      },
    {"tokenize",   command::answer,   by_size,   {"text", "add_special", "pieces"},                      answer_tokenize  },
    {"detokenize", command::answer,   by_size,   {"tokens"},                                             answer_detokenize},
    {"template",   command::answer,   by_worker, {"messages", "tools", "tool_choice", "parallel_tool_calls", "json_schema",
                                                  "reasoning_format", "enable_thinking", "chat_template_kwargs",
                                                  "add_generation_prompt", "continue_final_message"},    answer_template  },
};
// clang-format on

const size_t n_quick = 16 << 10; // bytes: of more text the tokens take milliseconds

// Fields whose reading takes time beyond their size.
const char * const slow_fields[] = {"\"grammar\"", "\"json_schema\"", "\"regex\"", "\"choice\"",
                                    "\"banned_strings\""};

const operation * find_operation(const std::string & name) {
    const auto row = std::find_if(std::begin(operations), std::end(operations),
                                  [&](const operation & o) { return name == o.name; });
    return row == std::end(operations) ? nullptr : &*row;
}

// Takes op, id and client from a line and reads no further than it must.
struct head_reader : nlohmann::json_sax<json> {
    command_head head;
    std::string  name; // of the value that comes
    int          depth = 0;

    bool start_object(size_t) override { return ++depth > 0; }
    bool end_object() override { return --depth > 0; }
    bool start_array(size_t) override { return ++depth > 1; } // a command is no list
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
    if (row && row->work != by_size) {
        return row->work == by_worker;
    }
    return line.size() > n_quick ||
           std::any_of(std::begin(slow_fields), std::end(slow_fields),
                       [&](const char * name) { return line.find(name) != std::string::npos; });
}

static void parse_fields(command & c, const json & body, const command_facts & facts) {
    const std::string op  = read_string("op", body);
    const operation * row = find_operation(op);
    if (!row) {
        invalid("op", "there is no op \"" + op + "\"");
    }
    c.what   = row->kind;
    c.client = body.contains("client") ? read_string("client", body) : "";
    for (const auto & [name, value] : body.items()) {
        const auto known = [&name = name](const char * field) { return name == field; };
        if (name != "op" && name != "id" && name != "client" &&
            std::none_of(row->fields.begin(), row->fields.end(), known)) {
            invalid(name, op + " has no field \"" + name + "\"");
        }
    }
    if (row->kind == command::generate) {
        require_generation(facts);
    }
    if (row->parse) {
        row->parse(c, body, facts);
    }
    if (c.request) {
        c.request->client = c.client;
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

// A faulty cancel or extend must not look like the end of the request that it is about.
command refusal(const command_head & head, int64_t number, const command_error & e) {
    const bool about_another = head.op == "cancel" || head.op == "extend";
    return answer_of(error_line(about_another ? "" : head.id, e, number));
}
