#include "protocol/values.h"

using json = nlohmann::json;

adapter_set read_adapters(const json & body, const command_facts & facts) {
    return body.contains("lora") ? facts.adapters->read(body["lora"]) : facts.adapters->defaults();
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
