#include "schedule/generation.h"

#include "protocol/events.h"

#include <algorithm>
#include <numeric>

static const int32_t n_max_retries  = 8; // of a sequence that is a duplicate of another one
static const int32_t n_max_unlooped = 8; // times that a sequence goes back to where a loop began
static const size_t  n_max_told =
    64 << 10; // bytes of logprobs that are kept of a sequence's tokens for its forks

//
// text
//

// The bytes of the token at place i, and how many of them are the prompt's.
struct token_text {
    std::string bytes;
    size_t      n_prompt;

    std::string shown() const { return bytes.substr(n_prompt); }
    size_t      n_shown() const { return bytes.size() - n_prompt; }
};

// The text of a token for the client: of control tokens what the client wants, or a chat's parser, which reads free
// answers.
static token_text text_at(const request & r, const sequence & s, size_t i, const vocabulary & vocab) {
    const llama_token token = s.generated[i];
    const bool  parsed = r.command->chat && s.answer.n_before == 0 && r.command->chat->shown.count(token) > 0;
    const bool  shown  = parsed || s.plan.settings->shows_special;
    std::string bytes  = vocab.piece(token, shown);
    const size_t n     = n_not_spelled(r.command->healed_bytes().size(), s.generated, i, vocab);
    return {bytes, std::min(n, bytes.size())};
}

static bool ends_text(const sequence & s, llama_token token, const vocabulary & vocab) {
    return vocab.is_end(token) || s.plan.settings->ends.at(token);
}

// Of a token that ends the text: it has none, unless the client wants that.
static std::string end_text(const request & r, const sequence & s, size_t i, const vocabulary & vocab) {
    return s.plan.settings->ends.shown ? text_at(r, s, i, vocab).shown() : "";
}

// Thoughts that have used up their tokens are ended: what ends them comes in place of the next draws. n_new: tokens
// that the sequence has got.
static void end_long_thought(const request & r, sequence & s, int32_t n_new) {
    const int32_t n_most = s.plan.settings->n_thinking;
    if (n_most < 0 || r.command->thought_end.empty() || s.output.n_thinking < 0 || !s.output.message ||
        !s.output.message->in_thoughts()) {
        return;
    }
    s.output.n_thinking += n_new;
    if (s.output.n_thinking >= n_most) {
        s.sampling.n_forced = r.command->thought_end.size();
        s.output.n_thinking = -1;
    }
}

// Tokens at the end that the sequence gives up, should they turn out to be a loop.
static size_t n_in_loop(const sequence & s) {
    return s.plan.settings->loops.rewinds && s.sampling.n_unlooped < n_max_unlooped ? s.output.loops.n_begun()
                                                                                    : 0;
}

void told_logprobs::add(std::string && token) {
    n_bytes += token.size();
    tokens.push_back(std::move(token));
    for (; n_bytes > n_max_told; n_before++) {
        n_bytes -= tokens.front().size();
        tokens.pop_front();
    }
}

// Of a token that another sequence has had at the same place; unknown, if that one has had another or has forgotten it.
static std::string logprob_of(llama_token token, size_t i, const sequence & other, const vocabulary & vocab) {
    const told_logprobs &            told = other.output.told;
    const std::vector<std::string> & held = other.output.logprobs;
    if (i < told.n_before || i >= told.n() + held.size() || other.generated[i] != token) {
        return unknown_logprob_json(token, vocab);
    }
    return i < told.n() ? told.tokens[i - told.n_before] : held[i - told.n()];
}

static void begin_logprobs(sequence & s, const sequence & other, const vocabulary & vocab) {
    std::vector<std::string> held;
    told_logprobs            told;
    for (size_t i = 0; i < s.generated.size(); i++) {
        std::string json = logprob_of(s.generated[i], i, other, vocab);
        if (i < s.output.n_sent) {
            told.add(std::move(json));
        } else {
            held.push_back(std::move(json));
        }
    }
    s.output.logprobs = std::move(held);
    s.output.told     = std::move(told);
}

