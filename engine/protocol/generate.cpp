#include "chat/next_message.h"
#include "protocol/operations.h"
#include "protocol/prompt.h"
#include "protocol/second_answer.h"
#include "protocol/values.h"
#include "sampling/special_tokens.h"

#include "text/banned_phrases.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>

using json   = nlohmann::json;
using params = sampling_settings;

static const size_t n_max_lists     = 128 << 10; // bytes of all stop strings, banned phrases and breakers
static const size_t n_max_arguments = 16 << 10;  // bytes, of a logits processor
static const size_t n_max_breakers  = 128;       // of DRY, in all lists; each is looked for in all tokens

// Tokens that contain a phrase are banned beforehand; the scheduler rewinds when several tokens complete one. The
// vocabulary is searched once for each list of phrases.
using banned_lists   = std::pair<std::vector<std::string>, std::vector<std::string>>; // phrases, expressions
using banned_tokens  = std::map<banned_lists, std::vector<llama_token>>;
using known_breakers = std::map<std::vector<std::string>, dry_breakers>;
using known_patterns = std::map<std::vector<std::string>, pattern_finder_ptr>;

// What the settings of one request's sequences have in common.
struct common_settings {
    const private_texts &              hidden; // banned in all sequences
    const std::optional<then_fields> & then;
    size_t                             n_bytes  = 0; // of all lists of this request so far
    banned_tokens                      known    = {};
    known_breakers                     breakers = {}; // of DRY
    known_patterns                     patterns = {}; // by the texts of expressions
    pattern_budget                     budget   = {}; // for them
};

static bool can_rewind(const command_facts & facts) {
    return !llama_model_is_recurrent(facts.model) && !llama_model_is_hybrid(facts.model);
}

static void check_loops(const loop_limit & loops, const command_facts & facts) {
    if (loops.wanted() && loops.rewinds && !can_rewind(facts)) {
        invalid("loops",
                "loops is \"rewind\", which is not possible with this model: a recurrent state cannot be "
                "rewound; it may be \"end\"");
    }
}

static std::vector<std::string> texts_of(const std::vector<banned_regex> & list) {
    std::vector<std::string> texts;
    for (const banned_regex & one : list) {
        texts.push_back(one.text);
    }
    return texts;
}

static std::vector<std::string> in_lower_case(std::vector<std::string> texts) {
    std::transform(texts.begin(), texts.end(), texts.begin(), ascii_lower);
    return texts;
}

static word_finder_ptr finder_of(const std::vector<std::string> & words) {
    return words.empty() ? nullptr : std::make_shared<const word_finder>(words);
}

static pattern_finder_ptr find_patterns(const banned_texts & banned, common_settings & common) {
    if (banned.regexes.empty()) {
        return nullptr;
    }
    pattern_finder_ptr & known = common.patterns[texts_of(banned.regexes)];
    if (!known) {
        known = std::make_shared<const pattern_finder>(banned.regexes, common.budget);
    }
    return known;
}

static std::vector<llama_logit_bias> ban_phrases(const sequence_settings & settings,
                                                 const command_facts & facts, banned_tokens & known) {
    std::vector<llama_logit_bias> bans;
    const banned_texts &          banned = settings.banned;
    if (banned.strings.empty() && banned.regexes.empty()) {
        return bans;
    }
    if (!can_rewind(facts)) {
        invalid("banned_strings",
                "banned_strings is not possible with this model: a recurrent state cannot be rewound");
    }
    const banned_lists lists  = {banned.strings, texts_of(banned.regexes)};
    auto               tokens = known.find(lists);
    if (tokens == known.end()) {
        const word_finder_ptr phrases = finder_of(in_lower_case(banned.strings));
        tokens = known.emplace(lists, tokens_with(phrases, banned.patterns, facts.vocab)).first;
    }
    for (llama_token token : tokens->second) {
        bans.push_back({token, -INFINITY});
    }
    return bans;
}

// Which lists of a sequence's settings differ from the request's.
struct own_lists {
    bool stop = true, banned = true, breakers = true, biases = true, phrases = true;
};

