#include "schedule/intake.h"

#include "model/token_cut.h"
#include "protocol/prompt.h"
#include "schedule/generation.h"
#include "schedule/scoring.h"

#include <algorithm>

static const int32_t n_max_pins = 16; // each holds a sequence id, and the smallest engine has 34

static sequence & add_sequence(request & r, const sequence_kind & kind, const sequence_plan & plan,
                               const vocabulary & vocab) {
    sequence & s = r.sequences.emplace_back(kind, plan);
    s.index      = (int32_t) r.sequences.size() - 1;
    begin_text(r, s, s, vocab);
    return s;
}

// The template ends the last message, unless its own end token has: each end stands there once.
static void join_message(const std::vector<llama_token> & message, std::vector<llama_token> & behind,
                         const vocabulary & vocab) {
    if (!message.empty() && !behind.empty() && message.back() == behind.front() &&
        vocab.is_end(message.back())) {
        behind.erase(behind.begin());
    }
}

// n tokens were cut behind the first `at` ones.
static void note_cut(generate_command & c, int32_t at, int32_t n) {
    c.n_first = c.n_first > at ? std::max(c.n_first - n, at) : c.n_first;
    c.n_cut += n;
}

// The prompt of a request that continues a sequence: all tokens of that, then its own.
static void resolve_continue(generate_command & command, const request_lists & requests,
                             const record_list & history, const model_facts & facts,
                             const vocabulary & vocab) {
    const sequence_name & named = command.continue_from;
    if (named.index < 0) {
        return;
    }
    std::vector<llama_token> tokens, generated;
    std::string              healed;
    if (const request * r = requests.find(named.id); r && named.index < (int32_t) r->sequences.size()) {
        tokens              = r->command->prompt;
        command.n_bos       = r->command->n_bos;
        command.front_space = r->command->front_space;
        command.n_first     = r->command->n_first;
        healed              = r->command->healed_bytes();
        const sequence & s  = r->sequences[(size_t) named.index];
        generated           = named.exact ? s.generated : seen_tokens(*r, s, vocab);
    } else {
        const record * known = history.find(named.id);
        if (!known || named.index + 1 >= (int32_t) known->ends.size()) {
            invalid("continue", "continue names sequence " + std::to_string(named.index) + " of request " +
                                    named.id +
                                    ", which is not known here (any more); send its text as the prompt");
        }
        tokens              = known->list(0);
        command.n_bos       = known->n_bos;
        command.front_space = known->front_space;
        command.n_first     = known->n_first;
        healed              = known->healed;
        generated           = named.exact ? known->list(1 + named.index) : known->seen((size_t) named.index);
    }
    if (named.at >= 0) {
        generated.resize(std::min(generated.size(), (size_t) named.at));
    }
    if (named.at >= 0 || named.exact) {
        spell_prompt(healed, generated, vocab);
    }
    if (command.chat) {
        join_message(generated, command.prompt, vocab);
    }
    tokens.insert(tokens.end(), generated.begin(), generated.end());
    tokens.insert(tokens.end(), command.prompt.begin(), command.prompt.end());
    const size_t n_head = (size_t) common_length(command.continue_head, tokens);
    note_cut(command, (int32_t) n_head,
             (int32_t) cut_tokens(tokens, n_head, (size_t) command.continue_room, vocab));
    command.front_space = command.front_space && (command.n_cut == 0 || n_head > (size_t) command.n_bos);
    check_prompt_length(command.limit.n_tokens != 0 ? 0 : (int64_t) tokens.size(), facts);
    command.prompt = std::move(tokens);
    command.exact  = true;
}

