#include "schedule/update.h"

#include "protocol/events.h"
#include "protocol/reports.h"
#include "schedule/sequence_text.h"

#include <algorithm>
#include <numeric>

static const int64_t t_progress_us = 250000; // between two progress events of one prompt
static const int32_t n_max_retries = 8;      // of a sequence that is a duplicate of another one

void updater::begin_request(const request & r, std::string & out) const {
    if (r.prefix_only()) {
        return;
    }
    append_start(out, r.id, {(int64_t) r.sequences.size(), r.n_prompt(), r.n_cached, r.command->common.seed});
    if (!r.command->echo) {
        return;
    }
    std::string bytes;
    for (int32_t i = r.command->n_bos; i < r.n_prompt(); i++) {
        bytes += common_token_to_piece(facts.vocab, r.command->prompt[i], true);
    }
    std::vector<std::string> tokens;
    if (r.command->n_logprobs >= 0 && r.command->n_bos == 0) { // nothing predicts the first one
        tokens.push_back(unknown_logprob_json(r.command->prompt[0], facts.vocab));
    }
    append_prompt(out, r.id, take_utf8(bytes), tokens);
}

void updater::take_echo(const step_plan & plan, const std::vector<sample> & samples,
                        std::string & out) const {
    for (const planned_echo & e : plan.echoes) {
        e.r->n_echoed = e.i_token;
    }
    for (size_t i = 0; i < samples.size();) {
        const request *          r = samples[i].r;
        std::vector<std::string> tokens;
        for (; i < samples.size() && samples[i].r == r; i++) {
            tokens.push_back(samples[i].logprobs);
        }
        append_prompt(out, r->id, "", tokens);
    }
}

void updater::take_samples(std::vector<sample> & samples, prefix_tree & tree, std::string & out) const {
    for (sample & d : samples) {
        if (!d.error.empty() && !d.r->failed) {
            fail(*d.r, command_error(d.error_code, d.error), tree, out);
        }
        if (d.r->failed) {
            continue;
        }
        d.r->t_prefilled = d.r->t_prefilled ? d.r->t_prefilled : ggml_time_us();
        if (d.known) {
            take_scored(d, tree, out);
        } else {
            take_sampled(d, tree, out);
        }
    }
}

void updater::report_progress(request & r, std::string & out) const {
    const int64_t now = ggml_time_us();
    if (r.prompt && !r.ready && now - std::max(r.t_progress, r.t_admitted) > t_progress_us) {
        r.t_progress = now;
        append_progress(out, r.id, r.prompt->n_past(), r.n_prompt());
    }
}

void updater::take_sampled(sample & d, prefix_tree & tree, std::string & out) const {
    request &         r        = *d.r;
    sequence &        s        = *d.s;
    const bool        may_stop = (int32_t) s.generated.size() >= s.settings->n_min;
    const bool        ends     = llama_vocab_is_eog(facts.vocab, d.token);
    const std::string piece    = ends ? "" : piece_of(r, d.token, facts);
    if (r.command->n_logprobs >= 0) {
        s.logprobs.push_back(std::move(d.logprobs));
    }
    s.generated.push_back(d.token);
    if (r.command->sum_logprobs) {
        s.sampled_logprobs.push_back(d.logprob);
    }
    r.n_tokens++;

    const bool  over  = ends || d.complete;
    const bool  full  = r.is_full(s, facts.n_ctx_seq);
    std::string bytes = piece;
    if (s.guard.active()) {
        if (const size_t n_back = s.guard.feed(piece)) {
            rewind(r, s, n_back, tree);
            return;
        }
        bytes = s.guard.take_clear() + (over || full ? s.guard.finish() : "");
    }
    const std::string text = s.text.feed(bytes, may_stop);
    if (s.text.stopped()) {
        s.logprobs.clear(); // of tokens that make up the stop string
    } else if (ends && !s.logprobs.empty()) {
        s.logprobs.pop_back(); // the end-of-text token is not text
    }
    const bool told = s.text.decided() && s.logprobs.size() > s.guard.n_held();
    stream(r, s, text, told ? s.logprobs.size() - s.guard.n_held() : 0, false, out);
    if (over || s.text.stopped()) {
        end_sequence(r, s, "stop", tree, out);
    } else if (full) {
        end_sequence(r, s, "length", tree, out);
    }
}

