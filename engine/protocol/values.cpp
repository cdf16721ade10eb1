#include "protocol/values.h"

#include <limits>

using json = nlohmann::json;

adapter_set read_adapters(const json & body, const command_facts & facts) {
    const std::string salt = body.value("cache_salt", "");
    return body.contains("lora") ? facts.adapters->read(body["lora"], salt) : facts.adapters->defaults(salt);
}

std::vector<llama_token> read_tokens(const json & value, const command_facts & facts, const char * name) {
    std::vector<llama_token> tokens;
    tokens.reserve(value.size());
    for (const json & entry : value) {
        tokens.push_back((llama_token) read_integer(name, entry, 0, llama_vocab_n_tokens(facts.vocab) - 1));
    }
    return tokens;
}

sequence_name read_sequence_name(const json & fields) {
    return {fields.value("id", ""), fields.value("index", -1), fields.value("at", -1),
            fields.value("exact", false)};
}

//
// end
//

static const int32_t n_max_passages = 1000;

const field_row & end_field() {
    static const auto        count = integer_between(1, n_max_passages);
    static const field_table table = {"end", "end.", {{"sentences", count}, {"paragraphs", count}}};
    static const field_row   row   = {"end", object_with(table)};
    return row;
}

passage_limit read_end(const json & body) {
    if (!body.contains("end")) {
        return {};
    }
    const json & fields = body["end"];
    if (fields.size() != 1) {
        invalid("end", "end has " + std::string(fields.empty() ? "none" : "both") +
                           " of sentences and paragraphs; it must have one of them");
    }
    const bool sentences = fields.contains("sentences");
    return {fields.front().get<int32_t>(), sentences ? passage_unit::sentences : passage_unit::paragraphs};
}

//
// finish and prune
//

static const size_t n_max_prune_points = 16;

const std::vector<field_row> & contest_fields() {
    static const field_table finish = {"finish", "finish.", {{"first", integer_between(1, n_max_sequences)}}};
    static const auto        points = integer_between(1, std::numeric_limits<int32_t>::max());
    static const field_table prune  = {"prune",
                                       "prune.",
                                       {{"at", list_of(points, 1, n_max_prune_points), true},
                                        {"keep", integer_between(1, n_max_sequences), true},
                                        {"by", one_of({"certainty", "logprob"})}}};
    static const std::vector<field_row> rows = {
        {"certainty", true_or_false()},
        {"finish", object_with(finish)},
        {"prune", object_with(prune)},
    };
    return rows;
}

finish_settings read_finish(const json & body) {
    const auto fields = body.find("finish");
    return fields == body.end() ? finish_settings() : finish_settings{true, fields->value("first", 0)};
}

prune_settings read_prune(const json & body) {
    prune_settings prune;
    const auto     fields = body.find("prune");
    if (fields == body.end()) {
        return prune;
    }
    prune.at           = (*fields)["at"].get<std::vector<int32_t>>();
    prune.keep         = (*fields)["keep"];
    prune.by_certainty = fields->value("by", "certainty") == "certainty";
    for (size_t i = 1; i < prune.at.size(); i++) {
        if (prune.at[i] <= prune.at[i - 1]) {
            invalid("prune.at", "prune.at has " + std::to_string(prune.at[i]) + " behind " +
                                    std::to_string(prune.at[i - 1]) + "; each length must be above the last");
        }
    }
    return prune;
}
