#include "schedule/drafting.h"

#include <algorithm>
#include <utility>

static const double  least_gain       = 0.05; // tokens, on average, of a guess that is worth a look
static const double  fading           = 0.998;
static const double  memory           = 0.97; // of the last guesses: some thirty count
static const double  prior_weight     = 3.0;  // guesses
static const double  n_few            = 8.0;
static const double  n_halved         = 10000.0; // steps: half of them later half is left of a time
static const double  part_of_rise     = 0.5;
static const int64_t n_fresh          = 64; // steps
static const double  weight_of_change = 0.05;
// Of tokens a second: what is less may be noise, and no guesses are taken; for less than a clear gain steps without guesses
// are measured, too.
static const double small_gain = 1.03, clear_gain = 1.3;
// Before anything is known: of a first guess, and of one behind a right one.
static const double priors[] = {0.45, 0.75, 0.65, 0.85, 0.8, 0.9}; // of few equal tokens, of some, of many
static const double priors_of_grammar[] = {0.95, 0.5};

void step_curve::add(int32_t n_tokens, int64_t t_us) {
    const bool is_changed = std::exchange(n_last, n_tokens) != n_tokens;
    if (n_tokens < 1 || n_tokens > n_max) {
        return;
    }
    point & p = points[(size_t) n_tokens];
    double  t = (double) t_us;
    if (is_changed && p.is_plain) {
        t_change += weight_of_change * (std::clamp(t - p.t, 0.0, p.t) - t_change);
    }
    if (is_changed) {
        t = std::max(t - t_change, 0.5 * t);
    }
    if (p.n_times < 2) {
        p.t = p.n_times == 0 ? t : std::min(p.t, t);
    } else {
        const double weight = is_stale(n_tokens) ? 0.5 : 0.2;
        p.t += weight * (std::min(t, 2.0 * p.t) - p.t);
    }
    p.n_times++;
    p.is_plain |= !is_changed;
    p.last = ++n_steps;
}

double step_curve::now(int32_t n_tokens, int32_t n_plain) const {
    return at(n_tokens) + t_change * ((n_tokens != n_last) + (n_tokens != n_plain));
}

bool step_curve::is_stale(int32_t n_tokens) const {
    return knows(n_tokens) && n_steps - points[(size_t) n_tokens].last > n_fresh;
}

bool step_curve::knows(int32_t n_tokens) const {
    if (n_tokens < 1 || n_tokens > n_max) {
        return false;
    }
    return points[(size_t) n_tokens].n_times >= 2;
}

// What was measured; the longer ago, the less of it.
double step_curve::of(int32_t n_tokens) const {
    const point & p = points[(size_t) n_tokens];
    return p.t * std::max(1.0 - (double) (n_steps - p.last) / n_halved, 0.5);
}

double step_curve::at(int32_t n_tokens) const {
    int32_t below = std::min(n_tokens, n_max), above = n_tokens;
    while (below > 0 && !knows(below)) {
        below--;
    }
    while (above <= n_max && !knows(above)) {
        above++;
    }
    if (below == 0 && above > n_max) {
        return 1.0;
    }
    if (below == 0 || below == above) {
        return of(above);
    }
    if (above > n_max) { // the least one says with it how steep they are
        int32_t least = 1;
        while (!knows(least)) {
            least++;
        }
        const double rise = least < below ? std::max(of(below) - of(least), 0.0) / (below - least) : 0.0;
        return of(below) + part_of_rise * rise * (n_tokens - below);
    }
    return of(below) + (of(above) - of(below)) * (n_tokens - below) / (above - below);
}

// Of a grammar: a sure one, or one that free text may make longer. Else by source, and by the tokens that are equal.
size_t guess_rates::rate_of(const draft_evidence & why, int32_t i) {
    if (why.source == draft_source::grammar) {
        return 2 * n_classes * draft_source::grammar + (i < why.n_sure ? 0 : 1);
    }
    const size_t of_equal = why.n_equal < 6 ? 0 : why.n_equal < 16 ? 1 : 2;
    return 2 * (n_classes * (size_t) why.source + of_equal) + (i == 0 ? 0 : 1);
}