// The last n tokens complete a banned phrase: they never were, and the first of them is forbidden at its
// place. The token before it is decoded again for its logits. The sampler is made anew, with a seed of its
// own: what it drew from its generator cannot be taken back.
void updater::rewind(request & r, sequence & s, size_t n, prefix_tree & tree) const {
    const size_t      place = s.generated.size() - n;
    const llama_token first = s.generated[place];
    s.generated.resize(place);
    s.sampled_logprobs.resize(std::min(s.sampled_logprobs.size(), place));
    s.logprobs.resize(s.logprobs.size() - std::min(n, s.logprobs.size()));
    r.n_tokens -= (int64_t) n;

    const auto passed = [&](const auto & f) { return f.first > place || f.first + s.guard.n_held() < place; };
    s.forbidden.erase(std::remove_if(s.forbidden.begin(), s.forbidden.end(), passed), s.forbidden.end());
    s.forbidden.emplace_back(place, first);
    s.n_rewinds++;
    s.sampler.reset();
    const int32_t n_keep = r.n_prompt() + (int32_t) place - 1;
    if (tree.can_cut(*s.cells, n_keep)) {
        tree.truncate(s.cells, n_keep);
    } else {
        free_sequence(tree, r, s, false); // it resumes from what is still there
    }
}

void updater::stream(const request & r, sequence & s, const std::string & text, size_t n_logprobs, bool last,
                     std::string & out) const {
    if (r.command->mark_duplicates) {
        s.text_so_far += text;
    }
    const chat_delta delta = s.message ? s.message->feed(text, last) : chat_delta{text, "", ""};
    if (delta.empty() && n_logprobs == 0) {
        return;
    }
    append_stream(out, r.id, s.index, delta, s.logprobs, n_logprobs);
    s.logprobs.erase(s.logprobs.begin(), s.logprobs.begin() + (std::ptrdiff_t) n_logprobs);
}

void updater::take_scored(sample & d, prefix_tree & tree, std::string & out) const {
    sequence & s = *d.s;
    s.logprobs.push_back(std::move(d.logprobs));
    s.sum += d.logprob;
    s.greedy = s.greedy && d.greedy;
    s.n_scored++;
    s.generated.push_back(d.token);
    d.r->n_tokens++;
    if (d.r->is_full(s, facts.n_ctx_seq)) {
        end_sequence(*d.r, s, "length", tree, out);
    }
}

//
// ends
//

void updater::end_full(request & r, prefix_tree & tree, std::string & out) const {
    for (sequence & s : r.sequences) {
        if (r.computed && !s.over && !s.cells && r.is_full(s, facts.n_ctx_seq)) {
            end_sequence(r, s, "length", tree, out);
        }
    }
}

void updater::cancel(request & r, int32_t index, prefix_tree & tree, std::string & out) const {
    r.cancelled = r.cancelled || r.prefix_only();
    for (sequence & s : r.sequences) {
        if (!s.over && (index < 0 || s.index == index)) {
            end_sequence(r, s, "cancelled", tree, out);
        }
    }
}

void updater::end_sequence(request & r, sequence & s, const char * reason, prefix_tree & tree,
                           std::string & out) const {
    if (s.scored && r.is_full(s, facts.n_ctx_seq)) {
        append_score(out, r.id, {s.index, s.n_scored, s.sum, s.greedy}, s.logprobs);
    } else if (!end_sampled(r, s, reason, tree, out)) {
        return;
    }
    if (s.cells) {
        free_sequence(tree, r, s, !s.scored);
    }
    s.sampler.reset();
    s.over = true;
    r.n_over++;
}

// One that is over and has the same text; only where the client wants to know.
static const sequence * duplicate_of(const request & r, const sequence & s) {
    const auto same = [&](const sequence & other) {
        return other.over && other.text_so_far == s.text_so_far;
    };
    const auto found = r.command->mark_duplicates ? std::find_if(r.sequences.begin(), r.sequences.end(), same)
                                                  : r.sequences.end();
    return found == r.sequences.end() ? nullptr : &*found;
}