// Tokens of a prompt that leaves room for its answers, at most half of the context. If these have no limit, a prompt
// that fits leaves what it leaves, and a longer one a quarter.
static int32_t n_fitting(const generate_command & c, int32_t n_ctx) {
    const int32_t n_prompt = (int32_t) c.prompt.size(), n_sets = c.is_guided ? 2 : 1;
    const auto    second   = c.common.settings ? c.common.settings->second : nullptr;
    int32_t       n_answer = 1, n_second = 0;
    for (const sequence_plan & plan : c.sequences) {
        n_answer = plan.n_predict < 0 || n_answer < 0 ? -1 : std::max(n_answer, plan.n_predict);
    }
    if (second) {
        n_second = (int32_t) second->text.size() + std::max(second->settings->n_predict, 1);
    }
    if (n_answer < 0 && n_prompt + n_second < n_ctx) {
        return n_prompt;
    }
    const int64_t n_room = ((int64_t) (n_answer < 0 ? n_ctx / 4 : n_answer) + n_second) * n_sets;
    return std::max(n_ctx - (int32_t) std::min<int64_t>(n_room, n_ctx / 2), 1);
}

// Cuts what is above the request's limit.
static void truncate_prompt(generate_command & c, const prefix_tree & tree, const model_facts & facts) {
    const prompt_limit & limit    = c.limit;
    const int32_t        n_prompt = (int32_t) c.prompt.size();
    int32_t              n_most   = n_prompt; // that fit
    if (limit.n_tokens == 0) {
        return;
    }
    const cell_counts n  = tree.counts();
    const int32_t n_free = std::min(facts.n_ctx_seq, n.n_cells - n.n_pinned - (int32_t) c.negative.size());
    const int32_t n_ctx  = c.is_guided ? n_free : n_ctx_beside_pins(c, tree, facts.n_ctx_seq);
    if (limit.n_tokens < 0 && n_prompt > n_fitting(c, n_ctx)) {
        n_most = n_fitting(c, n_free);
    }
    if (const int32_t n_cut = cut_to(limit, c.prompt, n_most, c.n_bos); n_cut > 0) {
        c.n_bos       = std::min(c.n_bos, (int32_t) c.prompt.size() - (limit.first ? 0 : 1));
        c.front_space = c.front_space && limit.first;
        c.text        = ""; // echo has that of the tokens
        note_cut(c, limit.first ? (int32_t) c.prompt.size() : c.n_bos, n_cut);
    }
    check_prompt_length((int64_t) c.prompt.size(), facts);
}

// Before the first draw, since all sequences begin with the same tokens.
static void heal(generate_command & command) {
    if (!command.healed) {
        return;
    }
    const sequence_settings & settings = *command.common.settings;
    try {
        command.healed->drop(command.prompt, (size_t) command.n_bos);
        command.healed->keep_what_fits(grammar_progress(settings.structure, settings.structure_start));
    } catch (const grammar_error & e) {
        invalid("token_healing", std::string("the grammar cannot be followed: ") + e.what());
    }
}

// What guided sequences read in place of the prompt: the negative prompt, or the prompt's last token, and behind it what
// the text of a continued sequence is behind its first prompt. So a text goes on as if it had never ended.
static void complete_negative(generate_command & c) {
    const int32_t n_prompt = (int32_t) c.prompt.size();
    c.n_first              = c.n_first == 0 ? n_prompt : std::min(std::max(c.n_first, 1), n_prompt);
    if (!c.is_guided) {
        return;
    }
    if (c.negative.empty()) {
        c.negative.push_back(c.prompt[(size_t) c.n_first - 1]);
    }
    c.negative.insert(c.negative.end(), c.prompt.begin() + c.n_first, c.prompt.end());
    c.exact = true; // another split of the prompt would change how many tokens have room
}

//
// pins
//

// Tokens of the longest scored text, which need cells; 0: there is none.
static int32_t n_longest(const generate_command & c) {
    size_t n = 0;
    for (const scored_text & text : c.texts) {
        n = std::max(n, text.tokens.size());
    }
    return (int32_t) n;
}

// Of a guided request: both of its prompts, and one more token behind each.
static std::string two_prompts(const request & r, const cell_counts & counts) {
    const std::string pinned = counts.n_pinned == 0 ? "" : " that pins leave";
    return "the prompt has " + std::to_string(r.n_prompt()) + " tokens and the negative prompt " +
           std::to_string(r.n_negative()) + "; with one more each they exceed the context or the " +
           std::to_string(counts.n_cells - counts.n_pinned) + " cells" + pinned;
}

