// Messages -> prompt, by llama.cpp's own chat templates (common/chat).
//
// A template turns messages and tools into a prompt. It also gives a grammar for the answer, the triggers at which the
// grammar begins to apply, and a parser that separates content, reasoning and tool calls.
#pragma once

#include "chat/plain_content.h"
#include "grammar/structure.h"
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

struct common_chat_templates; // these three are llama.cpp's
struct common_chat_parser_params;
struct common_params;

// The format of the answers to one request.
struct chat_format {
    std::shared_ptr<const common_chat_parser_params> parser;
    std::set<llama_token>                            shown; // control tokens whose text the parser needs
    grammar_start                                    start; // of the grammar
    int32_t n_thinking = -1; // tokens that thoughts may have, where the request does not say; -1: no limit
    std::string last_words;  // of thoughts that have used them up
};

struct chat_prompt {
    prompt_parts                       parts;
    std::string                        grammar;  // GBNF; empty: the answer may be any text
    chat_schemas                       schemas;  // that stand in the grammar at their marks
    std::vector<std::string>           warnings; // about tools
    std::vector<std::string>           stop;
    std::shared_ptr<const chat_format> format;
};

// The fields of which a prompt is made, except json_schema.
const std::vector<field_row> & chat_fields();

// The templates of --chat-template or of the model, or ChatML if there are none. Any thread may call.
class chat_templates {
  public:
    // params: the options of chats; they must outlive this object.
    chat_templates(const llama_model * model, const common_params & params) : model(model), params(params) {}

    // The prompt for a command whose fields have been checked; throws command_error.
    chat_prompt apply(const nlohmann::json & fields);

  private:
    void load();

    const llama_model *                    model;
    const common_params &                  params;
    std::mutex                             mutex;          // of all below, until the templates are made
    std::shared_ptr<common_chat_templates> templates;      // made with the first chat
    std::unique_ptr<control_text_finder>   controls;       // for plain contents, made with the templates
    std::string                            fault;          // why they cannot be made
    bool                                   thinks = false; // an answer may begin with thoughts
};
