#include "schedule/update.h"

#include "protocol/event_line.h"
#include "protocol/events.h"
#include "schedule/generation.h"
#include "schedule/intake.h"
#include "util/utf8.h"

#include <algorithm>
#include <limits>

static const int64_t t_progress_us = 250000; // between two progress events of one prompt

void begin_request(const request & r, const update_context & to) {
    if (r.prefix_only()) {
        return;
    }
    append_start(to.out, r.id,
                 {(int64_t) r.sequences.size(), r.n_prompt(), r.prompt.n_cached, r.command->common.seed,
                  r.command->n_cut, r.command->return_ids ? &r.command->prompt : nullptr,
                  &r.command->warnings});
    if (r.command->n_prompt_logprobs >= 0 && r.n_prompt() > 0) {
        append_prompt_logprobs(to.out, r.id, {unknown_logprob_json(r.command->prompt[0], to.vocab)});
    }
    if (!r.command->echo) {
        return;
    }
    std::string bytes = r.command->text;
    if (bytes.empty()) {
        for (int32_t i = r.command->n_bos; i < r.n_prompt(); i++) {
            bytes += to.vocab.piece(r.command->prompt[(size_t) i], true);
        }
        bytes += r.command->healed_bytes();
        bytes.erase(0, r.command->front_space ? 1 : 0);
    }
    std::vector<std::string> tokens;
    if (r.command->n_logprobs >= 0 && r.command->n_bos == 0) { // nothing predicts the first one
        tokens.push_back(unknown_logprob_json(r.command->prompt[0], to.vocab));
    }
    append_prompt(to.out, r.id, take_utf8(bytes), tokens);
}

void take_echo(const step_plan & plan, const std::vector<sample> & samples, const update_context & to) {
    for (const planned_echo & e : plan.echoes) {
        e.r->prompt.n_echoed = e.i_token;
    }
    for (size_t i = 0; i < samples.size();) {
        const request *          r = samples[i].r;
        std::vector<std::string> tokens, ranked;
        for (; i < samples.size() && samples[i].r == r; i++) {
            tokens.push_back(samples[i].logprobs);
            ranked.push_back(samples[i].prompt_logprobs);
        }
        if (r->command->echo && r->command->n_logprobs >= 0) {
            append_prompt(to.out, r->id, "", tokens);
        }
        if (r->command->n_prompt_logprobs >= 0) {
            append_prompt_logprobs(to.out, r->id, ranked);
        }
    }
}

// As many sequences as the client wants have ended by themselves: the others end with what they have.
static void end_surplus(request & r, const update_context & to) {
    const int32_t n_first = r.command->finish.first;
    if (n_first > 0 && r.pruning.n_ended >= n_first && r.n_over < (int32_t) r.sequences.size()) {
        cancel_request(r, -1, "surplus", to);
    }
}

// The sequence takes its sample. A guess that was drawn stays, with its cell, if the sequence goes on behind it; else all
// that are left are dropped, before another request could find their cells.
static void take_one(sample & d, const update_context & to) {
    sequence &   s        = *d.s;
    const bool   is_guess = !s.draft.left.empty() && s.draft.left.front() == d.token;
    const size_t n        = s.generated.size();
    if (!is_guess) {
        drop_draft(to.tree, s);
    }
    s.kind->take(d, to);
    if (is_guess && s.cells && !s.over && !s.pruning.waits && s.generated.size() == n + 1 &&
        s.generated.back() == d.token && !s.draft.left.empty()) {
        s.draft.left.pop_front();
        s.draft.n_drawn++;
    } else {
        drop_draft(to.tree, s);
    }
}

void take_samples(std::vector<sample> & samples, const update_context & to) {
    for (sample & d : samples) {
        if (d.error && !d.r->failed) {
            fail_request(*d.r, *d.error, to);
        }
        if (d.r->failed || d.s->over) {
            continue;
        }
        d.r->times.prefilled = d.r->times.prefilled ? d.r->times.prefilled : ggml_time_us();
        take_one(d, to);
        end_surplus(*d.r, to);
    }
}

void report_progress(request & r, const update_context & to) {
    const int64_t now = ggml_time_us();
    if (r.prompt.cells && !r.prompt.ready &&
        now - std::max(r.times.progress, r.times.admitted) > t_progress_us) {
        r.times.progress = now;
        append_progress(to.out, r.id, r.prompt.cells->n_past(), r.n_prompt());
    }
}

//
// ends
//

void end_full(request & r, const update_context & to) {
    for (sequence & s : r.sequences) {
        if (r.prompt.computed && !r.failed && !s.over && !s.cells && r.is_full(s)) {
            s.kind->end(r, s, "length", to);
            end_surplus(r, to);
        }
    }
}

// The least number of prune points at which a sequence has arrived that is still to come to others.
static size_t n_points_of_all(const request & r) {
    size_t n = std::numeric_limits<size_t>::max();
    for (const sequence & s : r.sequences) {
        n = s.over || s.answer.n_before > 0 ? n : std::min(n, s.pruning.n_points);
    }
    return n;
}

