#include "protocol/operations.h"

#include "protocol/event_line.h"
#include "protocol/prompt.h"
#include "protocol/second_answer.h"
#include "protocol/values.h"
#include "util/json.h"
#include "util/utf8.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>

using json         = nlohmann::json;
using ordered_json = nlohmann::ordered_json;

static const size_t n_max_scored   = 1024; // texts of a score command
static const int    n_max_priority = 9;
static const size_t n_max_embedded = 2048; // texts of an embed command
static const size_t n_max_counted  = 4096; // texts of a count_tokens command
static const size_t n_max_salt     = 4096; // bytes

static const int64_t n_max_ram = (int64_t) 1 << 53; // bytes; a double still has every number up to it

//
// readers of the small commands
//

static void parse_extend(command & c, const json & body, const command_facts &) {
    const bool only_limit = body.contains("max_tokens") && !body.contains("fork");
    c.extension.n_add     = body.value("add", only_limit ? 0 : 1);
    c.extension.n_predict = body.value("max_tokens", c.extension.n_predict);
    if (body.contains("fork")) {
        c.extension.fork = read_sequence_name(body["fork"]);
    }
}

static void parse_embed(command & c, const json & body, const command_facts & facts) {
    if (facts.embedding.pooling == LLAMA_POOLING_TYPE_RANK) {
        invalid("", "this model ranks documents (pooling: rank); it makes no vectors");
    }
    const prompt_limit limit = read_limit(body, "right");
    for (const json & text : body["input"]) {
        c.texts.push_back(text.is_string() ? common_tokenize(facts.vocab, text.get<std::string>(), true, true)
                                           : read_tokens(text, facts, "input"));
        const int32_t n_front = text.is_string() && llama_vocab_get_add_bos(facts.vocab);
        const int32_t n_back  = text.is_string() && llama_vocab_get_add_eos(facts.vocab);
        cut_to(limit, c.texts.back(), facts.embedding.n_max, n_front, n_back);
        const int64_t     n    = (int64_t) c.texts.back().size();
        const std::string name = "input[" + std::to_string(c.texts.size() - 1) + "]";
        if (n == 0) {
            invalid("input",
                    name + " has 0 tokens; it must have 1 to " + std::to_string(facts.embedding.n_max));
        }
        if (n > facts.embedding.n_max) {
            exceed_context("input", name + " has " + std::to_string(n) + " tokens; it", n,
                           facts.embedding.n_max);
        }
    }
}

// A query and a document as the model's template for ranking has them; without one as the encoders that were trained on
// pairs have them. Both are plain text.
static std::vector<llama_token> tokenize_pair(const std::string & query, const std::string & document,
                                              const model_facts & facts) {
    if (const char * const given = llama_model_chat_template(facts.model, "rerank")) {
        const std::string                                  text = given;
        std::vector<prompt_part>                           parts;
        const std::pair<const char *, const std::string &> holes[] = {{"{query}", query},
                                                                      {"{document}", document}};
        for (size_t begin = 0; begin < text.size();) {
            size_t              at   = text.size();
            size_t              end  = text.size();
            const std::string * what = nullptr;
            for (const auto & [name, value] : holes) {
                if (const size_t found = text.find(name, begin); found < at) {
                    at   = found;
                    end  = found + strlen(name);
                    what = &value;
                }
            }
            parts.push_back({text.substr(begin, at - begin), true});
            if (what) {
                parts.push_back({*what, false});
            }
            begin = end;
        }
        return tokenize_parts(parts, facts.vocab, false);
    }
    const llama_vocab * const vocab = facts.vocab;
    const llama_token         eos =
        llama_vocab_eos(vocab) != LLAMA_TOKEN_NULL ? llama_vocab_eos(vocab) : llama_vocab_sep(vocab);
    std::vector<llama_token> tokens;
    const auto               add = [&](bool wanted, llama_token token) {
        if (wanted) {
            tokens.push_back(token);
        }
    };
    const auto add_text = [&](const std::string & text) {
        const auto more = common_tokenize(vocab, text, false, false);
        tokens.insert(tokens.end(), more.begin(), more.end());
    };
    add(llama_vocab_get_add_bos(vocab), llama_vocab_bos(vocab));
    add_text(query);
    add(llama_vocab_get_add_eos(vocab), eos);
    add(llama_vocab_get_add_sep(vocab), llama_vocab_sep(vocab));
    add_text(document);
    add(llama_vocab_get_add_eos(vocab), eos);
    return tokens;
}

