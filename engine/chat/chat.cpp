#include "chat/chat.h"

#include "chat/history.h"
#include "chat/required_calls.h"
#include "chat/tool_schemas.h"
#include "util/json.h"
#include "util/sandbox.h"
#include "util/utf8.h"

#include <chat.h> // llama.cpp's common/chat.h

#include <algorithm>

using json = nlohmann::json;

static const size_t n_max_output = 64u << 20; // bytes of a prompt, its grammar and its parser
static const size_t n_max_message =
    2000; // characters of an error of llama.cpp, which may repeat the messages

const std::vector<field_row> & chat_fields() {
    const value_type                    objects = list_of(any_object());
    static const std::vector<field_row> rows    = {
        {"messages", either(any_string(), objects), true},
        {"tools", either(any_string(), objects)},
        {"tool_choice", one_of({"auto", "none", "required"})},
        {"parallel_tool_calls", true_or_false()},
        {"reasoning_format", one_of({"auto", "none", "deepseek", "deepseek-legacy"})},
        {"enable_thinking", true_or_false()},
        {"chat_template_kwargs", any_object()},
        {"add_generation_prompt", true_or_false()},
        {"continue_final_message", true_or_false()},
        {"plain_content", true_or_false()},
        {"thinking_budget_message", any_string()},
    };
    return rows;
}

//
// messages -> prompt
//