// A greedy sequence would only have the same text once more, and one without a token has no other.
static bool may_retry(const request & r, const sequence & s) {
    const common_params_sampling & sampling = s.settings->sampling;
    const bool                     greedy   = sampling.temp <= 0.0f && sampling.dynatemp_range <= 0.0f;
    return r.command->retry_duplicates && !greedy && s.n_retries < n_max_retries &&
           s.generated.size() > s.n_begun;
}

// False: it is a duplicate, and is retried.
bool updater::end_sampled(request & r, sequence & s, const char * reason, prefix_tree & tree,
                          std::string & out) const {
    if (!s.scored) {
        const bool        may_stop = (int32_t) s.generated.size() > s.settings->n_min;
        const std::string rest =
            s.text.stopped() ? "" : s.text.feed(s.guard.finish(), may_stop) + s.text.finish();
        stream(r, s, rest, s.logprobs.size(), true, out);
    }
    const bool       cancelled = std::string_view(reason) == "cancelled";
    const sequence * duplicate = cancelled ? nullptr : duplicate_of(r, s);
    if (duplicate && may_retry(r, s)) {
        retry(r, s, tree, out);
        return false;
    }
    stop_report report = {s.index, (int64_t) s.generated.size(), reason, nullptr, {}, {}};
    if (s.text.stopped()) {
        report.stop_text = &s.text.stop_text();
    }
    if (r.command->sum_logprobs) {
        report.logprob = std::accumulate(s.sampled_logprobs.begin(), s.sampled_logprobs.end(), 0.0);
    }
    if (duplicate) {
        report.duplicate_of = duplicate->index;
    }
    append_stop(out, r.id, report);
    return true;
}

// Begins anew, and waits for a slot like a late one. Its seed is another one then, as after banned phrases.
void updater::retry(request & r, sequence & s, prefix_tree & tree, std::string & out) const {
    append_retry(out, r.id, s.index);
    if (s.cells) {
        free_sequence(tree, r, s, false);
    }
    s.generated.resize(s.n_begun);
    s.sampled_logprobs.resize(std::min(s.sampled_logprobs.size(), s.generated.size()));
    s.logprobs.clear();
    s.text_so_far.clear();
    s.forbidden.clear();
    s.sampler.reset();
    s.n_rewinds++;
    s.n_retries++;
    begin_text(r, s, facts);
}

void updater::fail(request & r, const command_error & e, prefix_tree & tree, std::string & out) const {
    out += error_line(r.id, e);
    for (sequence & s : r.sequences) {
        if (s.cells) {
            free_sequence(tree, r, s, false);
        }
    }
    if (r.prompt) {
        drop_prompt(tree, r);
    }
    r.failed = true;
}

static done_report report_of(const request & r) {
    const auto ms = [](int64_t from, int64_t to) {
        return from > 0 && to > from ? 1e-3 * (double) (to - from) : 0.0;
    };
    return {(int64_t) r.sequences.size(),     r.n_prompt(),
            std::max(r.n_cached, 0),          r.n_tokens,
            ms(r.t_arrived, r.t_admitted),    ms(r.t_admitted, r.t_prefilled),
            ms(r.t_prefilled, ggml_time_us())};
}

bool updater::finish(request & r, prefix_tree & tree, record_list & history, std::string & out) const {
    if (r.failed) {
        return true;
    }
    if (r.prefix_only() ? !r.computed && !r.cancelled : r.n_over < (int32_t) r.sequences.size()) {
        return false;
    }
    if (r.prompt) {
        drop_prompt(tree, r);
    }
    append_done(out, r.id, report_of(r));
    if (!r.prefix_only()) {
        record known;
        known.id    = r.id;
        known.n_bos = r.command->n_bos;
        known.add(r.command->prompt);
        for (const sequence & s : r.sequences) {
            known.add(seen_tokens(r, s, facts));
        }
        history.add(std::move(known));
    }
    return true;
}
