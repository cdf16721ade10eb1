// A libFuzzer target for the reader of commands: for any line parse_command neither crashes nor throws, and its
// answer is one line of JSON in UTF-8. scripts/fuzz compiles and runs it.
#include "model/embedding.h"
#include "protocol/commands.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

static command_facts load_facts() {
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    llama_backend_init();
    llama_model_params params = llama_model_default_params();
    params.vocab_only         = true;

    static const common_params options;
    command_facts              facts;
    facts.model = llama_model_load_from_file(getenv("FUZZ_MODEL"), params);
    if (!facts.model) {
        fprintf(stderr, "FUZZ_MODEL=%s cannot be loaded\n", getenv("FUZZ_MODEL"));
        exit(2);
    }
    facts.vocab       = llama_model_get_vocab(facts.model);
    facts.n_ctx_seq   = 768;
    facts.embedding   = read_embedding_facts(facts.model);
    facts.n_piece_max = 32;
    facts.structures  = std::make_shared<structure_cache>(facts.vocab);
    facts.chats       = std::make_shared<chat_templates>(facts.model, options);
    return facts;
}

static void check(bool holds, const char * what, const std::string & line) {
    if (!holds) {
        fprintf(stderr, "%s: %s\n", what, line.c_str());
        abort();
    }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    static const command_facts facts = load_facts();
    const command            c     = parse_command(std::string((const char *) data, size), 1, facts);

    check((c.what == command::answer) == !c.line.empty(), "an answer is a line, and nothing else is", c.line);
    if (!c.line.empty()) {
        check(c.line.find('\n') == c.line.size() - 1, "an answer is one line", c.line);
        check(nlohmann::json::accept(c.line), "an answer is JSON", c.line); // which includes: it is UTF-8
    }
    if (c.what == command::generate) {
        const generate_command & g = *c.request;
        check((int32_t) g.prompt.size() < facts.n_ctx_seq, "a prompt leaves room for a token", c.id);
        check(!g.prompt.empty() || g.continue_from.index >= 0 || !g.texts.empty(), "there is something to go on from",
              c.id);
        for (const scored_text & text : g.texts) {
            check(text.n_given >= 0 && (size_t) text.n_given < text.tokens.size(), "something is scored",
                  c.id);
            check(g.prompt.size() + text.tokens.size() <= (size_t) facts.n_ctx_seq, "it fits", c.id);
        }
        for (llama_token token : g.prompt) {
            check(token >= 0 && token < llama_vocab_n_tokens(facts.vocab), "a token is one", c.id);
        }
    }
    return 0;
}
