#include "protocol.h"

#include "text.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <unistd.h>

using json   = nlohmann::json;
using params = common_params_sampling;

static const int     n_max_depth    = 64; // of nested JSON
static const int64_t n_max_logprobs = 1000;
static const size_t  n_max_texts    = 1024;      // of a score command
static const size_t  n_max_scored   = 64u << 20; // bytes of its texts, each with the prompt
static const size_t  n_max_embedded = 2048;      // of an embed command
static const size_t  n_max_lists    = 128 << 10; // bytes of all stop strings, banned phrases and breakers

//
// commands
//

// Nesting is bounded before parsing, since what comes after the parser is recursive.
static bool too_deep(const std::string & line) {
    int  depth     = 0;
    bool in_string = false;
    for (size_t i = 0; i < line.size(); i++) {
        const char c = line[i];
        if (in_string) {
            i += c == '\\';
            in_string = c != '"';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > n_max_depth) {
                return true;
            }
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return false;
}

static json parse_object(const std::string & line) {
    if (too_deep(line)) {
        invalid("", "the command is nested more than " + std::to_string(n_max_depth) + " levels deep");
    }
    json body;
    try {
        body = json::parse(line);
    } catch (const json::exception & e) { // no JSON, or a number beyond any type
        invalid("", std::string("the command is not JSON: ") + e.what());
    }
    if (!body.is_object()) {
        invalid("", std::string("the command is ") + body.type_name() + "; it must be an object");
    }
    return body;
}

static std::string read_string(const std::string & name, const json & body) {
    const auto it = body.find(name);
    if (it == body.end()) {
        invalid(name, name + " is missing");
    }
    if (!it->is_string()) {
        invalid(name, name + " is " + it->type_name() + "; it must be a string");
    }
    return it->get<std::string>();
}

static bool read_flag(const std::string & name, const json & value) {
    if (!value.is_boolean()) {
        invalid(name, name + " is " + value.type_name() + "; it must be true or false");
    }
    return value.get<bool>();
}

// One of the names of a list, as its place there.
static size_t read_name(const std::string & name, const json & value,
                        const std::vector<std::string> & names) {
    const auto it = std::find_if(names.begin(), names.end(), [&](const auto & n) { return value == n; });
    if (it == names.end()) {
        std::string list;
        for (const std::string & known : names) {
            list += (list.empty() ? "\"" : ", \"") + known + "\"";
        }
        invalid(name, name + " is " + (value.is_string() ? value.dump() : value.type_name()) +
                          "; it must be one of " + list);
    }
    return (size_t) (it - names.begin());
}

// Without the field: the adapters as they were loaded.
static adapter_set read_adapters(const json & body, const model_facts & facts) {
    return body.contains("lora") ? facts.adapters.read(body["lora"]) : facts.adapters.defaults();
}

static std::vector<llama_token> read_tokens(const json & value, const model_facts & facts,
                                            const char * name = "tokens") {
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

static void check_prompt_length(int64_t n_tokens, const char * at_least, const model_facts & facts) {
    if (n_tokens + 1 > facts.n_ctx_seq) {
        throw command_error("context_exceeded",
                            "the prompt has " + std::string(at_least) + std::to_string(n_tokens) +
                                " tokens; with one more it exceeds the context of " +
                                std::to_string(facts.n_ctx_seq) + " tokens per sequence",
                            "prompt");
    }
}

void check_prompt_length(int64_t n_tokens, const model_facts & facts) {
    check_prompt_length(n_tokens, "", facts);
}

// "continue": {"id", "index", "at"}
static sequence_name read_sequence_name(const std::string & name, const json & fields, bool with_id) {
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

// The prompt, or what follows the continued sequence, which may be nothing.
static void read_prompt(generate_command & request, const json & body, const model_facts & facts) {
    const bool continues = request.go_on.index >= 0;
    if (body.contains("prompt") && body.contains("tokens")) {
        invalid("prompt", "only one of prompt (text) and tokens (ids) may be given");
    }
    if (body.contains("tokens")) {
        request.prompt = read_tokens(body["tokens"], facts);
        request.exact  = true;
    } else if (body.contains("prompt") || !continues) {
        const std::string text = read_string("prompt", body);
        // a prompt that cannot fit need not be tokenized to see it
        check_prompt_length((int64_t) (text.size() / facts.n_piece_max), "at least ", facts);
        const auto plain = common_tokenize(facts.vocab, text, false, true);
        request.prompt   = continues ? plain : common_tokenize(facts.vocab, text, true, true);
        if (!llama_vocab_get_add_eos(facts.vocab)) {
            request.n_bos = (int32_t) (request.prompt.size() - plain.size());
        }
    }
    if (request.prompt.empty() && !continues) {
        invalid("prompt", "the prompt is empty, and the model has no token to begin with");
    }
    check_prompt_length((int64_t) request.prompt.size(), facts);
}

static void read_overrides(sequence_settings & settings, const json & fields, const model_facts & facts) {
    if (!fields.is_object()) {
        invalid("sequences",
                std::string("sequences holds ") + fields.type_name() + "; it must be a list of objects");
    }
    for (const auto & [name, value] : fields.items()) {
        if (!read_sequence_field(settings, name, value)) {
            read_sampling_field(settings.sampling, name, value, facts.vocab, facts.n_ctx_seq);
        }
    }
}

// A phrase that a single token can bring is forbidden beforehand; the scheduler steps back from the others.
// The vocabulary is searched once for each list of phrases.
using banned_tokens = std::map<std::vector<std::string>, std::vector<llama_token>>;

static std::vector<llama_logit_bias> ban_phrases(const sequence_settings & settings,
                                                 const model_facts & facts, banned_tokens & known) {
    std::vector<llama_logit_bias> bans;
    if (settings.banned.empty()) {
        return bans;
    }
    if (llama_model_is_recurrent(facts.model) || llama_model_is_hybrid(facts.model)) {
        invalid("banned_strings",
                "banned_strings is not possible with this model: a recurrent state cannot step back");
    }
    auto tokens = known.find(settings.banned);
    if (tokens == known.end()) {
        std::vector<std::string> lower(settings.banned.size());
        std::transform(settings.banned.begin(), settings.banned.end(), lower.begin(), ascii_lower);
        tokens = known.emplace(settings.banned, tokens_with(word_finder(lower), facts.vocab)).first;
    }
    for (llama_token token : tokens->second) {
        bans.push_back({token, -INFINITY});
    }
    return bans;
}

// Which lists of some settings are their own.
struct own_lists {
    bool stop = true, banned = true, breakers = true, biases = true;
};

// logit_bias and banned phrases, in the form that a draw needs.
static void make_biases(sequence_settings & settings, const model_facts & facts, banned_tokens & known) {
    std::vector<llama_logit_bias> list = ban_phrases(settings, facts, known);
    list.insert(list.end(), settings.sampling.logit_bias.begin(), settings.sampling.logit_bias.end());
    settings.biases =
        list.empty() ? nullptr
                     : std::make_shared<token_biases>(std::move(list), llama_vocab_n_tokens(facts.vocab));
}

static word_finder_ptr finder_of(const std::vector<std::string> & words) {
    return words.empty() ? nullptr : std::make_shared<const word_finder>(words);
}

static size_t n_bytes_of(const std::vector<std::string> & words) {
    return std::accumulate(words.begin(), words.end(), size_t(0),
                           [](size_t n, const std::string & word) { return n + word.size(); });
}

// Takes settings that have been read whole. `lists`: those of them that are not shared with others; n_bytes: of
// this request's lists so far.
static std::shared_ptr<const sequence_settings> finish(sequence_settings && settings, const own_lists & lists,
                                                       const model_facts & facts, banned_tokens & known,
                                                       size_t & n_bytes) {
    n_bytes += (lists.stop ? n_bytes_of(settings.stop) : 0) +
               (lists.banned ? n_bytes_of(settings.banned) : 0) +
               (lists.breakers ? n_bytes_of(settings.sampling.dry_sequence_breakers) : 0);
    if (n_bytes > n_max_lists) {
        invalid("stop", "the strings of stop, banned_strings and dry_sequence_breakers have " +
                            std::to_string(n_bytes) + " bytes in all; a request may have " +
                            std::to_string(n_max_lists));
    }
    if (lists.banned || lists.biases) {
        make_biases(settings, facts, known);
    }
    settings.sampling.logit_bias = {}; // the chain has none of its own
    if (lists.stop) {
        settings.stop_finder = finder_of(settings.stop);
    }
    if (lists.banned) {
        std::transform(settings.banned.begin(), settings.banned.end(), settings.banned.begin(), ascii_lower);
        settings.banned_finder = finder_of(settings.banned);
    }
    settings.stop = settings.banned = {}; // the finders have them
    return std::make_shared<const sequence_settings>(std::move(settings));
}

// Coupled sequences draw from one distribution as long as their texts are equal: their settings must be the
// same, but for those that only say when to stop, or that a sequence draws by itself (seed).
static void check_coupling(const coupling & coupled, const params & own, const json & body) {
    const std::string given = coupled.arithmetic ? "diversity" : "first_token";
    if (coupled.arithmetic) {
        const auto & steps    = own.samplers;
        const bool   adaptive = own.adaptive_target >= 0.0f ||
                                std::count(steps.begin(), steps.end(), COMMON_SAMPLER_TYPE_ADAPTIVE_P) > 0;
        if (own.mirostat != 0 || adaptive) {
            invalid(given, "diversity is \"arithmetic\", which is not possible with " +
                               std::string(own.mirostat != 0 ? "mirostat" : "adaptive_p") +
                               ": its draws depend on more than the text");
        }
    }
    for (const json & overrides : body.value("sequences", json::array())) {
        for (const auto & [name, value] : overrides.items()) {
            if (name != "max_tokens" && name != "stop" && name != "seed") {
                invalid(given,
                        given + " couples sequences whose settings are the same; sequences has " + name);
            }
        }
    }
}

static void read_sampling(params & sampling, const json & fields, const model_facts & facts) {
    if (!fields.is_object()) {
        invalid("sampling", std::string("sampling is ") + fields.type_name() + "; it must be an object");
    }
    for (const auto & [name, value] : fields.items()) {
        read_sampling_field(sampling, name, value, facts.vocab, facts.n_ctx_seq);
    }
}

// A sequence with settings of its own, as far as they are; true when it needs more than a seed and a limit.
static bool read_own(sequence_plan & own, sequence_settings & settings, const json & fields,
                     const chat_prompt * chat, const model_facts & facts) {
    read_overrides(settings, fields, facts);
    const size_t n_plain = fields.contains("seed") + fields.contains("max_tokens");
    own.n_predict        = settings.n_predict;
    if (chat && fields.contains("stop")) {
        settings.stop.insert(settings.stop.end(), chat->stop.begin(), chat->stop.end());
    }
    if (settings.sampling.seed != LLAMA_DEFAULT_SEED) {
        own.seed               = settings.sampling.seed;
        own.coupled.arithmetic = false;
    }
    return fields.size() > n_plain;
}

// Each sequence: the common settings, its own seed, its own overrides. LLAMA_DEFAULT_SEED is none.
static void make_sequences(generate_command & request, sequence_settings && common, const json & body,
                           const chat_prompt * chat, const model_facts & facts) {
    const json    overrides = body.value("sequences", json::array());
    const int64_t n_default = overrides.empty() ? 1 : (int64_t) overrides.size();
    const int64_t n = body.contains("n") ? read_integer("n", body["n"], 1, n_max_sequences) : n_default;
    if (!overrides.is_array() || (body.contains("sequences") && (int64_t) overrides.size() != n)) {
        invalid("sequences", "sequences must be a list of n = " + std::to_string(n) + " objects");
    }
    banned_tokens known;
    size_t        n_bytes    = 0;
    auto          as_read    = common;
    as_read.sampling.seed    = LLAMA_DEFAULT_SEED;
    request.common.n_predict = common.n_predict;
    request.common.settings  = finish(std::move(common), own_lists(), facts, known, n_bytes);
    as_read.stop_finder      = request.common.settings->stop_finder;
    as_read.banned_finder    = request.common.settings->banned_finder;
    as_read.biases           = request.common.settings->biases;
    request.sequences.assign((size_t) n, request.common);
    for (size_t i = 0; i < request.sequences.size(); i++) {
        sequence_plan & own = request.sequences[i];
        own.seed            = sequence_seed(request.common.seed, (int64_t) i);
        own.coupled.index   = (int32_t) i;
        if (!overrides.empty()) {
            sequence_settings settings = as_read;
            if (read_own(own, settings, overrides[i], chat, facts)) {
                const json &    fields = overrides[i];
                const own_lists lists  = {fields.contains("stop"), fields.contains("banned_strings"),
                                          fields.contains("dry_sequence_breakers"),
                                          fields.contains("logit_bias")};
                own.settings           = finish(std::move(settings), lists, facts, known, n_bytes);
            }
        }
    }
}

static bool read_logprobs_mode(const json & value) {
    if (value != "raw" && value != "processed") {
        invalid("logprobs_mode",
                "logprobs_mode is " + value.dump().substr(0, 60) + "; it must be \"raw\" or \"processed\"");
    }
    return value == "processed";
}

// The fields that say what the texts may be, of the command or of the chat that it is.
static void read_structure(sequence_settings & settings, const json & body, const chat_prompt * chat,
                           const model_facts & facts) {
    settings.structure = facts.structures->find(body);
    if (!chat) {
        return;
    }
    settings.stop.insert(settings.stop.end(), chat->stop.begin(), chat->stop.end());
    if (chat->grammar.empty()) {
        return;
    }
    if (settings.structure) {
        invalid("tools", "only one of tools or json_schema and grammar, regex or choice may be given");
    }
    settings.structure = facts.structures->find_chat(chat->grammar, chat->format->shown);
    settings.structure_start =
        std::shared_ptr<const grammar_start>(chat->format, &chat->format->start); // lives as long
}

// chat: what its messages have become; nullptr: it has none.
static void read_generate(command & c, const json & body, const chat_prompt * chat,
                          const model_facts & facts) {
    auto              request = std::make_unique<generate_command>();
    sequence_settings common;
    coupling          coupled;
    for (const auto & [name, value] : body.items()) {
        if (name == "sampling") {
            read_sampling(common.sampling, value, facts);
        } else if (name == "continue") {
            request->go_on = read_sequence_name(name, value, true);
        } else if (name == "cache") {
            request->cache = read_flag(name, value);
        } else if (name == "echo") {
            request->echo = read_flag(name, value);
        } else if (name == "logprobs_mode") {
            request->processed = read_logprobs_mode(value);
        } else if (name == "logprobs") {
            request->n_logprobs = (int32_t) read_integer(name, value, 0, n_max_logprobs);
        } else if (name == "sum_logprobs") {
            request->sum_logprobs = read_flag(name, value);
        } else if (name == "diversity") {
            coupled.arithmetic = read_name(name, value, {"none", "arithmetic"}) == 1;
        } else if (name == "first_token") {
            coupled.distinct_first = read_name(name, value, {"any", "distinct"}) == 1;
        } else if (name == "dedupe") {
            request->again      = read_name(name, value, {"mark", "again"}) == 1;
            request->mark_twins = true;
        } else {
            read_sequence_field(common, name, value);
        }
    }
    request->adapters = read_adapters(body, facts);
    read_structure(common, body, chat, facts);
    const uint32_t given = common.sampling.seed;
    coupled.seed         = sequence_seed(given == LLAMA_DEFAULT_SEED ? std::random_device()() : given, 0);
    request->common.seed = coupled.seed;
    if (coupled.arithmetic || coupled.distinct_first) {
        check_coupling(coupled, common.sampling, body);
    }
    request->common.coupled = coupled;
    make_sequences(*request, std::move(common), body, chat, facts);
    read_prompt(*request, body, facts);
    request->chat = chat ? chat->format : nullptr;
    c.request     = std::move(request);
}

static void parse_generate(command & c, const json & body, const model_facts & facts) {
    read_generate(c, body, nullptr, facts);
}

// A generate command whose prompt is made of messages, with a grammar of its own if there are tools or a
// schema.
static void parse_chat(command & c, const json & body, const model_facts & facts) {
    const chat_prompt chat  = facts.chats->apply(body);
    json              plain = body;
    for (const char * name : chat_fields) {
        if (name != std::string_view("json_schema") ||
            !chat.grammar.empty()) { // some templates make none of it
            plain.erase(name);
        }
    }
    plain["prompt"] = chat.text;
    read_generate(c, plain, &chat, facts);
}

static void parse_prefix(command & c, const json & body, const model_facts & facts) {
    c.request           = std::make_unique<generate_command>();
    c.request->adapters = read_adapters(body, facts);
    read_prompt(*c.request, body, facts);
}

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
                             const model_facts & facts) {
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

static void parse_score(command & c, const json & body, const model_facts & facts) {
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
    check_prompt_length((int64_t) (prompt.size() / facts.n_piece_max), "at least ", facts);
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

static void parse_extend(command & c, const json & body, const model_facts &) {
    extend_command & e = c.extension;
    if (body.contains("add")) {
        e.n_add = (int32_t) read_integer("add", body["add"], 0, n_max_sequences);
    } else if (body.contains("max_tokens") && !body.contains("fork")) {
        e.n_add = 0; // a later limit, and nothing else
    }
    if (body.contains("max_tokens")) {
        e.n_predict =
            (int32_t) read_integer("max_tokens", body["max_tokens"], -1, std::numeric_limits<int32_t>::max());
    }
    if (body.contains("fork")) {
        e.fork = read_sequence_name("fork", body["fork"], false);
    }
}

static void require_generation(const model_facts & facts) {
    if (facts.embedding.only) {
        invalid("", std::string("this is an embedding model (pooling: ") + facts.embedding.pooling_name() +
                        "); it makes vectors of texts and generates none");
    }
}

static void parse_embed(command & c, const json & body, const model_facts & facts) {
    const json texts = body.value("input", json());
    if (facts.embedding.pooling == LLAMA_POOLING_TYPE_RANK) {
        invalid("", "this model ranks texts (pooling: rank); it makes no vectors");
    }
    if (!texts.is_array() || texts.empty() || texts.size() > n_max_embedded) {
        invalid("input", "input must be a list of 1 to " + std::to_string(n_max_embedded) +
                             " texts or lists of token ids");
    }
    for (const json & text : texts) {
        const std::string name = "input[" + std::to_string(c.texts.size()) + "]";
        if (!text.is_string() && !text.is_array()) {
            invalid("input", name + " is " + text.type_name() + "; it must be a text or a list of token ids");
        }
        c.texts.push_back(text.is_string() ? common_tokenize(facts.vocab, text.get<std::string>(), true, true)
                                           : read_tokens(text, facts, "input"));
        const size_t n = c.texts.back().size();
        if (n == 0 || n > (size_t) facts.embedding.n_max) {
            throw command_error(n == 0 ? "invalid_request" : "context_exceeded",
                                name + " has " + std::to_string(n) + " tokens; it must have 1 to " +
                                    std::to_string(facts.embedding.n_max),
                                "input");
        }
    }
}

static void parse_cancel(command & c, const json & body, const model_facts &) {
    c.index =
        body.contains("index") ? (int32_t) read_integer("index", body["index"], 0, n_max_sequences) : -1;
}

static void answer_tokenize(command & c, const json & body, const model_facts & facts) {
    const bool special = body.contains("add_special") && read_flag("add_special", body["add_special"]);
    const auto tokens  = common_tokenize(facts.vocab, read_string("text", body), special, true);
    event_line answer(c.line, "result", c.id);
    answer.raw("tokens", json(tokens).dump());
    if (body.contains("pieces") && read_flag("pieces", body["pieces"])) {
        json pieces = json::array(); // of bytes: a token may have a part of a character
        for (llama_token token : tokens) {
            const std::string piece = common_token_to_piece(facts.vocab, token, true);
            pieces.push_back(std::vector<uint8_t>(piece.begin(), piece.end()));
        }
        answer.raw("pieces", pieces.dump());
    }
}

static void answer_detokenize(command & c, const json & body, const model_facts & facts) {
    std::string bytes;
    for (llama_token token : read_tokens(body.value("tokens", json()), facts)) {
        bytes += common_token_to_piece(facts.vocab, token, true);
    }
    std::string text = take_utf8(bytes);
    event_line(c.line, "result", c.id).text("text", text + (bytes.empty() ? "" : "\xEF\xBF\xBD"));
}

// The prompt that a chat with these messages would have.
static void answer_template(command & c, const json & body, const model_facts & facts) {
    event_line(c.line, "result", c.id).text("prompt", facts.chats->apply(body).text);
}

namespace {

// Whether a command is read where it comes in, or by a worker.
enum effort { at_once, by_size, by_worker };

struct operation {
    const char *              name;
    command::kind             kind;
    effort                    work;
    std::vector<const char *> fields; // beside op, id and client
    void (*parse)(command & c, const json & body, const model_facts & facts);
};

// clang-format off
const operation operations[] = {
    {"generate",   command::generate, by_size,   {"prompt", "tokens", "continue", "n", "max_tokens", "min_tokens", "stop", "banned_strings",
                                                  "sampling", "sequences", "logprobs", "cache", "echo", "grammar", "json_schema",
                                                  "regex", "choice", "lora", "logprobs_mode", "diversity", "first_token", "sum_logprobs",
                                                  "dedupe"},                                             parse_generate   },
    {"chat",       command::generate, by_worker, {"messages", "tools", "tool_choice", "parallel_tool_calls", "json_schema",
                                                  "reasoning_format", "enable_thinking", "chat_template_kwargs",
                                                  "add_generation_prompt", "continue_final_message", "n", "max_tokens",
                                                  "min_tokens", "stop", "banned_strings", "sampling", "sequences", "logprobs",
                                                  "cache", "echo", "grammar", "regex", "choice", "diversity", "first_token",
                                                  "sum_logprobs", "dedupe", "lora", "logprobs_mode"},    parse_chat       },
    {"prefix",     command::generate, by_size,   {"prompt", "tokens", "lora"},                           parse_prefix     },
    {"score",      command::generate, by_worker, {"prompt", "tokens", "texts", "logprobs", "cache",
                                                  "lora"},                                               parse_score      },
    {"extend",     command::extend,   at_once,   {"add", "max_tokens", "fork"},                          parse_extend     },
    {"cancel",     command::cancel,   at_once,   {"index"},                                              parse_cancel     },
    {"status",     command::status,   at_once,   {},                                                     nullptr          },
    {"embed",      command::embed,    by_worker, {"input"},                                              parse_embed      },
    {"tokenize",   command::answer,   by_size,   {"text", "add_special", "pieces"},                      answer_tokenize  },
    {"detokenize", command::answer,   by_size,   {"tokens"},                                             answer_detokenize},
    {"template",   command::answer,   by_worker, {"messages", "tools", "tool_choice", "parallel_tool_calls", "json_schema",
                                                  "reasoning_format", "enable_thinking", "chat_template_kwargs",
                                                  "add_generation_prompt", "continue_final_message"},    answer_template  },
};
// clang-format on

const size_t n_quick = 16 << 10; // bytes: of more text the tokens take milliseconds

// Fields whose reading takes time beyond their size.
const char * const slow_fields[] = {"\"grammar\"", "\"json_schema\"", "\"regex\"", "\"choice\"",
                                    "\"banned_strings\""};

const operation * find_operation(const std::string & name) {
    const auto row = std::find_if(std::begin(operations), std::end(operations),
                                  [&](const operation & o) { return name == o.name; });
    return row == std::end(operations) ? nullptr : &*row;
}

// Takes op, id and client from a line and reads no further than it must.
struct head_reader : nlohmann::json_sax<json> {
    command_head head;
    std::string  name; // of the value that comes
    int          depth = 0;

    bool start_object(size_t) override { return ++depth > 0; }
    bool end_object() override { return --depth > 0; }
    bool start_array(size_t) override { return ++depth > 1; } // a command is no list
    bool end_array() override { return --depth > 0; }
    bool key(std::string & value) override {
        if (depth == 1) {
            name = value;
        }
        return depth > 1 || head.op.empty() || head.id.empty() || name == "client";
    }
    bool string(std::string & value) override {
        if (depth == 1) {
            std::string * const where = name == "op"       ? &head.op
                                        : name == "id"     ? &head.id
                                        : name == "client" ? &head.client
                                                           : nullptr;
            if (where) {
                *where = value;
            }
        }
        return true;
    }
    bool null() override { return true; }
    bool boolean(bool) override { return true; }
    bool number_integer(int64_t) override { return true; }
    bool number_unsigned(uint64_t) override { return true; }
    bool number_float(double, const std::string &) override { return true; }
    bool binary(json::binary_t &) override { return true; }
    bool parse_error(size_t, const std::string &, const nlohmann::detail::exception &) override {
        return false;
    }
};

} // namespace

command_head read_head(const std::string & line) {
    head_reader reader;
    json::sax_parse(line, &reader);
    return std::move(reader.head);
}

bool takes_long(const command_head & head, const std::string & line) {
    const operation * row = find_operation(head.op);
    if (row && row->work != by_size) {
        return row->work == by_worker;
    }
    return line.size() > n_quick ||
           std::any_of(std::begin(slow_fields), std::end(slow_fields),
                       [&](const char * name) { return line.find(name) != std::string::npos; });
}

static void parse_fields(command & c, const json & body, const model_facts & facts) {
    const std::string op  = read_string("op", body);
    const operation * row = find_operation(op);
    if (!row) {
        invalid("op", "there is no op \"" + op + "\"");
    }
    c.what   = row->kind;
    c.client = body.contains("client") ? read_string("client", body) : "";
    for (const auto & [name, value] : body.items()) {
        const auto known = [&name = name](const char * field) { return name == field; };
        if (name != "op" && name != "id" && name != "client" &&
            std::none_of(row->fields.begin(), row->fields.end(), known)) {
            invalid(name, op + " has no field \"" + name + "\"");
        }
    }
    if (row->kind == command::generate) {
        require_generation(facts);
    }
    if (row->parse) {
        row->parse(c, body, facts);
    }
    if (c.request) {
        c.request->client = c.client;
    }
}

command parse_command(const std::string & line, int64_t number, const model_facts & facts) {
    command            c;
    const command_head head = read_head(line);
    c.number                = number;
    c.id                    = head.id;
    try {
        const json body = parse_object(line);
        c.id            = read_string("id", body);
        parse_fields(c, body, facts);
    } catch (const command_error & e) {
        return refusal(head, number, e);
    } catch (const std::exception & e) {
        return refusal(head, number, command_error("engine_error", e.what()));
    }
    return c;
}

command answer_of(std::string line) {
    command c;
    c.line = std::move(line);
    return c;
}

// A faulty cancel or extend must not look like the end of the request that it is about.
command refusal(const command_head & head, int64_t number, const command_error & e) {
    const bool about_another = head.op == "cancel" || head.op == "extend";
    return answer_of(error_line(about_another ? "" : head.id, e, number));
}

//
// writing
//

void append_json_string(std::string & out, std::string_view text) {
    out += '"';
    for (const char c : text) {
        switch (c) {
            case '"':  out += "\\\""; break;
            case '\\': out += "\\\\"; break;
            case '\n': out += "\\n"; break;
            case '\r': out += "\\r"; break;
            case '\t': out += "\\t"; break;
            default:
                if ((unsigned char) c < 0x20) {
                    char escape[8];
                    snprintf(escape, sizeof(escape), "\\u%04x", c);
                    out += escape;
                } else {
                    out += c;
                }
        }
    }
    out += '"';
}

event_line::event_line(std::string & out, const char * event) : out(out) {
    out += "{\"event\":\"";
    out += event;
    out += '"';
}

event_line::event_line(std::string & out, const char * event, const std::string & id)
    : event_line(out, event) {
    text("id", id);
}

event_line::~event_line() {
    out += "}\n";
}

void event_line::key(const char * name) {
    out += ",\"";
    out += name;
    out += "\":";
}

event_line & event_line::text(const char * name, std::string_view value) {
    key(name);
    append_json_string(out, value);
    return *this;
}

event_line & event_line::whole(const char * name, int64_t value) {
    key(name);
    out += std::to_string(value);
    return *this;
}

event_line & event_line::real(const char * name, double value) {
    char number[32];
    snprintf(number, sizeof(number), "%.6g",
             std::isfinite(value) ? value : 0.0); // JSON has no infinity
    return raw(name, number);
}

event_line & event_line::raw(const char * name, std::string_view json_text) {
    key(name);
    out += json_text;
    return *this;
}

std::string error_line(const std::string & id, const command_error & e, int64_t number) {
    // what a parser or an operating system says need not be UTF-8
    std::string bytes = e.what();
    std::string line;
    {
        event_line event(line, "error", id);
        event.text("code", e.code).text("message", take_utf8(bytes));
        if (!e.param.empty()) {
            event.text("param", e.param);
        }
        if (number > 0) {
            event.whole("line", number);
        }
    }
    return line;
}

void write_lines(int fd, std::string & out) {
    for (size_t n_written = 0; n_written < out.size();) {
        const ssize_t n = write(fd, out.data() + n_written, out.size() - n_written);
        if (n < 0 && errno != EINTR) {
            _exit(errno == EPIPE ? 0 : 1);
        }
        n_written += n > 0 ? (size_t) n : 0;
    }
    out.clear();
}

int take_stdout() {
    fflush(stdout);
    const int fd = dup(STDOUT_FILENO);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    return fd;
}
