#include "schedule/scoring.h"

#include "protocol/events.h"

#include <algorithm>

void begin_score(const request & r, sequence & s, const scored_text & text, const vocabulary & vocab) {
    s.score.text  = &text;
    const auto at = text.tokens.begin();
    s.generated.assign(at, at + std::max(text.n_given, r.n_prompt() == 0 ? 1 : 0));
    if (text.n_given == 0 && !s.generated.empty()) {
        s.output.logprobs.push_back(unknown_logprob_json(s.generated[0], vocab));
    }
}

namespace {

class scored final : public sequence_kind {
  public:
    llama_token token_at(const sequence & s, size_t i) const override { return s.score.text->tokens[i]; }
    // The last token predicts nothing that is wanted.
    size_t  n_wanted(const sequence & s) const override { return s.score.text->tokens.size() - 1; }
    bool    is_full(const sequence & s, int32_t) const override { return has_all(s); }
    bool    is_background() const override { return true; }
    int32_t n_urgent() const override { return 1; }

    std::optional<llama_token> given_token(const sequence & s, size_t k) const override {
        return s.score.text->tokens[s.generated.size() + k];
    }

    void take(sample & d, const update_context & to) const override;
    void end(request & r, sequence & s, const char * reason, const update_context & to) const override;

  private:
    static bool has_all(const sequence & s) { return s.generated.size() >= s.score.text->tokens.size(); }
};

void scored::take(sample & d, const update_context & to) const {
    sequence & s = *d.s;
    s.output.logprobs.push_back(std::move(d.logprobs));
    s.score.sum += d.score.logprob;
    s.score.certainty += d.score.certainty;
    s.score.greedy = s.score.greedy && d.greedy;
    s.score.n_scored++;
    s.generated.push_back(d.token);
    d.r->n_tokens++;
    if (has_all(s)) {
        end(*d.r, s, "length", to);
    }
}

void scored::end(request & r, sequence & s, const char * reason, const update_context & to) const {
    if (has_all(s)) {
        score_report report = {s.index, s.score.n_scored, s.score.sum, s.score.greedy, {}};
        if (r.command->certainty) {
            report.certainty = s.score.certainty / std::max(s.score.n_scored, 1);
        }
        append_score(to.out, r.id, report, s.output.logprobs);
    } else {
        append_stop(to.out, r.id,
                    {s.index, (int64_t) s.generated.size(), reason, nullptr, {}, {}, {}, {}, {}});
    }
    close_sequence(to.tree, r, s, false);
}

} // namespace

const sequence_kind & scored_kind() {
    static const scored kind;
    return kind;
}