// Merges logit_bias, private tokens, and the tokens that contain banned phrases.
static void make_biases(sequence_settings & settings, const command_facts & facts, common_settings & common) {
    std::vector<llama_logit_bias> list = ban_phrases(settings, facts, common.known);
    for (const llama_token token : common.hidden.tokens) {
        list.push_back({token, -INFINITY});
    }
    list.insert(list.end(), settings.sampling.logit_bias.begin(), settings.sampling.logit_bias.end());
    settings.biases =
        list.empty() ? nullptr
                     : std::make_shared<token_biases>(std::move(list), llama_vocab_n_tokens(facts.vocab));
}

static size_t n_bytes_of(const std::vector<std::string> & words) {
    return std::accumulate(words.begin(), words.end(), size_t(0),
                           [](size_t n, const std::string & word) { return n + word.size(); });
}

static size_t n_bytes_of(const banned_texts & banned) {
    return n_bytes_of(banned.strings) + n_bytes_of(texts_of(banned.regexes));
}

static size_t n_bytes_of(const std::vector<phrase_bias> & phrases) {
    return std::accumulate(phrases.begin(), phrases.end(), size_t(0),
                           [](size_t n, const phrase_bias & p) { return n + p.text.size(); });
}

// Looks for the breakers of DRY in the vocabulary, if it is on.
static void find_breakers(sequence_settings & settings, const command_facts & facts,
                          common_settings & common) {
    const std::vector<std::string> & texts = settings.sampling.dry_sequence_breakers;
    if (largest_of(settings.sampling, [](const params & s) { return (size_t) (s.dry_multiplier != 0.0f); }) ==
        0) {
        return;
    }
    auto found = common.breakers.find(texts);
    if (found == common.breakers.end()) {
        size_t n = texts.size();
        for (const auto & [others, _] : common.breakers) {
            n += others.size();
        }
        if (n > n_max_breakers) {
            invalid("dry_sequence_breakers", "dry_sequence_breakers has " + std::to_string(n) +
                                                 " texts in all; a request may have " +
                                                 std::to_string(n_max_breakers));
        }
        found = common.breakers.emplace(texts, find_dry_breakers(facts.vocab, texts)).first;
    }
    settings.breakers = found->second;
}

// Completes settings whose fields have been read. lists: those to process, since they are not the request's.
static std::shared_ptr<const sequence_settings> finish(sequence_settings && settings, const own_lists & lists,
                                                       const command_facts & facts,
                                                       common_settings &     common) {
    check_loops(settings.loops, facts);
    if (can_rewind(facts)) { // else each private text is a token
        settings.banned.strings.insert(settings.banned.strings.end(), common.hidden.texts.begin(),
                                       common.hidden.texts.end());
    }
    settle_steps(settings.sampling, facts.vocab, facts.n_ctx_seq);
    size_t & n_bytes = common.n_bytes;
    n_bytes += (lists.stop ? n_bytes_of(settings.ends.strings) : 0) +
               (lists.banned ? n_bytes_of(settings.banned) : 0) +
               (lists.breakers ? n_bytes_of(settings.sampling.dry_sequence_breakers) : 0) +
               (lists.phrases ? n_bytes_of(settings.phrase_list) : 0);
    if (n_bytes > n_max_lists) {
        invalid("stop", "the texts of stop, banned_strings, dry_sequence_breakers and phrase_bias have " +
                            std::to_string(n_bytes) + " bytes in all; a request may have " +
                            std::to_string(n_max_lists));
    }
    find_breakers(settings, facts, common);
    if (lists.banned) {
        settings.banned.patterns = find_patterns(settings.banned, common);
    }
    if (lists.banned || lists.biases) {
        make_biases(settings, facts, common);
    }
    settings.sampling.logit_bias = {}; // token_sampler adds biases itself
    if (lists.stop) {
        settings.ends.finder = finder_of(settings.ends.strings);
    }
    if (lists.banned) {
        settings.banned.finder = finder_of(in_lower_case(settings.banned.strings));
    }
    settings.ends.strings = settings.banned.strings = {}; // the finders hold the strings
    settings.banned.regexes                         = {};
    if (lists.phrases) {
        settings.phrases = settings.phrase_list.empty()
                               ? nullptr
                               : std::make_shared<const phrase_biases>(settings.phrase_list, facts.vocab);
    }
    settings.phrase_list = {};
    settings.second      = common.then ? make_second(settings, *common.then) : nullptr;
    return std::make_shared<const sequence_settings>(std::move(settings));
}

