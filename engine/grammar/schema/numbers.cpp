#include "grammar/schema/numbers.h"

#include "grammar/schema/pattern.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>

static const int     n_max_digits   = 400;
static const int     n_whole        = 18; // digits of a number without bounds
static const int     n_fraction     = 17;
static const int64_t n_max_multiple = 20000;
static const int     n_remainders   = 36000; // of all digits of a multiple without bounds

std::optional<decimal> read_decimal(const std::string & text) {
    decimal     out;
    size_t      i = 0;
    std::string digits;
    out.negative   = text[i] == '-';
    i              = out.negative ? 1 : 0;
    int64_t before = 0; // digits before the point
    bool    point  = false;
    for (; i < text.size() && text[i] != 'e' && text[i] != 'E'; i++) {
        if (text[i] == '.') {
            point = true;
            continue;
        }
        digits += text[i];
        before += point ? 0 : 1;
    }
    if (i < text.size()) {
        before += strtol(text.c_str() + i + 1, nullptr, 10);
    }
    if (before > n_max_digits || before < -n_max_digits || (int) digits.size() > n_max_digits) {
        return std::nullopt;
    }
    if (before < 0) {
        digits.insert(0, (size_t) -before, '0');
        before = 0;
    }
    if ((int64_t) digits.size() < before) {
        digits.append((size_t) before - digits.size(), '0');
    }
    out.whole    = digits.substr(0, (size_t) before);
    out.fraction = digits.substr((size_t) before);
    out.whole.erase(0, std::min(out.whole.find_first_not_of('0'), out.whole.size()));
    out.whole = out.whole.empty() ? "0" : out.whole;
    while (!out.fraction.empty() && out.fraction.back() == '0') {
        out.fraction.pop_back();
    }
    out.negative = out.negative && !out.is_zero();
    return out;
}

static int compare_sizes(const decimal & a, const decimal & b) {
    if (a.whole.size() != b.whole.size()) {
        return a.whole.size() < b.whole.size() ? -1 : 1;
    }
    const int whole = a.whole.compare(b.whole);
    const int c     = whole != 0 ? whole : a.fraction.compare(b.fraction);
    return c < 0 ? -1 : c > 0 ? 1 : 0;
}

int compare(const decimal & a, const decimal & b) {
    if (a.negative != b.negative) {
        return a.negative ? -1 : 1;
    }
    return a.negative ? compare_sizes(b, a) : compare_sizes(a, b);
}

// The number times 10 to the power of n as an integer; -1: it is none, or too large.
static int64_t scaled(const decimal & d, size_t n, int64_t limit) {
    if (d.fraction.size() > n) {
        return -1;
    }
    int64_t out = 0;
    for (const char c : d.whole + d.fraction + std::string(n - d.fraction.size(), '0')) {
        out = out * 10 + (c - '0');
        if (out > limit) {
            return -1;
        }
    }
    return out;
}

bool is_multiple(const decimal & value, const decimal & of) {
    const size_t  n = std::max(value.fraction.size(), of.fraction.size());
    const int64_t m = scaled(of, n, INT64_C(100000000000000000));
    if (m <= 0) {
        return value.is_zero();
    }
    int64_t rest = 0;
    for (const char c : value.whole + value.fraction + std::string(n - value.fraction.size(), '0')) {
        rest = (int64_t) (((__int128) rest * 10 + (c - '0')) % m);
    }
    return rest == 0;
}

namespace {

// Numbers without a sign between two sizes.
struct sizes {
    std::optional<decimal> low, high;
    bool                   low_open = false, high_open = false;
};

// What the digits so far say.
struct progress {
    int  phase    = 0; // nothing, whole digits, point, fraction digits
    int  n        = 0; // digits in this phase
    int  low      = 0; // compared with the bounds: -1, 0, 1
    int  high     = 0;
    int  rest     = 0;     // of the multiple
    bool fraction = false; // it has one that is not 0
    bool beyond   = false; // and one behind the digits of the multiple
    bool is_zero  = false; // the whole part is 0