void begin_text(const request & r, sequence & s, const sequence & other, const vocabulary & vocab) {
    const sequence_settings & settings = *s.plan.settings;
    std::string               sent;
    s.output.text   = stop_matcher(settings.ends.finder, settings.ends.shown, settings.ends.passages);
    s.output.guard  = phrase_guard(settings.banned.finder, settings.banned.patterns, settings.loops.rewinds);
    s.output.loops  = loop_finder(settings.loops);
    s.output.n_sent = 0;
    s.output.forced_end = 0;
    for (size_t k = 0; k < s.generated.size(); k++) {
        std::string bytes = text_at(r, s, k, vocab).shown();
        if (s.output.guard.active()) {
            s.output.guard.feed(bytes);
            s.output.loops.find(s.generated, k + 1, s.answer.n_before);
            bytes = s.output.guard.take_clear(n_in_loop(s));
        }
        sent += s.output.text.feed(bytes, (int32_t) k >= settings.n_min);
        s.output.n_sent = s.output.text.decided() ? k + 1 - s.output.guard.n_held() : s.output.n_sent;
    }
    if (r.command->n_logprobs >= 0) {
        begin_logprobs(s, other, vocab);
    }
    if (r.command->chat) {
        s.output.message =
            std::make_unique<chat_message>(r.command->chat, r.id + " " + std::to_string(s.index));
        s.output.message->feed(sent, false);
        end_long_thought(r, s, 0);
    }
}

std::vector<llama_token> seen_tokens(const request & r, const sequence & s, const vocabulary & vocab) {
    const stop_matcher &     text   = s.output.text;
    std::vector<llama_token> tokens = s.generated;
    if (tokens.size() > s.answer.n_before && ends_text(s, tokens.back(), vocab) &&
        end_text(r, s, tokens.size() - 1, vocab).empty()) {
        tokens.pop_back();
    }
    size_t n_bytes = 0; // of the answer's tokens whose whole text was sent
    for (size_t i = s.answer.n_before; text.stopped() && i < tokens.size(); i++) {
        const token_text piece = text_at(r, s, i, vocab);
        if (n_bytes + piece.n_shown() > text.n_out()) {
            tokens.resize(i);
            const size_t n_seen = piece.n_prompt + text.n_out() - n_bytes;
            vocab.append(tokens, piece.bytes.substr(0, n_seen));
            break;
        }
        n_bytes += piece.n_shown();
    }
    spell_prompt(r.command->healed_bytes(), tokens, vocab);
    return tokens;
}

// Tokens at the answer's end that have nothing in the text, which has ended before them.
static size_t n_cut_off(const request & r, const sequence & s, const vocabulary & vocab) {
    size_t n_bytes = 0, i = s.answer.n_before;
    while (i < s.generated.size() && n_bytes < s.output.text.n_out()) {
        n_bytes += text_at(r, s, i++, vocab).n_shown();
    }
    return s.generated.size() - i;
}

// Whether the client gets something of each token that is drawn, those without a text included.
static bool tells_all(const request & r) {
    return r.command->return_ids || r.command->entropies;
}

// The next n tokens of a sequence, in the forms that the client wants besides their text.
static stream_report report_of(const request & r, sequence & s, size_t n, size_t n_logprobs) {
    stream_report report = {s.output.logprobs, n_logprobs, {}, {}};
    const auto    begin  = s.generated.begin() + (std::ptrdiff_t) s.output.n_sent;
    if (r.command->return_ids) {
        report.ids.assign(begin, begin + (std::ptrdiff_t) n);
    }
    if (r.command->entropies) {
        const auto own = s.sampling.entropies.begin() + (std::ptrdiff_t) s.output.n_sent;
        report.entropies.assign(own, own + (std::ptrdiff_t) n);
    }
    s.output.n_sent += n;
    return report;
}

// decided: what the tokens so far say to the client; else only their text is. last: the sequence has ended.
static void stream(const request & r, sequence & s, const std::string & text, bool decided, bool last,
                   std::string & out) {
    sequence_output & output     = s.output;
    const size_t      n_held     = last ? 0 : output.guard.n_held();
    const auto        n_free     = [&](size_t n) { return decided && n > n_held ? n - n_held : 0; };
    const size_t      n_logprobs = n_free(output.logprobs.size());
    const size_t      n_new      = tells_all(r) ? n_free(s.generated.size() - output.n_sent) : 0;
    if (s.plan.settings->second && !s.plan.settings->second->return_free) {
        output.logprobs.clear();
        return;
    }
    if (r.command->mark_duplicates) {
        s.duplicate.text += text;
    }
    const chat_delta delta = output.message ? output.message->feed(text, last) : chat_delta{text, "", ""};
    if (output.message && output.message->is_thinking()) {
        output.n_reasoning = s.generated.size();
    }
    if (delta.empty() && n_logprobs == 0 && n_new == 0) {
        return;
    }
    append_stream(out, r.id, s.index, delta, report_of(r, s, n_new, n_logprobs));
    const auto told = output.logprobs.begin() + (std::ptrdiff_t) n_logprobs;
    std::for_each(output.logprobs.begin(), told,
                  [&](std::string & token) { output.told.add(std::move(token)); });
    output.logprobs.erase(output.logprobs.begin(), told);
}