command_error beside_pins(const request & r, const prefix_tree & tree) {
    const cell_counts counts = tree.counts();
    const int32_t     n      = r.n_prompt() + n_longest(*r.command);
    const std::string one    = "the request has " + std::to_string(n) +
                               " tokens; with one more it exceeds the " + std::to_string(r.prompt.n_ctx) +
                               " cells that are left to it, since " + std::to_string(counts.n_pinned) +
                               " of the " + std::to_string(counts.n_cells) + " cells are pinned";
    command_error     error("context_exceeded", r.is_guided() ? two_prompts(r, counts) : one,
                            r.is_guided() ? "negative_prompt" : "prompt");
    error.n_prompt = n;
    error.n_ctx    = r.prompt.n_ctx;
    return error;
}

// Pins may have half of the cells together, with those that are still to be computed. Each has a sequence id.
static void check_pin(const request & r, const request_lists & requests, const prefix_tree & tree) {
    const std::string & name    = r.command->pin;
    const branch *      same    = nullptr; // is replaced
    int32_t             n_cells = 0, n_others = 0;
    for (const pin & p : requests.pins) {
        same = p.name == name ? p.cells : same;
        n_others += p.name != name;
    }
    const auto add = [&](const std::unique_ptr<request> & other) {
        const bool counts = other->is_pin() && other->command->pin != name;
        n_cells += counts ? other->n_prompt() : 0;
        n_others += counts;
    };
    std::for_each(requests.active.begin(), requests.active.end(), add);
    std::for_each(requests.queue.begin(), requests.queue.end(), add);
    const auto shared = tree.find(r.command->prompt, r.n_prompt(), by_tokens, r.cells_key(), true);
    n_cells += tree.counts(same).n_pinned + r.n_prompt() - (shared.from == same ? 0 : shared.length);
    const int32_t n_most = tree.counts().n_cells / 2;
    if (n_cells > n_most) {
        command_error error("context_exceeded",
                            "with this prompt of " + std::to_string(r.n_prompt()) + " tokens " +
                                std::to_string(n_cells) + " cells would be pinned; at most half of the " +
                                std::to_string(tree.counts().n_cells) + " cells may be",
                            "prompt");
        error.n_prompt = r.n_prompt();
        error.n_ctx    = n_most;
        throw error;
    }
    if (n_others >= n_max_pins) {
        invalid("name", "this would be pin " + std::to_string(n_others + 1) + "; there may be " +
                            std::to_string(n_max_pins));
    }
}

bool unpin(request_lists & requests, const std::string & name, prefix_tree & tree) {
    const auto is_it = [&](const pin & p) { return p.name == name; };
    const auto found = std::find_if(requests.pins.begin(), requests.pins.end(), is_it);
    if (found == requests.pins.end()) {
        return false;
    }
    if (found->cells) {
        tree.release(found->cells);
    }
    requests.pins.erase(found);
    return true;
}

void pin_again(request_lists & requests, int32_t n_ctx_seq) {
    for (pin & p : std::exchange(requests.pins, {})) {
        auto r               = std::make_unique<request>();
        r->command           = std::make_unique<generate_command>();
        r->command->pin      = p.name;
        r->command->prompt   = p.tokens;
        r->command->exact    = true;
        r->command->adapters = p.adapters;
        r->prompt.n_ctx      = n_ctx_seq;
        r->announced         = true;
        r->times.arrived     = ggml_time_us();
        requests.queue.push_front(std::move(r));
    }
}

