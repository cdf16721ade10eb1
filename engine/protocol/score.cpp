#include "protocol/operations.h"
#include "protocol/values.h"

#include <algorithm>

using json = nlohmann::json;

static const size_t n_max_scored = 64u << 20; // bytes of all texts, each with the prompt

// Tokenizes the beginning of a text: without the token that some models add at the end.
static std::vector<llama_token> tokenize_beginning(const std::string & text, const llama_vocab * vocab) {
    auto tokens = common_tokenize(vocab, text, true, true);
    if (llama_vocab_get_add_eos(vocab) && !tokens.empty() && tokens.back() == llama_vocab_eos(vocab)) {
        tokens.pop_back();
    }
    return tokens;
}

// joined: the tokens of prompt and text together. The tokens behind the common beginning with the prompt are scored. A
// token that spans the end of the prompt counts as the text's, and share_prompt ends the prompt before it.
static void read_scored_text(generate_command & request, const std::vector<llama_token> & joined,
                             const command_facts & facts) {
    const std::string name = "texts[" + std::to_string(request.texts.size()) + "]";
    if ((int64_t) joined.size() > facts.n_ctx_seq) {
        exceed_context("texts",
                       name + " has " + std::to_string(joined.size()) + " tokens with its prompt; it",
                       (int64_t) joined.size(), facts.n_ctx_seq);
    }
    const auto n = std::min(joined.size(), request.prompt.size());
    const auto own =
        std::mismatch(joined.begin(), joined.begin() + (std::ptrdiff_t) n, request.prompt.begin());
    if (own.first == joined.end()) {
        invalid("texts", name + " is empty");
    }
    request.texts.push_back({{own.first, joined.end()}, (int32_t) (own.first - joined.begin())});
}

// Shortens the prompt to the tokens that all texts have in common; the texts get the other tokens.
static void share_prompt(generate_command & request) {
    int32_t n_shared = (int32_t) request.prompt.size();
    for (const scored_text & text : request.texts) {
        n_shared = std::min(n_shared, text.n_given);
    }
    for (scored_text & text : request.texts) {
        text.tokens.insert(text.tokens.begin(), request.prompt.begin() + n_shared,
                           request.prompt.begin() + text.n_given);
        text.n_given -= n_shared;
    }
    request.prompt.resize(n_shared);
}

static void check_scored_bytes(size_t n_bytes) {
    if (n_bytes > n_max_scored) {
        invalid("texts", "the texts have more than " + std::to_string(n_max_scored) +
                             " bytes, each with the prompt before it; send fewer at once");
    }
}

void parse_score(command & c, const json & body, const command_facts & facts) {
    auto request = std::make_unique<generate_command>();
    if (body.contains("prompt") && body.contains("tokens")) {
        invalid("prompt", "only one of prompt (text) and tokens (ids) may be given");
    }
    const bool        exact  = body.contains("tokens");
    const std::string prompt = body.value("prompt", "");
    // a prompt that is too long at any number of bytes a token is not tokenized with each text
    check_prompt_length((int64_t) (prompt.size() / facts.n_piece_max), facts, true);
    request->prompt = exact ? read_tokens(body["tokens"], facts) : tokenize_beginning(prompt, facts.vocab);
    check_prompt_length((int64_t) request->prompt.size(), facts);
    size_t n_bytes = 0;
    for (const json & text : body["texts"]) {
        if (text.is_string() && !exact) {
            n_bytes += prompt.size() + text.get_ref<const std::string &>().size();
            check_scored_bytes(n_bytes);
            read_scored_text(*request, tokenize_beginning(prompt + text.get<std::string>(), facts.vocab),
                             facts);
        } else {
            const auto own    = text.is_string() ? common_tokenize(facts.vocab, text, false, true)
                                                 : read_tokens(text, facts, "texts");
            auto       joined = request->prompt;
            joined.insert(joined.end(), own.begin(), own.end());
            read_scored_text(*request, joined, facts);
        }
    }
    share_prompt(*request);
    request->n_logprobs = body.value("logprobs", 0);
    request->certainty  = body.value("certainty", false);
    request->cache      = body.value("cache", true);
    request->exact      = true;
    request->adapters   = read_adapters(body, facts);

    request->common.settings = std::make_shared<const sequence_settings>();
    c.request                = std::move(request);
}