namespace {

// A field that is JSON, or JSON as text, in which keys keep their order.
std::string read_text(const json & fields, const char * name) {
    const auto it = fields.find(name);
    return it == fields.end() ? "" : it->is_string() ? it->get<std::string>() : it->dump();
}

// Variables for the template: those of --chat-template-kwargs and the like, and the request's own.
std::map<std::string, std::string> read_kwargs(const json & fields, const common_params & params) {
    std::map<std::string, std::string> kwargs = params.default_template_kwargs;
    const json                         given  = fields.value("chat_template_kwargs", json::object());
    for (const auto & [name, value] : given.items()) {
        kwargs[name] = value.dump();
    }
    return kwargs;
}

// Whether the answer may begin with thoughts. A field goes before a variable of the template of the same name.
void read_thinking(common_chat_templates_inputs & inputs, const json & fields, bool otherwise) {
    const auto        variable = inputs.chat_template_kwargs.find("enable_thinking");
    const bool        given    = variable != inputs.chat_template_kwargs.end();
    const std::string value    = given ? variable->second : "";
    if (value[0] == '"') {
        invalid("chat_template_kwargs",
                "chat_template_kwargs.enable_thinking is " + value + "; it must be true or false");
    }
    inputs.enable_thinking =
        fields.value("enable_thinking", value == "true" || (value != "false" && otherwise));
    if (given && fields.contains("enable_thinking")) {
        variable->second = inputs.enable_thinking ? "true" : "false";
    }
}

// All inputs but messages and tools, which are read in the subprocess.
common_chat_templates_inputs read_inputs(const json & fields, const common_params & params,
                                         const common_chat_templates * templates, bool thinks) {
    common_chat_templates_inputs inputs;
    const auto                   caps = common_chat_templates_get_caps(templates);
    const auto                   many = caps.find("supports_parallel_tool_calls");

    inputs.tool_choice      = common_chat_tool_choice_parse_oaicompat(fields.value("tool_choice", "auto"));
    inputs.reasoning_format = common_reasoning_format_from_name(
        fields.value("reasoning_format", common_reasoning_format_name(params.reasoning_format)));
    inputs.parallel_tool_calls  = fields.value("parallel_tool_calls", many != caps.end() && many->second);
    inputs.use_jinja            = params.use_jinja;
    inputs.force_pure_content   = params.force_pure_content_parser;
    inputs.chat_template_kwargs = read_kwargs(fields, params);
    read_thinking(inputs, fields, thinks);
    inputs.json_schema           = read_text(fields, "json_schema");
    const bool continues         = fields.value("continue_final_message", false);
    inputs.add_generation_prompt = fields.value("add_generation_prompt", !continues);
    if (continues && inputs.add_generation_prompt) {
        invalid("continue_final_message",
                "only one of continue_final_message and add_generation_prompt may be true");
    }
    inputs.continue_final_message = continues ? COMMON_CHAT_CONTINUATION_AUTO : COMMON_CHAT_CONTINUATION_NONE;
    return inputs;
}

void check_tools(const json & fields, const common_chat_templates_inputs & inputs,
                 const common_chat_templates * templates) {
    if (!inputs.use_jinja &&
        (fields.contains("tools") || inputs.tool_choice != COMMON_CHAT_TOOL_CHOICE_AUTO)) {
        invalid("tools", "tools and tool_choice need a server without --no-jinja");
    }
    if (inputs.tool_choice == COMMON_CHAT_TOOL_CHOICE_REQUIRED && !fields.contains("tools")) {
        invalid("tool_choice", "tool_choice is \"required\", but there are no tools");
    }
    const auto caps  = common_chat_templates_get_caps(templates);
    const auto known = [&](const char * name) { return caps.count(name) > 0 && caps.at(name); };
    if (fields.contains("tools") && inputs.tool_choice != COMMON_CHAT_TOOL_CHOICE_NONE &&
        !known("supports_tools") && !known("supports_tool_calls")) {
        invalid("tools", "the model's chat template does not support tools; tool_choice must be \"none\"");
    }
}

json triggers_json(const std::vector<common_grammar_trigger> & triggers) {
    json made = json::array();
    for (const common_grammar_trigger & trigger : triggers) {
        made.push_back({{"type", (int) trigger.type}, {"value", trigger.value}});
    }
    return made;
}

// Marks for plain contents. Other texts of the client are not marked, and may have no control token.
std::unique_ptr<content_marks> make_marks(const json & fields, const common_chat_templates * templates,
                                          const control_text_finder & controls) {
    std::vector<std::string> sources = {read_text(fields, "messages"),
                                        common_chat_templates_source(templates),
                                        common_chat_templates_source(templates, "tool_use")};
    for (const char * const name : {"tools", "json_schema", "chat_template_kwargs"}) {
        sources.push_back(read_text(fields, name));
        if (!sources.back().empty()) {
            check_without_controls(controls, name, sources.back());
        }
    }
    return std::make_unique<content_marks>(controls, sources);
}

// llama.cpp's result as text, so that it can leave the subprocess.
std::string text_of(const common_chat_params & made) {
    const json all = {
        {"format", (int) made.format},
        {"prompt", made.prompt},
        {"grammar", made.grammar},
        {"lazy", made.grammar_lazy},
        {"begun", made.generation_prompt},
        {"thinking_start", made.thinking_start_tag},
        {"thinking_ends", made.thinking_end_tags},
        {"triggers", triggers_json(made.grammar_triggers)},
        {"shown", made.preserved_tokens},
        {"stop", made.additional_stops},
        {"parser", made.parser},
        {"schemas", made_schemas()},
    };
    return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

// The template converts schemas, too: an error in one is not the messages' fault.
[[noreturn]] void refuse(const std::string & message, const std::string & schema_field) {
    const size_t schema = message.find("JSON schema error");
    if (schema != std::string::npos && !schema_field.empty()) {
        invalid(schema_field, schema_field + ": " + message.substr(schema));
    }
    invalid("messages", "the chat template refuses the messages: " + message);
}

// What a template says itself, without llama.cpp's report around it; else all of the error.
std::string words_of(const std::string & error) {
    static const std::string mark = "Error: Jinja Exception: ";
    const size_t             at   = error.find(mark);
    std::string              words;
    size_t                   n = 0;
    for (size_t i = at == std::string::npos ? 0 : at + mark.size(); i < error.size(); i++) {
        n += ((unsigned char) error[i] & 0xC0) != 0x80; // a character begins
        if (n > n_max_message) {
            break;
        }
        words += error[i] == '\n' ? ' ' : error[i];
    }
    return take_utf8(words);
}

// Runs work with a template in a subprocess with limits. fault: the beginning of the error where a limit is exceeded.
// schema_field: where a schema comes from; empty: there is none.
std::string run_template(const std::function<std::string()> & work, const std::string & fault,
                         const std::string & schema_field) {
    const auto caught = [&]() -> std::string {
        try {
            return work();
        } catch (const std::exception & e) {
            return std::string("\0", 1) + e.what();
        }
    };
    std::string  output;
    const bool   done = run_in_sandbox(caught, n_max_output, output);
    const size_t mark = output.find('\0');
    if (!done || mark == std::string::npos || mark + 1 == output.size()) {
        invalid("messages", fault + " takes more than " + std::to_string(t_sandbox_ms / 1000) +
                                " seconds or " + std::to_string(n_max_output >> 20) +
                                " MiB, or has no bound");
    }
    std::string made = output.substr(mark + 1);
    if (made[0] == '\0') {
        refuse(words_of(made.substr(1)), schema_field);
    }
    return made;
}

common_chat_params apply_to(const common_chat_templates * templates, common_chat_templates_inputs & inputs,
                            const std::string & messages) {
    inputs.messages = common_chat_msgs_parse_oaicompat(common_json::parse(messages));
    return common_chat_templates_apply(templates, inputs);
}

// Where a template refuses a message of the system, or leaves one out, the user tells those behind the first one.
common_chat_params apply_history(const common_chat_templates *  templates,
                                 common_chat_templates_inputs & inputs, const chat_history & history) {
    if (history.told_by_user.empty()) {
        return apply_to(templates, inputs, history.messages);
    }
    common_chat_params made;
    std::exception_ptr refusal;
    try {
        made = apply_to(templates, inputs, history.messages);
        if (has_texts(made.prompt, history.of_system)) {
            return made;
        }
    } catch (const std::exception &) {
        refusal = std::current_exception();
    }
    try {
        return apply_to(templates, inputs, history.told_by_user);
    } catch (const std::exception &) {
        if (refusal) {
            std::rethrow_exception(refusal);
        }
        return made;
    }
}

// A template that is known to read arguments of calls as objects.
bool reads_objects(const common_chat_templates * templates) {
    const auto caps  = common_chat_templates_get_caps(templates);
    const auto found = caps.find("supports_object_arguments");
    return found != caps.end() && found->second;
}

// Templates may loop over messages, and tools' schemas are converted to a grammar: both need limits.
json apply_template(const common_chat_templates * templates, common_chat_templates_inputs & inputs,
                    const std::string & messages, const std::string & tools) {
    const auto work = [&] {
        keep_schemas();
        inputs.tools = tools.empty() ? std::vector<common_chat_tool>()
                                     : common_chat_tools_parse_oaicompat(common_json::parse(tools));
        return text_of(apply_history(templates, inputs, read_history(messages, reads_objects(templates))));
    };
    return json::parse(run_template(work, "messages and tools are too large: their conversion to a prompt",
                                    !inputs.json_schema.empty() ? "json_schema"
                                    : tools.empty()             ? ""
                                                                : "tools"));
}

grammar_start read_start(const json & made) {
    grammar_start start;
    start.lazy              = made["lazy"];
    start.thinking_start    = made["thinking_start"];
    start.thinking_ends     = made["thinking_ends"].get<std::vector<std::string>>();
    const std::string begun = made["begun"];
    start.begun             = start.lazy ? "" : begun;
    for (const json & trigger : made["triggers"]) {
        const std::string value = trigger["value"];
        if (trigger["type"] == (int) COMMON_GRAMMAR_TRIGGER_TYPE_WORD) {
            start.words.push_back(value);
        } else if (trigger["type"] == (int) COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN) {
            start.patterns.emplace_back(value);
        } else if (trigger["type"] == (int) COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN_FULL) {
            start.patterns.emplace_back("^(?:" + value + ")$");
        }
    }
    const size_t thought =
        start.thinking_start.empty() ? std::string::npos : begun.rfind(start.thinking_start);
    start.thinks =
        thought != std::string::npos &&
        std::none_of(start.thinking_ends.begin(), start.thinking_ends.end(),
                     [&](const auto & end) { return begun.find(end, thought) != std::string::npos; });
    return start;
}

std::shared_ptr<chat_format> read_format(const json & made, const common_chat_templates_inputs & inputs,
                                         const llama_vocab * vocab) {
    auto format                   = std::make_shared<chat_format>();
    auto parser                   = std::make_shared<common_chat_parser_params>();
    parser->format                = (common_chat_format) made["format"].get<int>();
    parser->reasoning_format      = inputs.reasoning_format;
    parser->generation_prompt     = made["begun"];
    parser->is_continuation       = inputs.continue_final_message != COMMON_CHAT_CONTINUATION_NONE;
    const std::string description = made["parser"];
    if (!description.empty()) {
        parser->parser.load(description);
    }
    format->parser = std::move(parser);
    format->start  = read_start(made);
    for (const std::string shown : made["shown"]) {
        const auto ids = common_tokenize(vocab, shown, false, true);
        if (ids.size() == 1) {
            format->shown.insert(ids[0]);
        }
    }
    return format;
}

} // namespace

// Whether a template knows of thoughts. One that refuses llama.cpp's trial may know of them, too.
static bool may_think(const common_chat_templates * templates) {
    try {
        return common_chat_templates_support_enable_thinking(templates);
    } catch (const std::exception &) {
        return true;
    }
}

// To find out what a template supports, llama.cpp runs it. A model's template is not trusted, so it is run in a
// subprocess with limits first. As in llama-server, --no-jinja means that no thoughts are asked for.
void chat_templates::load() {
    try {
        if (fault.empty()) {
            const auto test = [&]() -> std::string {
                const auto made = common_chat_templates_init(model, params.chat_template);
                return params.use_jinja && may_think(made.get()) ? "thinks" : "sound";
            };
            const std::string found =
                run_template(test, "the chat template cannot be used: a test of it", "");
            thinks = params.enable_reasoning != 0 && found == "thinks";
        }
    } catch (const command_error & e) {
        fault = e.what();
    }
    if (!fault.empty()) {
        invalid("messages", fault);
    }
    controls  = std::make_unique<control_text_finder>(control_texts(llama_model_get_vocab(model)));
    templates = common_chat_templates_init(model, params.chat_template);
    if (!common_chat_templates_was_explicit(templates.get())) {
        fprintf(stderr, "llama-batched: the model has no chat template; chats are written as ChatML\n");
    }
}

chat_prompt chat_templates::apply(const json & fields) {
    {
        const std::lock_guard<std::mutex> lock(mutex);
        if (!templates) {
            load();
        }
    }
    auto inputs = read_inputs(fields, params, templates.get(), thinks);
    check_tools(fields, inputs, templates.get());
    const auto marks =
        fields.value("plain_content", false) ? make_marks(fields, templates.get(), *controls) : nullptr;
    const std::string schema = inputs.json_schema;
    if (!schema.empty()) { // llama.cpp's converter would drop what it does not know
        inputs.json_schema = json{{"const", schema_mark}}.dump();
    }
    const std::string messages = read_text(fields, "messages");
    std::string       tools    = read_text(fields, "tools");
    const auto        apply    = [&] {
        return apply_template(templates.get(), inputs, marks ? marks->mark(messages) : messages, tools);
    };
    json       made         = apply();
    const auto lacks_answer = [&] { // without a grammar the schema is that of the whole text
        const auto & grammar = made["grammar"].get_ref<const std::string &>();
        return !schema.empty() && inputs.tool_choice != COMMON_CHAT_TOOL_CHOICE_REQUIRED &&
               !grammar.empty() && grammar.find(schema_mark) == std::string::npos;
    };
    if (lacks_answer() && inputs.tool_choice == COMMON_CHAT_TOOL_CHOICE_AUTO && !tools.empty()) {
        inputs.tool_choice = COMMON_CHAT_TOOL_CHOICE_NONE; // it had rules for calls only
        made               = apply();
        if (lacks_answer()) {
            tools.clear();
            made = apply();
        }
    }
    if (lacks_answer()) {
        invalid("json_schema",
                "from the model's chat template it cannot be told how an answer obeys a schema");
    }
    if (marks && marks->restored(made["begun"]) != made["begun"]) { // the answer continues a content
        for (const char * const name : {"begun", "grammar", "parser"}) {
            made[name] = marks->restored(made[name]);
        }
    }
    if (inputs.tool_choice == COMMON_CHAT_TOOL_CHOICE_REQUIRED) {
        if (made["grammar"].get_ref<const std::string &>().empty()) {
            invalid("tool_choice",
                    "tool_choice is \"required\", but from the model's chat template it cannot be "
                    "told how a tool is called");
        }
        made["grammar"] = without_content(made["grammar"], made["parser"]);
    }
    chat_prompt prompt;
    prompt.parts   = marks ? marks->parts_of(made["prompt"]) : prompt_parts{{made["prompt"], true}};
    prompt.grammar = made["grammar"];
    prompt.schemas = {schema, {}};
    read_tool_schemas(prompt.schemas.tools, prompt.warnings, made["schemas"], read_text(fields, "tools"),
                      prompt.grammar);
    prompt.stop        = made["stop"].get<std::vector<std::string>>();
    auto format        = read_format(made, inputs, llama_model_get_vocab(model));
    format->n_thinking = params.sampling.reasoning_budget_tokens;
    format->last_words = fields.value("thinking_budget_message", params.sampling.reasoning_budget_message);
    prompt.format      = std::move(format);
    return prompt;
}