std::unique_ptr<request> make_request(command && c, const request_lists & requests,
                                      const record_list & history, const model_facts & facts,
                                      const vocabulary & vocab, const prefix_tree & tree) {
    resolve_continue(*c.request, requests, history, facts, vocab);
    truncate_prompt(*c.request, tree, facts);
    heal(*c.request);
    complete_negative(*c.request);
    auto r           = std::make_unique<request>();
    r->id            = std::move(c.id);
    r->number        = c.number;
    r->command       = std::move(c.request);
    r->times.arrived = ggml_time_us();
    for (const sequence_plan & plan : std::exchange(r->command->sequences, {})) {
        add_sequence(*r, sampled_kind(), plan, vocab);
    }
    for (const scored_text & text : r->command->texts) {
        sequence & s = add_sequence(*r, scored_kind(), r->command->common, vocab);
        begin_score(*r, s, text, vocab);
    }
    if (r->command->n_draft > 0) {
        const size_t n_answers = 8, n_tokens = 1 << 14;
        r->drafts.earlier =
            history.alike(r->command->client, r->cells_key(), r->command->prompt, n_answers, n_tokens);
    }
    r->prompt.n_ctx = n_ctx_beside_pins(*r->command, tree, facts.n_ctx_seq);
    if (r->is_pin()) {
        check_pin(*r, requests, tree);
    } else if (r->n_prompt() + std::max(n_longest(*r->command), 1) > r->prompt.n_ctx) {
        throw beside_pins(*r, tree);
    }
    return r;
}

// The new sequence begins with the first tokens of another one.
static void fork_from(request & r, sequence & s, const sequence_name & fork, const vocabulary & vocab) {
    const sequence & other = r.sequences[(size_t) fork.index];
    s.generated            = seen_tokens(r, other, vocab);
    s.generated.resize(fork.at < 0 ? s.generated.size() : std::min(s.generated.size(), (size_t) fork.at));
    begin_text(r, s, other, vocab);
    s.duplicate.n_forked = s.generated.size();
    s.sampling.scores    = other.sampling.scores;
    s.sampling.entropies = other.sampling.entropies;
    s.sampling.scores.resize(std::min(s.sampling.scores.size(), s.generated.size()));
    s.sampling.entropies.resize(r.command->entropies ? s.generated.size() : 0);
    const auto & at    = r.command->prune.at;
    s.pruning.n_points = std::upper_bound(at.begin(), at.end(), (int32_t) s.generated.size()) - at.begin();
}

static void check_extension(const request * r, const command & c) {
    const extend_command & extension = c.extension;
    if (!r || r->prefix_only() || !r->command->texts.empty()) {
        invalid("id", "extend: there is no request \"" + c.id + "\" that is not done");
    }
    const int64_t n = (int64_t) r->sequences.size();
    if (extension.fork.index >= 0 && r->command->common.settings->second) {
        invalid("fork", "fork is not possible in a request with then: which answer it would fork is unknown");
    }
    if (extension.fork.index >= n) {
        invalid("fork", "fork.index is " + std::to_string(extension.fork.index) + "; the request has " +
                            std::to_string(n) + " sequences");
    }
    if (n + extension.n_add > n_max_sequences) {
        invalid("add", "add is " + std::to_string(extension.n_add) + "; a request may have " +
                           std::to_string(n_max_sequences) + " sequences, and this one would have " +
                           std::to_string(n + extension.n_add));
    }
}

int64_t extend_request(request * r, const command & c, const vocabulary & vocab) {
    check_extension(r, c);
    const extend_command & extension = c.extension;
    const sequence_name &  fork      = extension.fork;
    if (extension.n_predict >= -1) {
        r->command->common.n_predict = extension.n_predict;
        for (sequence & s : r->sequences) {
            const bool free  = !s.over && s.answer.n_before == 0;
            s.plan.n_predict = free ? extension.n_predict : s.plan.n_predict;
        }
    }
    const size_t first = r->sequences.size();
    for (int32_t i = 0; i < extension.n_add; i++) {
        sequence_plan own = fork.index < 0 ? r->command->common : r->sequences[(size_t) fork.index].plan;
        own.seed          = sequence_seed(r->command->common.seed, (int64_t) r->sequences.size());
        own.n_predict     = extension.n_predict >= -1 ? extension.n_predict : own.n_predict;
        own.coupled.group = fork.index < 0 ? 0 : (int32_t) first;
        own.coupled.index = (int32_t) r->sequences.size() - own.coupled.group;
        sequence & s      = add_sequence(*r, sampled_kind(), own, vocab);
        if (fork.index >= 0) {
            fork_from(*r, s, fork, vocab);
        }
    }
    return (int64_t) first;
}