// Coupled sequences draw from one distribution while their texts are equal. So their settings must be equal, except
// those that only end a text, and a seed, with which a sequence draws independently.
static void check_coupling(const coupling & coupled, const params & own, const json & body) {
    const std::string given = coupled.arithmetic ? "diversity" : "first_token";
    if (coupled.arithmetic) {
        const auto & steps = own.steps;
        const auto   draws = [](const chain_step & step) { return step.name == "adaptive_p"; };
        const bool   adaptive =
            own.adaptive_target >= 0.0f || (steps && std::any_of(steps->begin(), steps->end(), draws));
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

// Whether the rows go to the operator's own processor, and with which arguments: true is none.
static void read_processor(sequence_settings & settings, const json & body, const command_facts & facts) {
    if (!body.contains("logits_processor")) {
        return;
    }
    const json & given = body["logits_processor"];
    settings.processor = nullptr;
    if (given == false) {
        return;
    }
    if (!facts.has_processor) {
        invalid("logits_processor", "logits_processor is given, but the server was started without one: "
                                    "--logits-processor MODULE:FUNCTION names it");
    }
    auto arguments = std::make_shared<const std::string>(given == true ? "{}" : given.dump());
    if (arguments->size() > n_max_arguments) {
        invalid("logits_processor", "logits_processor has " + std::to_string(arguments->size()) +
                                        " bytes; it may have at most " + std::to_string(n_max_arguments));
    }
    settings.processor = std::move(arguments);
}

// Applies an entry of `sequences`. True if the sequence needs its own settings, not only its own seed and limit.
static bool read_own(sequence_plan & own, sequence_settings & settings, const json & fields,
                     const chat_prompt * chat, const command_facts & facts) {
    read_lengths(settings, fields);
    read_processor(settings, fields, facts);
    read_sampling(settings.sampling, fields, facts.vocab, facts.n_ctx_seq);
    const size_t n_plain = fields.contains("seed") + fields.contains("max_tokens");
    own.n_predict        = settings.n_predict;
    if (chat && fields.contains("stop")) {
        settings.ends.strings.insert(settings.ends.strings.end(), chat->stop.begin(), chat->stop.end());
    }
    if (fields.contains("replay")) {
        settings.replay = read_tokens(fields["replay"], facts, "replay");
    }
    if (settings.sampling.seed != LLAMA_DEFAULT_SEED) {
        own.seed               = settings.sampling.seed;
        own.coupled.arithmetic = false;
    }
    return fields.size() > n_plain;
}

// Each sequence gets the common settings, its own seed and its own overrides. LLAMA_DEFAULT_SEED means no seed.
static void make_sequences(generate_command & request, sequence_settings && common, const json & body,
                           const chat_prompt * chat, common_settings & shared, const command_facts & facts) {
    const json    overrides = body.value("sequences", json::array());
    const int64_t n_default = overrides.empty() ? 1 : (int64_t) overrides.size();
    const int64_t n         = body.value("n", n_default);
    if (body.contains("sequences") && (int64_t) overrides.size() != n) {
        invalid("sequences", "sequences must be a list of n = " + std::to_string(n) + " objects");
    }
    auto as_read             = common;
    as_read.sampling.seed    = LLAMA_DEFAULT_SEED;
    request.common.n_predict = common.n_predict;
    request.common.settings  = finish(std::move(common), own_lists(), facts, shared);
    as_read.ends.finder      = request.common.settings->ends.finder;
    as_read.banned.finder    = request.common.settings->banned.finder;
    as_read.banned.patterns  = request.common.settings->banned.patterns;
    as_read.biases           = request.common.settings->biases;
    as_read.phrases          = request.common.settings->phrases;
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
                                          fields.contains("logit_bias"), fields.contains("phrase_bias")};
                own.settings           = finish(std::move(settings), lists, facts, shared);
            }
        }
    }
}

