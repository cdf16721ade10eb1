#include "schedule/intake.h"

#include "schedule/generation.h"
#include "schedule/scoring.h"

#include <algorithm>

static sequence & add_sequence(request & r, const sequence_kind & kind, const sequence_plan & plan,
                               const vocabulary & vocab) {
    sequence & s = r.sequences.emplace_back(kind, plan);
    s.index      = (int32_t) r.sequences.size() - 1;
    begin_text(r, s, vocab);
    return s;
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
    if (const request * r = requests.find(named.id); r && named.index < (int32_t) r->sequences.size()) {
        tokens        = r->command->prompt;
        command.n_bos = r->command->n_bos;
        generated     = seen_tokens(*r, r->sequences[(size_t) named.index], vocab);
    } else {
        const record * known = history.find(named.id);
        if (!known || named.index + 1 >= (int32_t) known->ends.size()) {
            invalid("continue", "continue names sequence " + std::to_string(named.index) + " of request " +
                                    named.id +
                                    ", which is not known here (any more); send its text as the prompt");
        }
        tokens        = known->list(0);
        command.n_bos = known->n_bos;
        generated     = known->list(1 + named.index);
    }
    if (named.at >= 0) {
        generated.resize(std::min(generated.size(), (size_t) named.at));
    }
    tokens.insert(tokens.end(), generated.begin(), generated.end());
    tokens.insert(tokens.end(), command.prompt.begin(), command.prompt.end());
    check_prompt_length((int64_t) tokens.size(), facts);
    command.prompt = std::move(tokens);
    command.exact  = true;
}

std::unique_ptr<request> make_request(command && c, const request_lists & requests,
                                      const record_list & history, const model_facts & facts,
                                      const vocabulary & vocab) {
    resolve_continue(*c.request, requests, history, facts, vocab);
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
    return r;
}

// The new sequence begins with the first tokens of another one.
static void fork_from(request & r, sequence & s, const sequence_name & fork, const vocabulary & vocab) {
    const sequence & other = r.sequences[(size_t) fork.index];
    s.generated            = seen_tokens(r, other, vocab);
    s.generated.resize(fork.at < 0 ? s.generated.size() : std::min(s.generated.size(), (size_t) fork.at));
    begin_text(r, s, vocab);
    s.duplicate.n_forked = s.generated.size();
    s.sampling.logprobs  = other.sampling.logprobs;
    s.sampling.logprobs.resize(std::min(s.sampling.logprobs.size(), s.generated.size()));
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
