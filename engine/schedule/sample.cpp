#include "schedule/sample.h"

#include "sampling/logprobs.h"
#include "sampling/vocabulary.h"

#include <algorithm>

static void append_logprob(std::string & out, const token_logprob & t, const llama_vocab * vocab) {
    char number[32];
    snprintf(number, sizeof(number), "%.6g", t.logprob);
    std::string bytes = common_token_to_piece(vocab, t.token, true);
    std::string text  = take_utf8(bytes);
    out += "\"id\":" + std::to_string(t.token) + ",\"text\":";
    append_json_string(out, bytes.empty() ? text : text + "\xEF\xBF\xBD");
    out += std::string(",\"logprob\":") + number;
}

std::string unknown_logprob_json(llama_token token, const llama_vocab * vocab) {
    std::string bytes = common_token_to_piece(vocab, token, true);
    std::string json  = "{\"id\":" + std::to_string(token) + ",\"text\":";
    append_json_string(json, take_utf8(bytes));
    return json + ",\"logprob\":null,\"top\":[]}";
}

std::vector<sample> echo_samples(const step_plan & plan, llama_context * ctx) {
    std::vector<sample> samples;
    for (const planned_echo & e : plan.echoes) {
        if (e.i_token >= e.r->command->n_bos) {
            sample & d = samples.emplace_back();
            d.r        = e.r;
            d.logits   = llama_get_logits_ith(ctx, e.i_row);
            d.token    = e.r->command->prompt[e.i_token];
            d.known    = true;
        }
    }
    return samples;
}

// First tokens are distinct among one row; that of a later wave is not the same to the last bit.
static const float * row_of(const planned_rows & p, int32_t k, llama_context * ctx, int32_t n_vocab) {
    if (p.i_row < 0) {
        return p.r->first_row->data(); // from an earlier request
    }
    const float *    logits = llama_get_logits_ith(ctx, p.i_row + k); // the first call sorts
    const sequence & s      = *p.s;
    if (s.scored || !s.coupled.distinct_first || !s.generated.empty() || s.n_rewinds > 0) {
        return logits;
    }
    if (!p.r->first_row) {
        p.r->first_row = std::make_shared<const std::vector<float>>(logits, logits + n_vocab);
    }
    return p.r->first_row->data();
}

std::vector<sample> samples_of(const step_plan & plan, const std::vector<planned_rows> & started,
                               llama_context * ctx, int32_t n_vocab) {
    std::vector<sample> samples;
    samples.reserve(plan.rows.size() + started.size());
    for (const auto * rows : {&plan.rows, &started}) {
        for (const planned_rows & p : *rows) {
            for (int32_t k = 0; k < p.n_rows; k++) {
                sample & d = samples.emplace_back();
                d.r        = p.r;
                d.s        = p.s;
                d.logits   = row_of(p, k, ctx, n_vocab);
                d.known    = p.s->scored;
                d.token    = p.s->scored ? p.s->scored->tokens[p.s->generated.size() + k] : -1;
            }
        }
    }
    return samples;
}

static void list_forbidden(const sequence & s, const llama_vocab * vocab, std::vector<llama_token> & tokens) {
    tokens.clear();
    if ((int32_t) s.generated.size() < s.settings->n_min) {
        tokens = end_tokens(vocab);
    }
    for (const auto & [place, token] : s.forbidden) {
        if (place == s.generated.size()) {
            tokens.push_back(token);
        }
    }
}

// The logprob of the token, and as JSON with the others that are wanted.
static void look_at(sample & d, const llama_vocab * vocab) {
    static thread_local std::vector<token_logprob> top;
    const generate_command &                       c = *d.r->command;
    const int32_t n_top = std::max(c.n_logprobs, d.known ? 1 : 0); // one says whether it is greedy
    const auto    own   = c.processed && !d.known
                              ? logprobs_of_draw(d.token, n_top, top)
                              : logprobs_of(d.logits, llama_vocab_n_tokens(vocab), d.token, n_top, top);
    d.logprob           = own.logprob;
    d.greedy            = d.known && !top.empty() && own.logprob >= top[0].logprob;
    d.logprobs          = "{";
    append_logprob(d.logprobs, own, vocab);
    d.logprobs += ",\"top\":[";
    for (size_t i = 0; i < std::min(top.size(), (size_t) c.n_logprobs); i++) {
        d.logprobs += i ? ",{" : "{";
        append_logprob(d.logprobs, top[i], vocab);
        d.logprobs += "}";
    }
    d.logprobs += "]}";
}

static void make_sampler(const request & r, sequence & s, const llama_model * model) {
    const uint32_t seed = sequence_seed(s.seed, (int64_t) s.n_rewinds * 1000003);
    // one that was made anew knows what others have drawn, or what it must not: it goes on by itself
    const coupling coupled = s.n_rewinds == 0 ? s.coupled : coupling();
    s.sampler =
        std::make_unique<token_sampler>(model, *s.settings, seed, coupled, r.command->prompt, s.generated);
}

// Touches nothing but the sequence's sampler and `d`.
static void sample_one(sample & d, const model_facts & facts) {
    static thread_local std::vector<llama_token> forbidden;
    if (d.known) {
        look_at(d, facts.vocab);
        return;
    }
    sequence & s = *d.s;
    try {
        if (!s.sampler) {
            make_sampler(*d.r, s, facts.model);
        }
        list_forbidden(s, facts.vocab, forbidden);
        d.token                    = s.sampler->draw(d.logits, forbidden);
        d.complete                 = s.sampler->complete();
        const generate_command & c = *d.r->command;
        if (c.n_logprobs >= 0) {
            look_at(d, facts.vocab);
        }
        if (c.sum_logprobs && (c.n_logprobs < 0 || c.processed)) { // the sum is of raw ones
            static thread_local std::vector<token_logprob> none;
            d.logprob = logprobs_of(d.logits, llama_vocab_n_tokens(facts.vocab), d.token, 0, none).logprob;
        }
    } catch (const command_error & e) {
        d.error      = e.what();
        d.error_code = e.code;
    } catch (const std::exception & e) {
        d.error      = e.what();
        d.error_code = "engine_error";
    }
}

void sample_all(std::vector<sample> & samples, const model_facts & facts, int32_t n_threads) {
    const size_t n = samples.size();

#pragma omp parallel for num_threads(n_threads) schedule(dynamic) if (n > 1)
    for (size_t i = 0; i < n; i++) {
        sample_one(samples[i], facts);
    }
}