// The end of a text: its last n tokens, if it has more.
static std::string end_of_text(const std::string & text, int32_t n, const model_facts & facts) {
    auto tokens = common_tokenize(facts.vocab, text, false, false);
    if ((int32_t) tokens.size() <= n) {
        return text;
    }
    tokens.erase(tokens.begin(), tokens.end() - n);
    return common_detokenize(facts.vocab, tokens, false);
}

// If the request wants that, a query loses its beginning where it leaves a document less than half of the context, and a
// document that is too long with its query its end, or with truncation_side left its beginning.
static void parse_rerank(command & c, const json & body, const command_facts & facts) {
    if (!facts.embedding.ranks()) {
        invalid(
            "",
            "this model ranks no documents: its file has no head for that, or was not loaded with --rerank "
            "(rerank = true in the table of one of several models)");
    }
    const bool        cuts  = body.value("truncate", false);
    const bool        left  = body.value("truncation_side", "right") == "left";
    const int32_t     n_max = facts.embedding.n_max;
    const std::string given = body["query"].get<std::string>();
    const std::string query = cuts ? end_of_text(given, n_max / 2, facts) : given;
    if (const size_t n = tokenize_pair(query, "", facts).size(); n >= (size_t) n_max) {
        exceed_context("query", "query has " + std::to_string(n) + " tokens; it", (int64_t) n, n_max);
    }
    for (const json & document : body["documents"]) {
        const std::string name = "documents[" + std::to_string(c.texts.size()) + "]";
        std::string       text = document.get<std::string>();
        auto              pair = tokenize_pair(query, text, facts);
        if ((int32_t) pair.size() > n_max && cuts) {
            auto       own   = common_tokenize(facts.vocab, text, false, false);
            const auto n_cut = (ptrdiff_t) std::min(pair.size() - (size_t) n_max, own.size());
            own.erase(left ? own.begin() : own.end() - n_cut, left ? own.begin() + n_cut : own.end());
            text = common_detokenize(facts.vocab, own, false);
            pair = tokenize_pair(query, text, facts);
        }
        if ((int32_t) pair.size() > n_max) {
            exceed_context(name, name + " has with the query " + std::to_string(pair.size()) + " tokens; it",
                           (int64_t) pair.size(), n_max);
        }
        c.texts.push_back(std::move(pair));
    }
}

static void parse_cancel(command & c, const json & body, const command_facts &) {
    c.cancelled = {body.value("index", -1), body.value("reason", "cancelled") == "surplus"};
}

static void parse_limits(command & c, const json & body, const command_facts &) {
    c.cache_ram = body["cache_ram"].get<uint64_t>();
    event_line(c.line, "result", c.id);
}

static void parse_unpin(command & c, const json & body, const command_facts &) {
    c.pin = body["name"];
    event_line(c.line, "result", c.id);
}

// pieces: also the bytes of each token, and which are control tokens.
static void append_tokens(event_line & answer, const std::vector<llama_token> & tokens, bool pieces,
                          const command_facts & facts) {
    answer.raw("tokens", json(tokens).dump());
    if (pieces) {
        json bytes = json::array(); // a token may have a part of a character
        for (llama_token token : tokens) {
            const std::string piece = common_token_to_piece(facts.vocab, token, true);
            bytes.push_back(std::vector<uint8_t>(piece.begin(), piece.end()));
        }
        answer.raw("pieces", bytes.dump());
        std::set<llama_token> control;
        std::copy_if(tokens.begin(), tokens.end(), std::inserter(control, control.end()),
                     [&](llama_token token) { return llama_vocab_is_control(facts.vocab, token); });
        answer.raw("control", json(control).dump());
    }
}