// Reads the grammar of the texts, from the command's own fields or from the chat.
static void read_structure(sequence_settings & settings, std::vector<std::string> & warnings,
                           const json & body, const chat_prompt * chat, const command_facts & facts) {
    const schema::options given = read_schema_options(body);
    found_structure       found = facts.structures->find(body, given);
    settings.structure          = found.rules;
    warnings                    = std::move(found.warnings);
    if (!chat) {
        return;
    }
    settings.ends.strings.insert(settings.ends.strings.end(), chat->stop.begin(), chat->stop.end());
    if (chat->grammar.empty()) {
        return;
    }
    if (settings.structure) {
        invalid("tools",
                "only one of tools or json_schema and grammar, regex, choice or structural_tag may be given");
    }
    found = facts.structures->find_chat(chat->grammar, chat->format->shown, chat->schemas, given);
    settings.structure = found.rules;
    warnings           = chat->warnings;
    warnings.insert(warnings.end(), found.warnings.begin(), found.warnings.end());
    settings.structure_start =
        std::shared_ptr<const grammar_start>(chat->format, &chat->format->start); // keeps the format alive
}

// What the client wants to get.
static void read_wishes(generate_command & request, const json & body) {
    const std::string mode    = body.value("logprobs_mode", "raw");
    request.cache             = body.value("cache", true);
    request.echo              = body.value("echo", false);
    request.raw               = mode != "processed";
    request.processed         = mode != "raw";
    request.n_logprobs        = body.value("logprobs", -1);
    request.n_prompt_logprobs = body.value("prompt_logprobs", -1);
    request.return_ids        = body.value("return_token_ids", false);
    request.entropies         = body.value("return_entropies", false);
    request.sum_logprobs      = body.value("sum_logprobs", false);
    request.certainty         = body.value("certainty", false);
    request.finish            = read_finish(body);
    request.prune             = read_prune(body);
    request.retry_duplicates  = body.value("dedupe", "") == "again";
    request.mark_duplicates   = body.contains("dedupe");
}

// The tokens that may be drawn, and what the end of a text is.
static void read_ends(sequence_settings & settings, const json & body, const command_facts & facts) {
    settings.ends.shown    = body.value("include_stop_str_in_output", false);
    settings.ends.passages = read_end(body);
    settings.shows_special = !body.value("skip_special_tokens", true);
    if (body.contains("stop_token_ids")) {
        settings.ends.tokens = read_tokens(body["stop_token_ids"], facts, "stop_token_ids");
    }
    if (!body.value("allowed_token_ids", json::array()).empty()) {
        settings.allowed = std::make_shared<const allowed_tokens>(
            read_tokens(body["allowed_token_ids"], facts, "allowed_token_ids"),
            llama_vocab_n_tokens(facts.vocab));
    }
}

// Where no sequence is guided the negative prompt is not even read.
static void read_negative(generate_command & request, const json & body, const private_texts & hidden,
                          const command_facts & facts) {
    const auto is_guided = [](const sequence_plan & plan) { return plan.is_guided(); };
    request.is_guided    = request.common.is_guided() ||
                           std::any_of(request.sequences.begin(), request.sequences.end(), is_guided);
    const prompt_parts parts =
        body.contains("negative_prompt") ? read_parts(body["negative_prompt"]) : prompt_parts();
    hidden.check("negative_prompt", parts);
    const std::string text = joined_text(parts);
    if (!request.is_guided || text.empty()) {
        return;
    }
    const auto check = [&](size_t n, bool at_least) {
        if ((int64_t) n + 1 > facts.n_ctx_seq) {
            exceed_context("negative_prompt",
                           std::string("negative_prompt has ") + (at_least ? "at least " : "") +
                               std::to_string(n) + " tokens; with one more it",
                           (int64_t) n, facts.n_ctx_seq);
        }
    };
    check(text.size() / facts.n_piece_max, true); // else it is not tokenized
    request.negative = tokenize_parts(parts, facts.vocab, true);
    check(request.negative.size(), false);
}

// Whether the client has chosen a seed for some of the texts: they are to be the same again.
static bool has_seed(const json & body) {
    const auto chooses = [](const json & sampling) {
        return sampling.value("seed", LLAMA_DEFAULT_SEED) != LLAMA_DEFAULT_SEED;
    };
    const auto own = body.find("sequences");
    return chooses(body.value("sampling", json::object())) ||
           (own != body.end() && std::any_of(own->begin(), own->end(), chooses));
}