    auto key() const { return std::tie(phase, n, low, high, rest, fraction, beyond, is_zero); }
    bool operator<(const progress & other) const { return key() < other.key(); }
};

class digits {
  public:
    digits(const sizes & within, const number_bounds & bounds, work_budget & budget)
        : within(within), bounds(bounds), budget(budget) {
        for (const auto * bound : {&within.low, &within.high}) {
            if (*bound) {
                n_max_whole    = std::max(n_max_whole, (int) (*bound)->whole.size() + 1);
                n_max_fraction = std::max(n_max_fraction, (int) (*bound)->fraction.size() + 1);
            }
        }
        if (within.high) {
            n_max_whole = (int) within.high->whole.size();
        }
        if (bounds.multiple_of) {
            n_scale        = bounds.multiple_of->fraction.size();
            multiple       = scaled(*bounds.multiple_of, n_scale, n_max_multiple);
            n_max_fraction = bounds.no_multiple ? std::max(n_max_fraction, (int) n_scale) : (int) n_scale;
            if (!within.high && multiple > 0) {
                const int most = n_remainders / (int) multiple + (int) std::to_string(multiple).size();
                n_max_whole =
                    std::max(std::min(n_max_whole, most), within.low ? (int) within.low->whole.size() : 0);
            }
        }
        n_max_fraction = bounds.fractions ? n_max_fraction : 0;
    }

    bool is_borne() const { return !bounds.multiple_of || multiple > 0; }

    language make() {
        language                    out;
        std::map<progress, int32_t> number;
        std::vector<progress>       todo;
        const auto                  state_of = [&](const progress & p) {
            const auto [entry, added] = number.emplace(p, (int32_t) out.states.size());
            if (added) {
                out.states.push_back({{}, accepts(p)});
                todo.push_back(p);
            }
            return entry->second;
        };
        state_of({});
        for (size_t i = 0; i < todo.size(); i++) {
            const progress p = todo[i];
            budget.spend(11);
            if (p.phase == 1 && n_max_fraction > 0) {
                progress next    = finish_whole(p);
                next.phase       = 2;
                next.n           = 0;
                const int32_t to = state_of(next); // it may move the states
                out.states[i].edges.push_back({'.', '.', to});
            }
            for (char c = '0'; c <= '9'; c++) {
                if (const auto next = take(p, c)) {
                    const int32_t to = state_of(*next);
                    out.states[i].edges.push_back({(uint32_t) c, (uint32_t) c, to});
                }
            }
        }
        trim(out);
        return out;
    }

  private:
    static int compare_digit(int so_far, char digit, const std::string & with, size_t i) {
        const char other = i < with.size() ? with[i] : '0';
        return so_far != 0 ? so_far : digit < other ? -1 : digit > other ? 1 : 0;
    }

    std::optional<progress> take(progress p, char c) const {
        const bool is_whole = p.phase < 2;
        if (is_whole ? p.is_zero || p.n >= n_max_whole : p.n >= n_max_fraction) {
            return std::nullopt;
        }
        p.is_zero = p.is_zero || (p.phase == 0 && c == '0');
        p.phase   = is_whole ? 1 : 3;
        if (within.low) {
            p.low =
                compare_digit(p.low, c, is_whole ? within.low->whole : within.low->fraction, (size_t) p.n);
        }
        if (within.high) {
            p.high =
                compare_digit(p.high, c, is_whole ? within.high->whole : within.high->fraction, (size_t) p.n);
        }
        const bool is_beyond = !is_whole && (size_t) p.n >= n_scale;
        p.n++;
        p.fraction = p.fraction || (!is_whole && c != '0');
        if (multiple > 0 && !is_beyond) {
            p.rest = (int) (((int64_t) p.rest * 10 + (c - '0')) % multiple);
        } else if (multiple > 0 && c != '0') {
            p.beyond = true;
        }
        return p;
    }

    static int compare_whole(int so_far, int n, const std::string & with) {
        return n<(int) with.size() ? -1 : n>(int) with.size() ? 1 : so_far;
    }