void guess_rates::add(const draft_evidence & why, int32_t n_guessed, int32_t n_right) {
    for (int32_t i = 0; i < std::min(n_guessed, n_right + 1); i++) {
        rate & r = rates[rate_of(why, i)];
        r.right  = r.right * memory + (i < n_right ? 1.0 : 0.0);
        r.all    = r.all * memory + 1.0;
    }
}

guess_rates guess_rates::few() const {
    guess_rates some = *this;
    for (rate & r : some.rates) {
        const double part = std::min(1.0, n_few / (r.all + 1e-9));
        r.right *= part;
        r.all *= part;
    }
    return some;
}

void guess_rates::fade() {
    for (rate & r : rates) {
        r.right *= fading;
        r.all *= fading;
    }
}

double guess_rates::chance(const draft_evidence & why, int32_t i) const {
    double all = 1.0;
    for (int32_t k = 0; k <= i; k++) {
        const size_t which = rate_of(why, k);
        const rate & r     = rates[which];
        const double prior = why.source == draft_source::grammar ? priors_of_grammar[which % 2]
                                                                 : priors[which % (2 * n_classes)];
        all *= (r.right + prior * prior_weight) / (r.all + prior_weight);
    }
    return all;
}

double guess_rates::expected(const draft_evidence & why, int32_t n) const {
    double sum = 0.0;
    for (int32_t i = 0; i < n; i++) {
        sum += chance(why, i);
    }
    return sum;
}

std::vector<int32_t> choose_drafts(const std::vector<draft_offer> & offers, const step_curve & curve,
                                   int32_t n_tokens, int32_t n_rows, int32_t n_room, double t_share) {
    std::vector<int32_t> taken(offers.size(), 0), best = taken;
    const double         t_plain = curve.now(n_tokens, n_tokens);
    double               made = n_rows, best_rate = small_gain * made / t_plain;
    for (int32_t n = 1; n <= n_room && n_tokens + n <= step_curve::n_max; n++) {
        size_t next   = offers.size();
        double gained = least_gain;
        for (size_t i = 0; i < offers.size(); i++) {
            const draft_offer & o = offers[i];
            const double own = taken[i] < o.n_most ? o.n_sequences * o.rates->chance(o.why, taken[i]) : 0.0;
            if (own > gained) {
                next   = i;
                gained = own;
            }
        }
        if (next == offers.size()) {
            break;
        }
        taken[next]++;
        made += gained;
        const double t = curve.now(n_tokens + n, n_tokens);
        if (t <= t_share * t_plain && made / t > best_rate) {
            best      = taken;
            best_rate = made / t;
        }
    }
    const bool is_clear = best_rate > clear_gain * n_rows / t_plain;
    return is_clear || !curve.is_stale(n_tokens) ? best : std::vector<int32_t>(offers.size(), 0);
}

draft_rounds choose_rounds(const guess_rates & rates, const step_curve & curve, int32_t n_tokens,
                           int32_t n_rows, int32_t n_texts, double t_round, int32_t n_most) {
    const double         t_plain = curve.at(n_tokens);
    const draft_evidence why     = {draft_source::model, 0, 0};
    double               made = n_rows, best_rate = small_gain * made / t_plain;
    int32_t              best = 0;
    for (int32_t n = 1; n <= n_most && n_tokens + n * n_texts <= step_curve::n_max; n++) {
        made += n_texts * rates.chance(why, n - 1);
        const double t = curve.at(n_tokens + n * n_texts) + n * t_round;
        if (made / t > best_rate) {
            best      = n;
            best_rate = made / t;
        }
    }
    return {best, t_plain - n_rows / best_rate};
}
