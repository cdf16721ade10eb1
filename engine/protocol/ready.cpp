#include "protocol/ready.h"

#include "model/placement.h"
#include "protocol/event_line.h"
#include "util/backend.h"

#include "build-info.h"

#include <common.h> // llama.cpp's common/common.h

#include <string>
#include <utility>

void report_loading(int fd, float progress) {
    std::string line;
    event_line(line, "loading").number("progress", progress);
    write_lines(fd, line); // ends the process when the server is gone
}

// The texts of the tokens that separate the parts of an infill prompt; an empty object if the model has none.
static std::string infill_tokens(const llama_vocab * vocab) {
    const std::pair<const char *, llama_token> tokens[] = {
        {"prefix", llama_vocab_fim_pre(vocab)},    {"suffix", llama_vocab_fim_suf(vocab)},
        {"middle", llama_vocab_fim_mid(vocab)},    {"repository", llama_vocab_fim_rep(vocab)},
        {"separator", llama_vocab_fim_sep(vocab)},
    };
    std::string object;
    for (const auto & [name, token] : tokens) {
        if (token != LLAMA_TOKEN_NULL) {
            object += std::string(object.empty() ? "\"" : ",\"") + name + "\":";
            append_json_string(object, common_token_to_piece(vocab, token, true));
        }
    }
    return "{" + object + "}";
}

static std::string description(const model_facts & facts) {
    char description[128];
    llama_model_desc(facts.model, description, sizeof(description));
    std::string model;
    model += "{\"description\":";
    append_json_string(model, description);
    model += ",\"n_params\":" + std::to_string(llama_model_n_params(facts.model));
    model += ",\"n_vocab\":" + std::to_string(llama_vocab_n_tokens(facts.vocab));
    model += ",\"n_ctx_train\":" + std::to_string(llama_model_n_ctx_train(facts.model));
    return model + ",\"infill\":" + infill_tokens(facts.vocab) + "}";
}

void report_ready(int fd, const model_facts & facts, llama_context * ctx, int32_t n_parallel,
                  const char * drafts) {
    std::string embedding = std::string("{\"only\":") + (facts.embedding.only ? "true" : "false");
    embedding += std::string(",\"pooling\":\"") + facts.embedding.pooling_name() + "\"";
    embedding += ",\"dimensions\":" + std::to_string(facts.embedding.n_dimensions);
    embedding += ",\"max_tokens\":" + std::to_string(facts.embedding.n_max) + "}";

    std::string line;
    event_line(line, "ready")
        .integer("protocol", protocol_version)
        .raw("model", description(facts))
        .integer("n_ctx", llama_n_ctx(ctx))
        .integer("n_ctx_sequence", facts.n_ctx_seq)
        .integer("max_sequences", n_parallel)
        .raw("adapters", facts.adapters->to_json())
        .raw("embedding", embedding)
        .text("backend", backend_name())
        .raw("devices", placement_to_json(ctx))
        .integer("layers", n_layers(facts.model))
        .integer("gpu_layers", facts.n_gpu_layers)
        .text("drafts", drafts)
        .text("cpu", cpu_variant())
        .text("commit", llama_commit());
    write_lines(fd, line);
}