    progress finish_whole(progress p) const {
        p.low  = within.low ? compare_whole(p.low, p.n, within.low->whole) : 0;
        p.high = within.high ? compare_whole(p.high, p.n, within.high->whole) : 0;
        return p;
    }

    bool accepts(progress p) const {
        if (p.phase == 0 || p.phase == 2) {
            return false;
        }
        size_t n_digits = p.phase == 3 ? (size_t) p.n : 0;
        p               = p.phase == 1 ? finish_whole(p) : p;
        int low = p.low, high = p.high;
        if (low == 0 && within.low && within.low->fraction.size() > n_digits) {
            low = -1;
        }
        if (high == 0 && within.high && within.high->fraction.size() > n_digits) {
            high = -1;
        }
        int64_t rest = p.rest;
        for (size_t k = n_digits; multiple > 0 && k < n_scale; k++) {
            rest = rest * 10 % multiple;
        }
        const bool is_low  = !within.low || low > 0 || (low == 0 && !within.low_open);
        const bool is_high = !within.high || high < 0 || (high == 0 && !within.high_open);
        const bool divides = rest == 0 && !p.beyond;
        return is_low && is_high && (multiple == 0 || divides != bounds.no_multiple) &&
               (p.fraction || bounds.integers);
    }

    const sizes           within;
    const number_bounds & bounds;
    work_budget &         budget;
    int                   n_max_whole = n_whole, n_max_fraction = n_fraction;
    int64_t               multiple = 0; // times 10 to the power of n_scale
    size_t                n_scale  = 0;
};

} // namespace

static decimal size_of(decimal d) {
    d.negative = false;
    return d;
}

// The part of the bounds on one side of 0; nullopt: there is no number.
static std::optional<sizes> one_side(const number_bounds & b, bool negative) {
    const auto & low       = negative ? b.high : b.low; // of the size
    const auto & high      = negative ? b.low : b.high;
    const bool   low_open  = negative ? b.high_open : b.low_open,
                 high_open = negative ? b.low_open : b.high_open;
    sizes        out;
    const auto   on_side = [negative](const decimal & d) { return d.is_zero() || d.negative == negative; };
    if (high && !on_side(*high)) {
        return std::nullopt;
    }
    if (high) {
        out.high      = size_of(*high);
        out.high_open = high_open;
    }
    if (low && on_side(*low)) {
        out.low      = size_of(*low);
        out.low_open = low_open;
    }
    return out;
}

// Puts a first state before all others, which takes a sign.
static void add_sign(language & numbers) {
    for (auto & s : numbers.states) {
        for (auto & e : s.edges) {
            e.to++;
        }
    }
    numbers.states.insert(numbers.states.begin(), {{{'-', '-', 1}}, false});
}

std::optional<language> numbers_within(const number_bounds & bounds, work_budget & budget) {
    if (!bounds.low && !bounds.high && !bounds.multiple_of && bounds.integers && !bounds.plain) {
        const std::string whole = "^-?(0|[1-9]\\d{0," + std::to_string(n_whole - 1) + "})";
        const std::string rest  = "(\\.\\d{1," + std::to_string(n_fraction) + "})?([eE][+-]?\\d{1,2})?";
        return read_pattern(whole + (bounds.fractions ? rest : "") + "$", budget);
    }
    language out;
    if (!bounds.low && !bounds.high) { // a sign may stand before each
        digits made({}, bounds, budget);
        if (!made.is_borne()) {
            return std::nullopt;
        }
        out = made.make();
        if (!out.empty()) {
            add_sign(out);
            out.states[0].edges.insert(out.states[0].edges.end(), out.states[1].edges.begin(),
                                       out.states[1].edges.end());
        }
        return out;
    }
    for (const bool negative : {false, true}) {
        const auto side = one_side(bounds, negative);
        if (!side) {
            continue;
        }
        digits made(*side, bounds, budget);
        if (!made.is_borne()) {
            return std::nullopt;
        }
        language numbers = made.make();
        if (numbers.empty()) {
            continue;
        }
        if (negative) {
            add_sign(numbers);
        }
        out = out.empty() ? numbers : either_of(out, numbers, budget);
    }
    return out;
}