//
// banned phrases and loops
//

// The last n tokens complete a banned phrase, or a loop: they are removed, and the first of them is banned at its place.
// The token before it is decoded again for its logits. The sampler is made anew, with a seed of its own, since its random
// draws cannot be undone.
static void rewind(request & r, sequence & s, size_t n, bool of_loop, prefix_tree & tree) {
    const size_t      place = s.generated.size() - n;
    const llama_token first = s.generated[place];
    s.generated.resize(place);
    s.sampling.scores.resize(s.sampling.scores.size() - std::min(n, s.sampling.scores.size()));
    s.output.logprobs.resize(s.output.logprobs.size() - std::min(n, s.output.logprobs.size()));
    s.sampling.entropies.resize(std::min(s.sampling.entropies.size(), place));
    const size_t n_forked = std::min(s.duplicate.n_forked, place);
    r.n_tokens -= (int64_t) (n - (s.duplicate.n_forked - n_forked)); // which counted for the other one
    s.duplicate.n_forked = n_forked;

    // Older bans are useless: a rewind removes only tokens that are held back. Later bans belong to the removed text.
    const auto passed = [&](const auto & b) {
        return b.first > place || b.first + s.output.guard.n_held() < place;
    };
    for (auto * bans : {&s.sampling.banned, &s.sampling.unlooped}) {
        bans->erase(std::remove_if(bans->begin(), bans->end(), passed), bans->end());
    }
    (of_loop ? s.sampling.unlooped : s.sampling.banned).emplace_back(place, first);
    s.sampling.n_restarts++;
    s.sampling.sampler.reset();
    cut_cells(tree, r, s, (int32_t) place - 1, false);
}

// Whether the tokens end in a loop. n_back: the sequence leaves it, these last tokens are removed.
static bool find_loop(sequence & s, size_t & n_back) {
    const size_t begin = std::max(s.answer.n_before, s.output.forced_end);
    const size_t n     = s.output.loops.find(s.generated, s.generated.size(), begin);
    if (n > 0 && n_in_loop(s) > 0) {
        n_back = s.output.guard.remove(n);
        s.sampling.n_unlooped += n_back > 0;
    }
    return n > 0;
}

//
// duplicates
//

// A sequence that has ended with the same text; only where the client wants to know.
static const sequence * duplicate_of(const request & r, const sequence & s) {
    const auto same = [&](const sequence & other) {
        return other.over && other.duplicate.text == s.duplicate.text;
    };
    const auto found = r.command->mark_duplicates ? std::find_if(r.sequences.begin(), r.sequences.end(), same)
                                                  : r.sequences.end();
    return found == r.sequences.end() ? nullptr : &*found;
}

// A greedy sequence would get the same text again, and so would one that has added no token to what it was forked with.
static bool may_retry(const request & r, const sequence & s) {
    const sampling_settings & sampling = s.plan.settings->sampling;
    const bool                greedy   = sampling.temp <= 0.0f && sampling.dynatemp_range <= 0.0f;
    return r.command->retry_duplicates && !greedy && s.duplicate.n_retries < n_max_retries &&
           s.generated.size() > s.duplicate.n_forked;
}

// The sequence begins anew, with another seed, as after banned phrases; it waits for a slot like a late one.
static void retry(request & r, sequence & s, const update_context & to) {
    append_retry(to.out, r.id, s.index);
    if (s.cells) {
        free_sequence(to.tree, r, s, false);
    }
    s.generated.resize(s.duplicate.n_forked);
    s.sampling.scores.resize(std::min(s.sampling.scores.size(), s.generated.size()));
    s.sampling.banned.clear();
    s.sampling.unlooped.clear();
    s.sampling.n_unlooped = 0;
    s.sampling.entropies.resize(std::min(s.sampling.entropies.size(), s.generated.size()));
    s.sampling.sampler.reset();
    s.sampling.n_restarts++;
    s.duplicate.text.clear();
    s.duplicate.n_retries++;
    begin_text(r, s, s, to.vocab);
}