void pass_prune_points(request & r, int32_t n_parallel, const update_context & to) {
    const prune_settings & prune = r.command->prune;
    if (r.pruning.n_at_points == 0 || r.failed) {
        return;
    }
    const size_t n_passed = (int32_t) r.sequences.size() > n_parallel ? prune.at.size() : n_points_of_all(r);
    for (sequence & s : r.sequences) {
        if (!s.pruning.waits || s.pruning.n_points > n_passed) {
            continue;
        }
        release_from_prune_point(r, s);
        if (r.pruning.points.is_beaten(prune, s.pruning.n_points - 1, s.pruning.arrival)) {
            s.kind->end(r, s, "pruned", to);
        }
    }
}

void cancel_request(request & r, int32_t index, const char * reason, const update_context & to) {
    r.cancelled = r.cancelled || r.prefix_only();
    for (sequence & s : r.sequences) {
        if (!s.over && (index < 0 || s.index == index)) {
            s.kind->end(r, s, reason, to);
        }
    }
}

void fail_request(request & r, const command_error & e, const update_context & to) {
    if (!r.is_own()) {
        to.out += error_line(r.id, e);
    }
    for (sequence & s : r.sequences) {
        if (s.cells) {
            free_sequence(to.tree, r, s, false);
        }
    }
    if (r.prompt.cells) {
        drop_prompt(to.tree, r);
    }
    r.failed = true;
}

void end_stuck(request_lists & requests, const update_context & to) {
    const cell_counts counts = to.tree.counts();
    if (requests.active.empty() || counts.n_pinned == 0) {
        return;
    }
    request & r = *requests.active.front();
    if (counts.n_room() >= r.n_sets()) {
        return;
    }
    for (sequence & s : r.sequences) {
        if (s.cells && r.n_live == 1) {
            s.kind->end(r, s, "length", to);
            return;
        }
    }
    if (r.prompt.cells && r.n_live == 0) {
        fail_request(r, beside_pins(r, to.tree), to);
    }
}

//
// pins
//

void keep_pin(request & r, request_lists & requests, int32_t n_ctx_seq, const update_context & to) {
    if (!r.prompt.computed || !r.prompt.cells || r.failed || r.cancelled) {
        return;
    }
    save_prompt(to.tree, r);
    r.prompt.cells->pinned = true;
    unpin(requests, r.command->pin, to.tree);
    requests.pins.push_back({r.command->pin, r.command->prompt, r.command->adapters, r.prompt.cells});
    r.prompt.cells   = nullptr;
    const auto limit = [&](const std::unique_ptr<request> & other) {
        other->prompt.n_ctx = n_ctx_beside_pins(*other->command, to.tree, n_ctx_seq);
        if (!other->is_pin() && !other->failed && other->n_prompt() + 1 > other->prompt.n_ctx) {
            fail_request(*other, beside_pins(*other, to.tree), to);
        }
    };
    std::for_each(requests.active.begin(), requests.active.end(), limit);
    std::for_each(requests.queue.begin(), requests.queue.end(), limit);
}

static done_report report_of(const request & r) {
    const auto ms = [](int64_t from, int64_t to) {
        return from > 0 && to > from ? 1e-3 * (double) (to - from) : 0.0;
    };
    const request_times & t = r.times;
    done_report           report{(int64_t) r.sequences.size(),    r.n_prompt(),
                                 std::max(r.prompt.n_cached, 0),  r.n_tokens,
                                 ms(t.arrived, t.admitted),       ms(t.admitted, t.prefilled),
                                 ms(t.prefilled, ggml_time_us()), {}};
    for (const sequence & s : r.sequences) {
        report.n_reasoning += (int64_t) s.output.n_reasoning;
    }
    report.n_guessed    = r.drafts.n_guessed;
    report.n_right      = r.drafts.n_right;
    report.n_negative   = r.n_negative();
    report.processor_ms = 1e-3 * (double) t.outside;
    if (r.command->finish.given || r.command->prune.keep > 0) {
        report.n_saved = r.pruning.n_saved;
    }
    return report;
}

bool finish_request(request & r, record_list & history, const update_context & to) {
    if (r.failed) {
        return true;
    }
    if (r.prefix_only() ? !r.prompt.computed && !r.cancelled : r.n_over < (int32_t) r.sequences.size()) {
        return false;
    }
    if (r.prompt.cells) {
        drop_prompt(to.tree, r);
    }
    if (r.is_own()) {
        return true;
    }
    append_done(to.out, r.id, report_of(r));
    if (!r.prefix_only()) {
        record known;
        known.id          = r.id;
        known.client      = r.command->client;
        known.key         = r.cells_key();
        known.n_bos       = r.command->n_bos;
        known.front_space = r.command->front_space;
        known.n_first     = r.command->n_first;
        known.healed      = r.command->healed_bytes();
        known.add(r.command->prompt);
        for (const sequence & s : r.sequences) {
            known.add_answer(s.generated, seen_tokens(r, s, to.vocab));
        }
        history.add(std::move(known));
    }
    return true;
}