// chat: the prompt and grammar made of messages; nullptr: the command is no chat.
static void read_generate(command & c, const json & body, const chat_prompt * chat,
                          const command_facts & facts) {
    auto              request = std::make_unique<generate_command>();
    sequence_settings common;
    coupling          coupled;
    common.n_thinking = chat ? chat->format->n_thinking : -1;
    read_lengths(common, body);
    read_processor(common, body, facts);
    if (body.contains("sampling")) {
        read_sampling(common.sampling, body["sampling"], facts.vocab, facts.n_ctx_seq);
    }
    if (body.contains("continue")) {
        request->continue_from = read_sequence_name(body["continue"]);
        request->continue_room = body["continue"].value("room", request->continue_room);
        const std::string head = body["continue"].value("head", "");
        request->continue_head = tokenize_parts({{head, true}}, facts.vocab, true);
    }
    request->limit   = read_limit(body);
    request->n_draft = body.value("draft", has_seed(body) ? 0 : (int32_t) n_max_draft);
    read_wishes(*request, body);
    read_ends(common, body, facts);
    coupled.arithmetic     = body.value("diversity", "none") == "arithmetic";
    coupled.distinct_first = body.value("first_token", "any") == "distinct";
    request->adapters      = read_adapters(body, facts);
    if (body.value("token_healing", false)) {
        request->healed             = std::make_shared<healed_end>();
        request->healed->vocabulary = facts.structures->texts();
    }
    read_structure(common, request->warnings, body, chat, facts);
    const uint32_t given = common.sampling.seed;
    coupled.seed         = sequence_seed(given == LLAMA_DEFAULT_SEED ? std::random_device()() : given, 0);
    request->common.seed = coupled.seed;
    if (coupled.arithmetic || coupled.distinct_first) {
        check_coupling(coupled, common.sampling, body);
    }
    request->common.coupled = coupled;
    const private_texts              hidden(body, facts);
    const std::optional<then_fields> then = then_fields::read(body, facts);
    if (then) {
        request->warnings.insert(request->warnings.end(), then->warnings.begin(), then->warnings.end());
    }
    common_settings shared = {hidden, then, then ? n_bytes_of(then->stop) : 0};
    make_sequences(*request, std::move(common), body, chat, shared, facts);
    read_negative(*request, body, hidden, facts);
    if (!chat && body.contains("prompt")) {
        hidden.check("prompt", read_parts(body["prompt"]));
    }
    read_prompt(*request, body, chat ? &chat->parts : nullptr, facts);
    if (then && request->limit.n_tokens == 0) {
        check_room(*request, *then, facts);
    }
    request->chat = chat ? chat->format : nullptr;
    if (chat && !chat->format->start.thinking_ends.empty()) {
        const chat_format & format = *chat->format;
        request->thought_end       = tokenize_parts(
            {{format.last_words, false}, {format.start.thinking_ends[0], true}}, facts.vocab, false);
    }
    c.request = std::move(request);
}

void parse_generate(command & c, const json & body, const command_facts & facts) {
    read_generate(c, body, nullptr, facts);
}

// A chat is a generate command whose prompt is made of messages, with a grammar if there are tools or a schema.
void parse_chat(command & c, const json & body, const command_facts & facts) {
    private_texts(body, facts).check_messages(body);
    const chat_prompt chat =
        body.contains("continue") ? prompt_behind_answer(*facts.chats, body) : facts.chats->apply(body);
    json plain = body;
    if (body.contains("continue")) {
        plain["continue"]["exact"] = true;
    }
    if (!chat.grammar.empty()) { // some templates ignore a schema
        plain.erase("json_schema");
    }
    read_generate(c, plain, &chat, facts);
}

void parse_prefix(command & c, const json & body, const command_facts & facts) {
    c.request           = std::make_unique<generate_command>();
    c.request->adapters = read_adapters(body, facts);
    c.request->limit    = read_limit(body);
    read_prompt(*c.request, body, nullptr, facts);
}

void parse_pin(command & c, const json & body, const command_facts & facts) {
    parse_prefix(c, body, facts);
    c.request->pin = body["name"];
    if (c.request->pin.empty()) {
        invalid("name", "name is empty; it must be a text of at least one character");
    }
}