static void answer_tokenize(command & c, const json & body, const command_facts & facts) {
    const auto tokens =
        tokenize_parts(read_parts(body["text"]), facts.vocab, body.value("add_special", false));
    event_line answer(c.line, "result", c.id);
    append_tokens(answer, tokens, body.value("pieces", false), facts);
}

// One command for many short texts, each of which would cost more as a command than its tokens.
static void answer_count_tokens(command & c, const json & body, const command_facts & facts) {
    json counts = json::array();
    for (const json & text : body["texts"]) {
        counts.push_back(common_tokenize(facts.vocab, text.get<std::string>(), false, true).size());
    }
    event_line(c.line, "result", c.id).raw("counts", counts.dump());
}

static void answer_detokenize(command & c, const json & body, const command_facts & facts) {
    std::string bytes;
    for (llama_token token : read_tokens(body["tokens"], facts)) {
        bytes += common_token_to_piece(facts.vocab, token, true);
    }
    std::string text = take_utf8(bytes);
    event_line(c.line, "result", c.id).text("text", text + (bytes.empty() ? "" : "\xEF\xBF\xBD"));
}

// The prompt that a chat with these messages would have.
static void answer_template(command & c, const json & body, const command_facts & facts) {
    const prompt_parts parts = facts.chats->apply(body).parts;
    event_line         answer(c.line, "result", c.id);
    answer.text("prompt", joined_text(parts));
    if (body.value("return_tokens", false)) { // those that a chat's prompt has
        append_tokens(answer, tokenize_parts(parts, facts.vocab, true), body.value("pieces", false), facts);
    }
    if (body.value("plain_content", false)) {
        json list = json::array();
        for (const prompt_part & part : parts) {
            list.push_back({{"text", part.text}, {"special", part.special}});
        }
        answer.raw("parts", list.dump(-1, ' ', false, json::error_handler_t::replace));
    }
}

static void parse_load_adapter(command & c, const json & body, const command_facts & facts) {
    const json & wanted = body["adapter"];
    c.adapter           = std::make_unique<wanted_adapter>(
        facts.adapters->check({wanted["id"], wanted.value("scale", 0.0f), wanted["path"]}));
}

// At once, so that no later command gets the adapter. It is freed after the last request that has it.
static void answer_unload_adapter(command & c, const json & body, const command_facts & facts) {
    facts.adapters->unload(body["adapter"]);
    event_line(c.line, "result", c.id).raw("adapters", facts.adapters->to_json());
}

//
// the fields of each command
//

// Lists of fields, one behind the other.
static std::vector<field_row> joined(std::initializer_list<std::vector<field_row>> lists) {
    std::vector<field_row> rows;
    for (const std::vector<field_row> & list : lists) {
        rows.insert(rows.end(), list.begin(), list.end());
    }
    return rows;
}

// The fields of `continue` and `fork`: a sequence, and how many of its first tokens.
static const std::vector<field_row> & position_fields() {
    static const std::vector<field_row> rows = {
        {"index", integer_between(0, n_max_sequences), true},
        {"at", integer_between(0, std::numeric_limits<int32_t>::max())},
    };
    return rows;
}

static const field_row & lora_field() {
    static const field_row row = {"lora", list_of(object_with(adapter_fields()))};
    return row;
}

// lora and cache_salt: whose cells a prompt may use.
static const std::vector<field_row> & cells_fields() {
    static const std::vector<field_row> rows = {lora_field(), {"cache_salt", string_of(1, n_max_salt)}};
    return rows;
}

