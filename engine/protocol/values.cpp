#include "protocol/operations.h"

#include <limits>

using json = nlohmann::json;

adapter_set read_adapters(const json & body, const command_facts & facts) {
    return body.contains("lora") ? facts.adapters.read(body["lora"]) : facts.adapters.defaults();
}

std::vector<llama_token> read_tokens(const json & value, const command_facts & facts, const char * name) {
    if (!value.is_array()) {
        invalid(name, std::string(name) + " is " + value.type_name() + "; it must be a list of token ids");
    }
    std::vector<llama_token> tokens;
    tokens.reserve(value.size());
    for (const json & entry : value) {
        tokens.push_back((llama_token) read_integer(name, entry, 0, llama_vocab_n_tokens(facts.vocab) - 1));
    }
    return tokens;
}

sequence_name read_sequence_name(const std::string & name, const json & fields, bool with_id) {
    if (!fields.is_object()) {
        invalid(name, name + " is " + fields.type_name() + "; it must be an object");
    }
    sequence_name named;
    for (const auto & [key, value] : fields.items()) {
        if (key == "index") {
            named.index = (int32_t) read_integer(name + ".index", value, 0, n_max_sequences);
        } else if (key == "at") {
            named.at = (int32_t) read_integer(name + ".at", value, 0, std::numeric_limits<int32_t>::max());
        } else if (key != "id" || !with_id) {
            invalid(name, name + " has no field \"" + key + "\"");
        }
    }
    if (named.index < 0) {
        invalid(name, name + ".index is missing");
    }
    named.id = with_id ? read_string("id", fields) : "";
    return named;
}