//
// second answers
//

// Tokens that a free answer leaves to the text and the second answer; at most half of those behind the prompt.
static int32_t n_spared(const second_answer & second, int32_t n_left) {
    const int64_t n = (int64_t) second.text.size() + std::max(second.settings->n_predict, 1);
    return (int32_t) std::min(n, (int64_t) n_left / 2);
}

static int64_t n_drawn(const sequence & s) {
    return (int64_t) (s.generated.size() - s.answer.n_before) + s.answer.n_free;
}

// The free answer has ended for this reason: the sequence goes on with the text, which gets cells as tokens of a resumed
// sequence do. False: there is no room for a second answer.
static bool begin_second(request & r, sequence & s, const char * reason, const update_context & to) {
    const auto               second = s.plan.settings->second;
    std::vector<llama_token> tokens = seen_tokens(r, s, to.vocab);
    if (r.n_prompt() + (int32_t) (tokens.size() + second->text.size()) >= r.prompt.n_ctx) {
        return false;
    }
    if (second->return_free) {
        const stop_matcher & text = s.output.text;
        append_then(to.out, r.id, {s.index, n_drawn(s), reason, text.stop_text(), text.passage()});
    }
    cut_cells(to.tree, r, s, common_length(tokens, s.generated), true); // those of a stop string
    s.answer.n_free = n_drawn(s);
    s.generated     = std::move(tokens);
    s.generated.insert(s.generated.end(), second->text.begin(), second->text.end());
    s.answer.n_before = s.generated.size();
    r.pruning.points.end(s.pruning.n_points);
    s.plan.settings  = second->settings;
    s.plan.n_predict = second->settings->n_predict;
    s.output         = {};
    s.output.text    = stop_matcher(second->settings->ends.finder, second->settings->ends.shown);
    s.output.guard   = phrase_guard(second->settings->banned.finder, second->settings->banned.patterns,
                                    second->settings->loops.rewinds);
    s.output.loops   = loop_finder(second->settings->loops);
    s.sampling.scores.clear();
    s.sampling.banned.clear();
    s.sampling.unlooped.clear();
    s.sampling.n_unlooped = 0;
    s.sampling.sampler.reset();
    s.sampling.n_restarts++; // draws of its own
    return true;
}

//
// the kind
//

namespace {

class sampled final : public sequence_kind {
  public:
    llama_token token_at(const sequence & s, size_t i) const override { return s.generated[i]; }
    size_t      n_wanted(const sequence & s) const override { return s.generated.size(); }
    bool        is_full(const sequence & s, int32_t n_left) const override;
    bool        is_background() const override { return false; }
    int32_t     n_urgent() const override { return n_chunk; }

    std::optional<llama_token> given_token(const sequence &, size_t) const override { return std::nullopt; }