static const std::vector<field_row> & score_fields() {
    static const auto                   text = either(any_string(), token_ids());
    static const std::vector<field_row> rows = {
        {"prompt", any_string()},
        {"tokens", token_ids()},
        {"texts", list_of(text, 1, n_max_scored), true},
        {"logprobs", integer_between(0, n_max_logprobs)},
        {"certainty", true_or_false()},
        {"cache", true_or_false()},
    };
    return rows;
}

static const std::vector<field_row> & cancel_fields() {
    static const std::vector<field_row> rows = {
        {"index", integer_between(0, n_max_sequences)},
        {"reason", one_of({"cancelled", "surplus"})},
    };
    return rows;
}

// What generate and chat have in common.
static const std::vector<field_row> & generation_fields() {
    static const std::vector<field_row> rows = joined({
        {{"n", integer_between(1, n_max_sequences)}},
        length_fields(),
        {
            {"negative_prompt", text_or_parts()},
            {"sampling", object_with(sampling_fields())},
            {"sequences", list_of(object_with(sequence_fields()), 0, n_max_sequences)},
            {"logprobs", integer_between(0, n_max_logprobs)},
            {"logprobs_mode", one_of({"raw", "processed", "both"})},
            {"prompt_logprobs", integer_between(0, n_max_logprobs)},
            {"return_token_ids", true_or_false()},
            {"return_entropies", true_or_false()},
            {"draft", integer_between(0, n_max_draft)},
            {"stop_token_ids", token_ids()},
            {"allowed_token_ids", token_ids()},
            {"include_stop_str_in_output", true_or_false()},
            {"skip_special_tokens", true_or_false()},
            {"sum_logprobs", true_or_false()},
            {"echo", true_or_false()},
            {"cache", true_or_false()},
            {"diversity", one_of({"none", "arithmetic"})},
            {"first_token", one_of({"any", "distinct"})},
            {"dedupe", one_of({"mark", "again"})},
            {"private_tokens", short_strings()},
            {"token_healing", true_or_false()},
        },
        cells_fields(),
        limit_fields(),
        {processor_field(), then_field(), end_field()},
        contest_fields(),
        structure_fields(),
        schema_option_fields(),
    });
    return rows;
}

// `op` and `id` are there before a command's fields are checked.
static operation row(const char * name, command::kind kind, read_by thread,
                     std::initializer_list<std::vector<field_row>> fields,
                     void (*parse)(command & c, const json & body, const command_facts & facts)) {
    const std::vector<field_row> all = {{"op", one_of({name}), true},
                                        {"id", any_string(), true},
                                        {"client", any_string()},
                                        {"priority", integer_between(0, n_max_priority)}};
    return {kind, thread, {name, "", joined({all, joined(fields)})}, parse};
}

