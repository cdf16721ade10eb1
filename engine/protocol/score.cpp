#include "protocol/operations.h"

#include <algorithm>

using json = nlohmann::json;

static const size_t n_max_texts  = 1024;
static const size_t n_max_scored = 64u << 20; // bytes of its texts, each with the prompt

// Text as the beginning of what a model reads: without the token that some models end a text with.
static std::vector<llama_token> tokenize_beginning(const std::string & text, const llama_vocab * vocab) {
    auto tokens = common_tokenize(vocab, text, true, true);
    if (llama_vocab_get_add_eos(vocab) && !tokens.empty() && tokens.back() == llama_vocab_eos(vocab)) {
        tokens.pop_back();
    }
    return tokens;
}

// What follows the prompt in `whole` is the text's; where a token has an end of the one and a beginning of the
// other it is the text's, too, and the prompt ends before it for all of them. Kept is what the prompt has not.
static void read_scored_text(generate_command & request, const std::vector<llama_token> & whole,
                             const command_facts & facts) {
    const std::string name = "texts[" + std::to_string(request.texts.size()) + "]";
    if ((int64_t) whole.size() > facts.n_ctx_seq) {
        throw command_error("context_exceeded",
                            name + " has " + std::to_string(whole.size()) +
                                " tokens with its prompt; the context of a sequence is " +
                                std::to_string(facts.n_ctx_seq) + " tokens",
                            "texts");
    }
    const auto n   = std::min(whole.size(), request.prompt.size());
    const auto own = std::mismatch(whole.begin(), whole.begin() + (std::ptrdiff_t) n, request.prompt.begin());
    if (own.first == whole.end()) {
        invalid("texts", name + " is empty");
    }
    request.texts.push_back({{own.first, whole.end()}, (int32_t) (own.first - whole.begin())});
}

// Texts and prompt have been tokenized together; now the prompt keeps what is common to all.
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
    auto       request = std::make_unique<generate_command>();
    const json texts   = body.value("texts", json());
    if (!texts.is_array() || texts.empty() || texts.size() > n_max_texts) {
        invalid("texts", "texts must be a list of 1 to " + std::to_string(n_max_texts) +
                             " texts or lists of token ids");
    }
    if (body.contains("prompt") && body.contains("tokens")) {
        invalid("prompt", "only one of prompt (text) and tokens (ids) may be given");
    }
    const bool        exact  = body.contains("tokens");
    const std::string prompt = body.contains("prompt") ? read_string("prompt", body) : "";
    // a prompt that cannot fit need not be tokenized with each text to see it
    check_prompt_length((int64_t) (prompt.size() / facts.n_piece_max), facts, true);
    request->prompt = exact ? read_tokens(body["tokens"], facts) : tokenize_beginning(prompt, facts.vocab);
    check_prompt_length((int64_t) request->prompt.size(), facts);
    size_t n_bytes = 0;
    for (const json & text : texts) {
        if (text.is_string() && !exact) {
            n_bytes += prompt.size() + text.get_ref<const std::string &>().size();
            check_scored_bytes(n_bytes);
            read_scored_text(*request, tokenize_beginning(prompt + text.get<std::string>(), facts.vocab),
                             facts);
        } else if (text.is_string() || text.is_array()) {
            const auto own   = text.is_string() ? common_tokenize(facts.vocab, text, false, true)
                                                : read_tokens(text, facts, "texts");
            auto       whole = request->prompt;
            whole.insert(whole.end(), own.begin(), own.end());
            read_scored_text(*request, whole, facts);
        } else {
            invalid("texts", std::string("texts holds ") + text.type_name() +
                                 "; it must be a list of texts or of lists of token ids");
        }
    }
    share_prompt(*request);
    request->n_logprobs = body.contains("logprobs")
                              ? (int32_t) read_integer("logprobs", body["logprobs"], 0, n_max_logprobs)
                              : 0;
    request->cache      = !body.contains("cache") || read_flag("cache", body["cache"]);
    request->exact      = true;
    request->adapters   = read_adapters(body, facts);

    request->common.settings = std::make_shared<const sequence_settings>();
    c.request                = std::move(request);
}