    void take(sample & d, const update_context & to) const override;
    void end(request & r, sequence & s, const char * reason, const update_context & to) const override;
};

bool sampled::is_full(const sequence & s, int32_t n_left) const {
    const int32_t n     = (int32_t) s.generated.size();
    const int32_t n_own = n - (int32_t) s.answer.n_before;
    const auto &  after = s.plan.settings->second;
    return (s.plan.n_predict >= 0 && n_own >= s.plan.n_predict) ||
           n >= n_left - (after ? n_spared(*after, n_left) : 0);
}

// The token, and what is wanted of it besides its text.
static void append_draw(sample & d) {
    request &  r = *d.r;
    sequence & s = *d.s;
    if (r.command->n_logprobs >= 0) {
        s.output.logprobs.push_back(std::move(d.logprobs));
    }
    if (r.command->has_scores()) {
        s.sampling.scores.push_back(d.score);
    }
    if (r.command->entropies) {
        s.sampling.entropies.push_back(d.entropy);
    }
    s.generated.push_back(d.token);
    s.sampling.n_forced -= s.sampling.n_forced > 0;
    r.n_tokens++;
}

// Tokens that go: those of a banned phrase, or of a loop. loops: the tokens end in one.
static size_t n_taken_back(sequence & s, const std::string & piece, bool ends, bool & loops) {
    size_t n_back = s.output.guard.active() ? s.output.guard.feed(piece) : 0;
    loops         = n_back == 0 && !ends && find_loop(s, n_back);
    return n_back;
}

void sampled::take(sample & d, const update_context & to) const {
    request &         r        = *d.r;
    sequence &        s        = *d.s;
    sequence_output & output   = s.output;
    const bool        may_stop = (int32_t) s.generated.size() >= s.plan.settings->n_min;
    const bool        ends     = ends_text(s, d.token, to.vocab);
    const bool        forced   = s.sampling.n_forced > 0;
    append_draw(d);
    const size_t      place = s.generated.size() - 1;
    const std::string piece = ends ? end_text(r, s, place, to.vocab) : text_at(r, s, place, to.vocab).shown();
    const bool        over  = ends || d.complete;
    const bool        full  = r.is_full(s);
    std::string       bytes = piece;
    bool              loops = false;
    if (const size_t n_back = forced ? 0 : n_taken_back(s, piece, ends, loops)) {
        rewind(r, s, n_back, loops, to.tree);
        return;
    }
    if (forced) { // what is not drawn is not taken back
        output.forced_end = s.generated.size();
        bytes             = output.guard.finish() + piece;
    } else if (output.guard.active()) {
        bytes = output.guard.take_clear(n_in_loop(s)) + (over || full ? output.guard.finish() : "");
    }
    const std::string text = output.text.feed(bytes, may_stop);
    if (!r.command->return_ids && output.text.stopped()) {
        const size_t n_cut = n_cut_off(r, s, to.vocab);
        output.logprobs.resize(output.logprobs.size() - std::min(n_cut, output.logprobs.size()));
    } else if (!r.command->return_ids && ends && piece.empty() && !output.logprobs.empty()) {
        output.logprobs.pop_back(); // an end-of-text token has no text
    }
    stream(r, s, text, output.text.decided(), false, to.out);
    end_long_thought(r, s, 1);
    const bool stopped = over || output.text.stopped();
    const bool looped  = loops && (int32_t) s.generated.size() >= s.plan.settings->n_min;
    if (stopped || looped || full) {
        end(r, s, stopped ? "stop" : looped ? "repetition" : "length", to);
    } else {
        reach_prune_point(r, s);
    }
}

void sampled::end(request & r, sequence & s, const char * reason, const update_context & to) const {
    stop_matcher &    text     = s.output.text;
    const bool        may_stop = (int32_t) s.generated.size() > s.plan.settings->n_min;
    const std::string rest =
        text.stopped() ? "" : text.feed(s.output.guard.finish(), may_stop) + text.finish();
    stream(r, s, rest, true, true, to.out);

    const bool whole = ends_by_itself(reason);
    if (s.plan.settings->second && whole) {
        if (begin_second(r, s, reason, to)) {
            return;
        }
        reason = "length";
    }
    const sequence * duplicate = whole ? duplicate_of(r, s) : nullptr;
    if (duplicate && may_retry(r, s)) {
        retry(r, s, to);
        return;
    }
    count_end(r, s, reason);
    stop_report report = {s.index, n_drawn(s), reason, nullptr, nullptr, {}, {}, {}, {}, {}};
    if (s.answer.n_before > 0) {
        report.n_free = s.answer.n_free;
    }
    if (text.stopped()) {
        report.stop_text = text.stop_text();
        report.passage   = text.passage();
    } else if (!s.generated.empty() && s.plan.settings->ends.at(s.generated.back()) &&
               !to.vocab.is_end(s.generated.back())) {
        report.stop_token = s.generated.back();
    }
    if (r.command->sum_logprobs) {
        report.logprob = sum_of(s.sampling.scores, &token_score::logprob);
    }
    if (r.command->certainty) {
        report.certainty = mean_of(s.sampling.scores, &token_score::certainty);
    }
    if (duplicate) {
        report.duplicate_of = duplicate->index;
    }
    append_stop(to.out, r.id, report);
    close_sequence(to.tree, r, s, true);
}

} // namespace

const sequence_kind & sampled_kind() {
    static const sampled kind;
    return kind;
}
