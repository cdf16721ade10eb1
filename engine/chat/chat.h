// Messages -> prompt, and answer -> message, by llama.cpp's own chat templates and parsers (common/chat).
//
// A template says how messages and tools become a prompt; with it come a grammar for what the answer must be,
// the triggers from which on that holds, and a parser that tells content, reasoning and tool calls apart.
#pragma once

#include "grammar/trigger.h"
#include "util/fields.h"

#include "llama.h"

#include <nlohmann/json.hpp>

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

struct common_chat_msg; // llama.cpp's, and these
struct common_chat_templates;
struct common_chat_parser_params;

// How the answers to one request read.
struct chat_format {
    std::shared_ptr<const common_chat_parser_params> parser;
    std::set<llama_token>                            shown; // control tokens whose text the parser wants
    grammar_start                                    start; // of the grammar
};

struct chat_prompt {
    std::string                        text;
    std::string                        grammar; // GBNF; empty: the answer may be anything
    std::vector<std::string>           stop;
    std::shared_ptr<const chat_format> format;
};

// The fields of which a prompt is made, except json_schema.
const std::vector<field_row> & chat_fields();

// The model's templates, or ChatML when it has none. Any thread may ask.
class chat_templates {
  public:
    explicit chat_templates(const llama_model * model) : model(model) {}

    // The prompt for a command whose fields have been checked; throws command_error.
    chat_prompt apply(const nlohmann::json & fields);

  private:
    void load();

    const llama_model *                    model;
    std::mutex                             mutex;     // of what follows, until it is made
    std::shared_ptr<common_chat_templates> templates; // made with the first chat
    std::string                            fault;     // why they cannot be
};

// What a piece of text adds to a message.
struct chat_delta {
    std::string content, reasoning;
    std::string tool_calls; // empty, or JSON: [{"index", "id", "name", "arguments"}], the middle two once

    bool empty() const { return content.empty() && reasoning.empty() && tool_calls.empty(); }
};

// The answer of one sequence, as it comes.
class chat_message {
  public:
    // The ids of tool calls are made of `seed`, which must be another for each sequence.
    chat_message(std::shared_ptr<const chat_format> format, std::string seed);

    // Takes text; last: it is the end.
    chat_delta feed(std::string_view text, bool last);

  private:
    chat_delta  read(bool last);
    std::string tell_calls(const common_chat_msg & now, bool last);

    std::shared_ptr<const chat_format> format;
    std::string                        seed;
    std::string                        text;
    std::string                        content, reasoning; // as far as they have been told
    std::vector<std::string>           calls;              // arguments, of those whose name has been told
    size_t                             n_read = 0;         // bytes of text at the last look
};
