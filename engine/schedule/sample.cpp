#include "schedule/sample.h"

#include "rows/row_sums.h"
#include "sampling/certainty.h"
#include "sampling/guidance.h"
#include "sampling/logprobs.h"
#include "sampling/special_tokens.h"
#include "util/utf8.h"

#include <algorithm>
#include <map>

// Id and text of a token; its bytes, too, if they are no text, but parts of characters.
static void append_token(std::string & out, llama_token token, const std::string & piece) {
    std::string rest = piece;
    std::string text = take_utf8(rest);
    text += rest.empty() ? "" : replacement_character;
    out += "\"id\":" + std::to_string(token) + ",\"text\":";
    append_json_string(out, text);
    if (text != piece) {
        out += ",\"bytes\":[";
        for (size_t i = 0; i < piece.size(); i++) {
            out += (i ? "," : "") + std::to_string((uint8_t) piece[i]);
        }
        out += "]";
    }
}

static void append_logprob(std::string & out, const token_logprob & t, const llama_vocab * vocab) {
    char number[32];
    snprintf(number, sizeof(number), "%.6g", t.logprob);
    append_token(out, t.token, common_token_to_piece(vocab, t.token, true));
    out += std::string(",\"logprob\":") + number;
}

std::string unknown_logprob_json(llama_token token, const vocabulary & vocab) {
    std::string json = "{";
    append_token(json, token, vocab.piece(token, true));
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

// Distinct first tokens are drawn from one row, since the row of a later wave may differ in its last bits.
static const float * row_or_first(const sequence & s, const float * logits, logits_row & first,
                                  int32_t n_vocab) {
    if (!s.plan.coupled.distinct_first || !s.generated.empty() || s.sampling.n_restarts > 0) {
        return logits;
    }
    if (!first) {
        first = std::make_shared<const std::vector<float>>(logits, logits + n_vocab);
    }
    return first->data();
}

static const float * row_of(const planned_rows & p, int32_t k, llama_context * ctx, int32_t n_vocab) {
    if (p.i_row < 0) {
        return p.r->prompt.first_row->data(); // of an earlier request
    }
    const float * logits = llama_get_logits_ith(ctx, p.i_row + k); // the first call sorts
    return row_or_first(*p.s, logits, p.r->prompt.first_row, n_vocab);
}

static const float * negative_row_of(const planned_rows & p, llama_context * ctx, int32_t n_vocab) {
    if (p.i_negative < 0) {
        return nullptr;
    }
    const float * logits = llama_get_logits_ith(ctx, p.i_negative);
    return row_or_first(*p.s, logits, p.r->prompt.first_negative, n_vocab);
}

std::vector<sample> samples_of(const step_plan & plan, const std::vector<planned_rows> & started,
                               llama_context * ctx, int32_t n_vocab) {
    std::vector<sample> samples;
    samples.reserve(plan.rows.size() + started.size());
    for (const auto * rows : {&plan.rows, &started}) {
        for (const planned_rows & p : *rows) {
            for (int32_t k = 0; k < p.n_rows; k++) {
                sample & d       = samples.emplace_back();
                d.r              = p.r;
                d.s              = p.s;
                d.logits         = row_of(p, k, ctx, n_vocab);
                d.negative       = negative_row_of(p, ctx, n_vocab);
                const auto given = p.s->kind->given_token(*p.s, (size_t) k);
                d.known          = given.has_value();
                d.token          = given.value_or(-1);
            }
        }
    }
    return samples;
}

bool has_row_of_guess(const planned_rows & p, int32_t k) {
    return p.i_drafts >= 0 && !p.s->over && p.s->draft.n_drawn == k;
}

std::vector<sample> samples_of_drafts(const step_plan & plan, int32_t k, llama_context * ctx) {
    std::vector<sample> samples;
    for (const planned_rows & p : plan.rows) {
        if (has_row_of_guess(p, k)) {
            sample & d = samples.emplace_back();
            d.r        = p.r;
            d.s        = p.s;
            d.logits   = llama_get_logits_ith(ctx, p.i_drafts + k - 1);
        }
    }
    return samples;
}

static const float * row_to_draw_from(const sample & d, int32_t n_vocab) {
    return guided_row({d.logits, d.negative, n_vocab, d.s->plan.settings->sampling.guidance_scale});
}

void send_outside(std::vector<sample> & samples, int32_t n_vocab, outside_processor & processor) {
    std::map<request *, outside_rows> rows;
    const auto                        is_sent = [&](const sample & d) {
        if (d.known || !d.s->plan.settings->processor || d.s->sampling.n_forced > 0) {
            return false;
        }
        const float * const mixed = row_to_draw_from(d, n_vocab);
        auto                row   = std::make_shared<outside_row>();
        row->index                = d.s->index;
        row->arguments            = d.s->plan.settings->processor;
        row->tokens               = d.r->command->prompt;
        row->tokens.insert(row->tokens.end(), d.s->generated.begin(), d.s->generated.end());
        row->n_prompt = d.r->n_prompt();
        row->logits.assign(d.logits, d.logits + n_vocab);
        row->processed.assign(mixed, mixed + n_vocab);
        d.s->outside = row;
        d.r->n_outside++;
        rows[d.r].push_back(std::move(row));
        return true;
    };
    samples.erase(std::remove_if(samples.begin(), samples.end(), is_sent), samples.end());
    for (auto & [r, list] : rows) {
        processor.send(r->command->client, r->id, std::move(list));
    }
}

// A sequence without cells has them again before its token is drawn, since that goes on from them.
std::vector<sample> samples_from_outside(request_lists & requests, outside_processor & processor) {
    const outside_rows  back = processor.take();
    std::vector<sample> samples;
    for (const auto & r : requests.active) {
        for (sequence & s : r->sequences) {
            if (s.outside && std::find(back.begin(), back.end(), s.outside) != back.end()) {
                r->n_outside--;
                unpark(*r, s);
            }
            if (!s.outside || !s.outside->is_back || !s.cells) {
                continue;
            }
            sample & d  = samples.emplace_back();
            d.r         = r.get();
            d.s         = &s;
            d.logits    = s.outside->logits.data();
            d.processed = s.outside->processed.data();
            r->times.outside += s.outside->t_us;
            if (!s.outside->error.empty()) {
                d.error = command_error("engine_error", s.outside->error, "logits_processor");
            }
        }
    }
    return samples;
}

static void list_banned(const sequence & s, const llama_vocab * vocab, bool leaves_loops,
                        std::vector<llama_token> & tokens) {
    tokens.clear();
    if ((int32_t) s.generated.size() < s.plan.settings->n_min) {
        tokens                               = end_tokens(vocab);
        const std::vector<llama_token> & own = s.plan.settings->ends.tokens;
        tokens.insert(tokens.end(), own.begin(), own.end());
    }
    for (const auto * bans : {&s.sampling.banned, &s.sampling.unlooped}) {
        for (const auto & [place, token] : *bans) {
            if (place == s.generated.size() && (leaves_loops || bans == &s.sampling.banned)) {
                tokens.push_back(token);
            }
        }
    }
}

// Where nothing else may be drawn, the sequence stays in its loop.
static llama_token draw(const sequence & s, const float * logits, const llama_vocab * vocab) {
    static thread_local std::vector<llama_token> banned;
    list_banned(s, vocab, true, banned);
    try {
        return s.sampling.sampler->draw(logits, banned);
    } catch (const command_error &) {
        const size_t n_banned = banned.size();
        list_banned(s, vocab, false, banned);
        if (banned.size() == n_banned) {
            throw;
        }
        return s.sampling.sampler->draw(logits, banned);
    }
}

// NAME: the n likeliest tokens, as JSON.
static void append_top(std::string & out, const char * name, const std::vector<token_logprob> & top,
                       int32_t n, const llama_vocab * vocab) {
    out += std::string(",\"") + name + "\":[";
    for (size_t i = 0; i < std::min(top.size(), (size_t) std::max(n, 0)); i++) {
        out += i ? ",{" : "{";
        append_logprob(out, top[i], vocab);
        out += "}";
    }
    out += "]";
}

// 1 for the likeliest token of the row.
static int64_t rank_of(llama_token token, const float * logits, int32_t n_vocab) {
    return 1 + std::count_if(logits, logits + n_vocab, [&](float logit) { return logit > logits[token]; });
}

// Those of what the samplers have left stand behind those of the model, if both are wanted.
static void append_processed(sample & d, const llama_vocab * vocab) {
    static thread_local std::vector<token_logprob> top;
    const int32_t                                  n   = d.r->command->n_logprobs;
    const token_logprob                            own = logprobs_of_draw(d.token, n, top);
    char                                           number[32];
    snprintf(number, sizeof(number), "%.6g", own.logprob);
    d.logprobs = std::string(",\"processed_logprob\":") + number;
    append_top(d.logprobs, "processed_top", top, n, vocab);
}

// The logprob of the token, and as JSON with the likeliest others that are wanted.
static void read_logprobs(sample & d, const llama_vocab * vocab) {
    static thread_local std::vector<token_logprob> top;
    const generate_command &                       c       = *d.r->command;
    const int32_t                                  n_vocab = llama_vocab_n_tokens(vocab);
    const int32_t                                  n_given = d.s ? 1 : c.n_prompt_logprobs;
    const int32_t                                  n_top =
        std::max(c.n_logprobs, d.known ? n_given : 0); // the likeliest one says whether the token is greedy
    const bool drawn = c.processed && !d.known;
    if (drawn && c.raw) {
        append_processed(d, vocab); // before the row is read, which takes the place of what the samplers left
    }
    const auto own   = drawn && !c.raw ? logprobs_of_draw(d.token, n_top, top)
                                       : logprobs_of(d.logits, n_vocab, d.token, n_top, top);
    d.score.logprob  = own.logprob;
    d.greedy         = d.known && !top.empty() && own.logprob >= top[0].logprob;
    std::string head = "{";
    append_logprob(head, own, vocab);
    if (!d.s && c.n_prompt_logprobs >= 0) {
        d.prompt_logprobs = head + ",\"rank\":" + std::to_string(rank_of(d.token, d.logits, n_vocab));
        append_top(d.prompt_logprobs, "top", top, c.n_prompt_logprobs, vocab);
        d.prompt_logprobs += "}";
    }
    append_top(head, "top", top, c.n_logprobs, vocab);
    d.logprobs = head + d.logprobs + "}";
}

// In nats, of the model's distribution: before the samplers, at temperature 1.
static float entropy_of(const float * logits, int32_t n_vocab) {
    const float        max  = max_in_range(logits, n_vocab, {});
    const entropy_sums sums = sum_for_entropy(logits, n_vocab, {}, {max, 1.0f});
    return (float) std::max(std::log(sums.weights) - sums.surplus / sums.weights, 0.0);
}

static void make_sampler(const request & r, sequence & s, const llama_model * model) {
    const int32_t  n_restarts = s.sampling.n_restarts;
    const uint32_t seed       = sequence_seed(s.plan.seed, (int64_t) n_restarts * 1000003);
    // after a restart a token is banned, or another sequence's text is known: its draws are independent from then on
    const coupling                    coupled = n_restarts == 0 ? s.plan.coupled : coupling();
    const std::vector<llama_token> *  before  = &r.command->prompt;
    const std::vector<llama_token> *  own     = &s.generated;
    std::shared_ptr<const healed_end> healed  = r.command->healed;
    std::vector<llama_token>          whole, second;
    if (s.answer.n_before > 0) { // the grammar begins with the second answer
        const auto begin = s.generated.begin() + (std::ptrdiff_t) s.answer.n_before;
        whole            = r.command->prompt;
        whole.insert(whole.end(), s.generated.begin(), begin);
        second.assign(begin, s.generated.end());
        before = &whole;
        own    = &second;
        healed = nullptr;
    }
    s.sampling.sampler =
        std::make_unique<token_sampler>(model, *s.plan.settings, seed, coupled, *before, *own, healed);
}

// Changes nothing but the sequence's sampler and `d`.
static void sample_one(sample & d, const model_facts & facts) {
    if (d.s && d.r->command->has_certainty()) {
        d.score.certainty = (float) certainty_of(d.logits, facts.vocab);
    }
    if (d.known) {
        read_logprobs(d, facts.vocab);
        return;
    }
    if (d.error) {
        return;
    }
    sequence &    s       = *d.s;
    const int32_t n_vocab = llama_vocab_n_tokens(facts.vocab);
    try {
        if (!s.sampling.sampler) {
            make_sampler(*d.r, s, facts.model);
        }
        if (s.sampling.n_forced > 0) {
            d.token = *(d.r->command->thought_end.end() - (std::ptrdiff_t) s.sampling.n_forced);
            s.sampling.sampler->force(d.token);
        } else {
            d.token = draw(s, d.processed ? d.processed : row_to_draw_from(d, n_vocab), facts.vocab);
        }
        d.complete                 = s.sampling.sampler->complete();
        const generate_command & c = *d.r->command;
        if (c.n_logprobs >= 0) {
            read_logprobs(d, facts.vocab);
        }
        if (c.entropies) {
            d.entropy = entropy_of(d.logits, n_vocab);
        }
        if (c.has_logprob() && (c.n_logprobs < 0 || !c.raw)) { // the sum is of raw logprobs
            static thread_local std::vector<token_logprob> none;
            d.score.logprob = logprobs_of(d.logits, n_vocab, d.token, 0, none).logprob;
        }
    } catch (const command_error & e) {
        d.error = d.processed ? command_error("engine_error",
                                              std::string("nothing may be drawn of what the logits processor "
                                                          "has left: ") +
                                                  e.what(),
                                              "logits_processor")
                              : e;
    } catch (const std::exception & e) {
        d.error = command_error("engine_error", e.what());
    }
}

void sample_all(std::vector<sample> & samples, const model_facts & facts, int32_t n_threads) {
    const size_t n = samples.size();

#pragma omp parallel for num_threads(n_threads) schedule(dynamic) if (n > 1)
    for (size_t i = 0; i < n; i++) {
        sample_one(samples[i], facts);
    }
}