static const std::vector<operation> & operations() {
    const auto reader = read_by::reader, worker_if_long = read_by::worker_if_long, worker = read_by::worker;
    const auto text_or_tokens = either(any_string(), token_ids());
    const auto fields         = [](std::vector<field_row> rows) { return rows; };

    const field_table continued = {"continue", "continue.",
                                   joined({{{"id", any_string(), true}},
                                           position_fields(),
                                           {{"exact", true_or_false()}},
                                           {{"room", integer_between(1, std::numeric_limits<int32_t>::max())},
                                            {"head", any_string()}}})};
    const field_table fork      = {"fork", "fork.", position_fields()};
    const field_row   schema    = {"json_schema", either(any_string(), any_object())};

    static const std::vector<operation> rows = {
        row("generate", command::generate, worker_if_long,
            {prompt_fields(), fields({{"continue", object_with(continued)}}), generation_fields()},
            parse_generate),
        row("chat", command::generate, worker,
            {chat_fields(), fields({thinking_field(), {"continue", object_with(continued)}}),
             generation_fields()},
            parse_chat),
        row("prefix", command::generate, worker_if_long, {prompt_fields(), cells_fields(), limit_fields()},
            parse_prefix),
        row("pin", command::generate, worker_if_long,
            {fields({{"name", any_string(), true}}), prompt_fields(), cells_fields(), limit_fields()},
            parse_pin),
        row("unpin", command::unpin, reader, {fields({{"name", any_string(), true}})}, parse_unpin),
        row("score", command::generate, worker, {score_fields(), cells_fields()}, parse_score),
        row("extend", command::extend, reader,
            {fields({{"add", integer_between(0, n_max_sequences)},
                     {"max_tokens", integer_between(-1, std::numeric_limits<int32_t>::max())},
                     {"fork", object_with(fork)}})},
            parse_extend),
        row("cancel", command::cancel, reader, {cancel_fields()}, parse_cancel),
        row("status", command::status, reader, {}, nullptr),
        row("limits", command::limits, reader, {fields({{"cache_ram", integer_between(0, n_max_ram), true}})},
            parse_limits),
        row("embed", command::embed, worker,
            {fields({{"input", list_of(text_or_tokens, 1, n_max_embedded), true}}), limit_fields()},
            parse_embed),
        row("rerank", command::embed, worker,
            {fields({{"query", any_string(), true},
                     {"documents", list_of(any_string(), 1, n_max_embedded), true},
                     {"truncate", true_or_false()},
                     {"truncation_side", one_of({"left", "right"})}})},
            parse_rerank),
        row("tokenize", command::answer, worker_if_long,
            {fields({{"text", text_or_parts(), true},
                     {"add_special", true_or_false()},
                     {"pieces", true_or_false()}})},
            answer_tokenize),
        row("count_tokens", command::answer, worker_if_long,
            {fields({{"texts", list_of(any_string(), 1, n_max_counted), true}})}, answer_count_tokens),
        row("detokenize", command::answer, worker_if_long, {fields({{"tokens", token_ids(), true}})},
            answer_detokenize),
        row("load_adapter", command::load_adapter, worker,
            {fields({{"adapter", object_with(loaded_adapter_fields()), true}})}, parse_load_adapter),
        row("unload_adapter", command::answer, reader,
            {fields({{"adapter", integer_between(0, n_max_adapter_id), true}})}, answer_unload_adapter),
        row("template", command::answer, worker,
            {chat_fields(),
             {schema, thinking_field(), {"return_tokens", true_or_false()}, {"pieces", true_or_false()}}},
            answer_template),
    };
    return rows;
}

const operation * find_operation(const std::string & name) {
    const auto row = std::find_if(operations().begin(), operations().end(),
                                  [&](const operation & o) { return o.fields.name == name; });
    return row == operations().end() ? nullptr : &*row;
}

//
// --fields
//

// {"type", …, "properties": {…}} with a property a line.
static std::string printed(const ordered_json & schema) {
    std::string  text;
    ordered_json head = schema;
    head.erase("properties");
    text        = head.dump();
    text.back() = ',';
    text += "\"properties\":{";
    const char * separator = "\n";
    for (const auto & [name, property] : schema["properties"].items()) {
        text += separator + ("  " + ordered_json(name).dump()) + ": " + property.dump();
        separator = ",\n";
    }
    return text + "\n}}";
}

std::string fields_of_all_operations() {
    ordered_json commands, definitions;
    for (const operation & o : operations()) {
        commands[o.fields.name] = json_schema(o.fields, definitions);
    }
    std::string text = "{\"protocol\":" + std::to_string(protocol_version) +
                       ",\"nesting\":" + std::to_string(n_max_json_depth);
    for (const auto & [group, schemas] : {std::pair("commands", commands), std::pair("$defs", definitions)}) {
        text += std::string(",\n\"") + group + "\":{";
        const char * separator = "\n";
        for (const auto & [name, schema] : schemas.items()) {
            text += separator + ordered_json(name).dump() + ": " + printed(schema);
            separator = ",\n";
        }
        text += "\n}";
    }
    return text + "}\n";
}
