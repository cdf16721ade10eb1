#include "protocol/second_answer.h"

#include <limits>

using json = nlohmann::json;

const field_row & then_field() {
    static const field_row row = [] {
        field_table  table      = {"then",
                                   "then.",
                                   {{"text", any_string(), true},
                                    {"max_tokens", integer_between(-1, std::numeric_limits<int32_t>::max())},
                                    {"stop", short_strings()},
                                    {"return_free", true_or_false()},
                                    {"special", true_or_false()}}};
        const auto & structures = structure_fields();
        table.rows.insert(table.rows.end(), structures.begin(), structures.end());
        return field_row{"then", object_with(table)};
    }();
    return row;
}

static void refuse_with(const json & body, const char * name, const char * why) {
    if (body.contains(name) && body[name] != false) {
        invalid("then", std::string("only one of then and ") + name + " may be given: " + why);
    }
}

// An error of a grammar names the field with its object.
static found_structure read_structure(const json & fields, const json & body, const command_facts & facts) {
    try {
        return facts.structures->find(fields, read_schema_options(body));
    } catch (command_error & e) {
        throw command_error(e.code, std::string("then.") + e.what(), "then." + e.param);
    }
}

std::optional<then_fields> then_fields::read(const json & body, const command_facts & facts) {
    if (!body.contains("then")) {
        return std::nullopt;
    }
    refuse_with(body, "echo", "the second answer does not follow the prompt");
    refuse_with(body, "dedupe", "equal second answers may belong to different free answers");
    refuse_with(body, "tools", "a free answer that calls a tool is not complete");
    refuse_with(body, "return_token_ids", "the tokens of then.text are not drawn");
    refuse_with(body, "return_entropies", "the tokens of then.text are not drawn");
    const json & fields = body["then"];
    then_fields  then;
    then.text =
        tokenize_behind({{fields["text"].get<std::string>(), fields.value("special", true)}}, facts.vocab);
    const found_structure found = read_structure(fields, body, facts);
    for (const std::string & warning : found.warnings) {
        then.warnings.push_back("then." + warning);
    }
    then.structure   = found.rules;
    then.stop        = fields.value("stop", then.stop);
    then.n_predict   = fields.value("max_tokens", then.n_predict);
    then.return_free = fields.value("return_free", false);
    if (then.n_predict == 0) {
        invalid("then.max_tokens", "then.max_tokens is 0; it must be -1 or at least 1");
    }
    return then;
}

std::shared_ptr<const second_answer> make_second(const sequence_settings & free, const then_fields & then) {
    auto settings             = std::make_shared<sequence_settings>(free);
    settings->structure       = then.structure;
    settings->structure_start = nullptr;
    settings->n_predict       = then.n_predict;
    settings->n_min           = 0;
    settings->ends.tokens     = {};
    settings->ends.passages   = {};
    settings->ends.finder     = then.stop.empty() ? nullptr : std::make_shared<const word_finder>(then.stop);
    return std::make_shared<const second_answer>(second_answer{settings, then.text, then.return_free});
}

void check_room(const generate_command & request, const then_fields & then, const command_facts & facts) {
    const int64_t n = (int64_t) (request.prompt.size() + then.text.size());
    if (n + 1 > facts.n_ctx_seq) {
        exceed_context("then", "prompt and then.text have " + std::to_string(n) + " tokens; with one more it",
                       n, facts.n_ctx_seq);
    }
}
