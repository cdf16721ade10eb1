// Draws from a whole vocabulary against llama.cpp's chain, which gets all tokens as a list: the probabilities of what the
// samplers leave, the tokens where the chain sorts, the distribution of many draws.
#include "cases.h"
#include "gaussian.h"
#include "sampling/logprobs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

using json = nlohmann::json;

static const int32_t n_vocab = 32000;

static const json off = {
    {"temperature", 1.0},
    {"top_k", 0},
    {"top_p", 1.0},
    {"min_p", 0.0},
    {"typical_p", 1.0},
    {"top_n_sigma", -1.0},
    {"xtc_probability", 0.0},
    {"dynatemp_range", 0.0},
    {"repeat_penalty", 1.0},
    {"dry_multiplier", 0.0},
    {"seed", 5},
};

static json with(const json & changes) {
    json all = off;
    all.update(changes);
    return all;
}

// Tokens of the prompt that penalties look at, the likeliest of the row among them.
static std::vector<llama_token> prompt_for(const std::vector<float> & row) {
    const llama_token best = (llama_token) (std::max_element(row.begin(), row.end()) - row.begin());
    return {400, best, 401, best, 402, best, 400, best, 401, best};
}

// llama.cpp's chain alone.
class reference {
  public:
    reference(const sequence_settings & settings, const std::vector<llama_token> & prompt) {
        common_params_sampling params = settings.sampling;
        params.no_perf                = true;
        chain.reset(common_sampler_init(model_with(n_vocab), params));
        for (const llama_token token : prompt) {
            common_sampler_accept(chain.get(), token, false);
        }
    }

    // What the samplers leave, best first, with probabilities; `drawn` becomes the token of the last sampler.
    std::vector<llama_token_data> left(const std::vector<float> & row, const sequence_settings & settings,
                                       llama_token & drawn) {
        std::vector<llama_token_data> all;
        for (llama_token token = 0; token < n_vocab; token++) {
            if (!settings.biases->is_banned(token)) {
                all.push_back({token, row[(size_t) token] + settings.biases->of(token), 0.0f});
            }
        }
        llama_token_data_array candidates = {all.data(), all.size(), -1, false};
        llama_sampler_apply(common_sampler_get(chain.get()), &candidates);
        drawn = candidates.data[candidates.selected].id;
        std::vector<llama_token_data> rest;
        std::copy_if(candidates.data, candidates.data + candidates.size, std::back_inserter(rest),
                     [](const llama_token_data & c) { return c.p > 0.0f; });
        return rest;
    }

    void accept(llama_token token) { common_sampler_accept(chain.get(), token, true); }

  private:
    common_sampler_ptr chain;
};

static std::string shown(double x) {
    char text[32];
    snprintf(text, sizeof(text), "%.6g", x);
    return text;
}

// Pearson's chi-square of draws, over groups of tokens with an expectation of 8 or more.
static void expect_distribution(const std::vector<llama_token_data> & left,
                                const std::map<llama_token, int> & counts, int n_draws) {
    double expected = 0.0, found = 0.0, chi_square = 0.0;
    int    freedom = -1;
    for (const llama_token_data & c : left) {
        const auto count = counts.find(c.id);
        expected += (double) c.p * n_draws;
        found += count == counts.end() ? 0.0 : count->second;
        if (expected >= 8.0) {
            chi_square += (found - expected) * (found - expected) / expected;
            freedom++;
            expected = found = 0.0;
        }
    }
    if (freedom > 0) {
        expect(std::fabs(chi_square - freedom) < 5.0 * std::sqrt(2.0 * freedom),
               "chi-square " + shown(chi_square) + " of " + std::to_string(freedom));
    }
}

namespace {

struct row_case {
    const char * name;
    json         changes;
    bool         same_tokens; // where the samplers leave a list, it is in the order of llama.cpp's
};

} // namespace

static const std::vector<row_case> & row_cases() {
    static const std::vector<row_case> cases = {
        {"temperature", json::object(), false},
        {"temperature 0", {{"temperature", 0.0}}, true},
        {"temperature 2", {{"temperature", 2.0}}, false},
        {"min p", {{"min_p", 0.05}}, true},
        {"min p of few", {{"min_p", 0.9}}, true},
        {"min p of many", {{"min_p", 1e-6}}, false},
        {"top p", {{"top_p", 0.95}, {"temperature", 0.7}}, true},
        {"top p of few", {{"top_p", 0.3}}, true},
        {"top p 0", {{"top_p", 0.0}}, true},
        {"top p of nearly all", {{"top_p", 0.9999}}, false},
        {"top p then min p", {{"top_p", 0.95}, {"min_p", 0.05}, {"temperature", 0.7}}, true},
        {"top p then min p of many", {{"top_p", 0.9}, {"min_p", 1e-5}}, false},
        {"typical p", {{"typical_p", 0.95}}, false},
        {"typical p of few", {{"typical_p", 0.2}}, false},
        {"n sigma", {{"top_n_sigma", 1.0}}, true},
        {"n sigma of many", {{"top_n_sigma", 3.0}}, false},
        {"n sigma then top k", {{"top_n_sigma", 2.0}, {"top_k", 30}}, true},
        {"temperature, then top p",
         {{"temperature", 0.6}, {"top_p", 0.9}, {"samplers", {"temperature", "top_p"}}},
         false},
        {"temperature, then min p, then top k",
         {{"temperature", 1.5},
          {"min_p", 1e-3},
          {"top_k", 50},
          {"samplers", {"temperature", "min_p", "top_k"}}},
         true},
        {"moving temperature", {{"temperature", 1.0}, {"dynatemp_range", 0.5}}, false},
        {"moving temperature after n sigma", {{"dynatemp_range", 0.5}, {"top_n_sigma", 3.0}}, false},
        {"repeat penalty", {{"repeat_penalty", 1.5}, {"repeat_last_n", 64}}, false},
        {"penalties then min p",
         {{"presence_penalty", 2.0}, {"frequency_penalty", 0.5}, {"min_p", 0.1}},
         true},
        {"dry then min p",
         {{"dry_multiplier", 2.0}, {"dry_allowed_length", 1}, {"dry_penalty_last_n", 64}, {"min_p", 0.05}},
         true},
        {"dry with a breaker",
         {{"dry_multiplier", 2.0},
          {"dry_allowed_length", 1},
          {"dry_penalty_last_n", 64},
          {"dry_sequence_breakers", {"t401"}},
          {"min_p", 0.05}},
         true},
        {"dry with another breaker",
         {{"dry_multiplier", 2.0},
          {"dry_allowed_length", 1},
          {"dry_penalty_last_n", 64},
          {"dry_sequence_breakers", {"t9"}},
          {"min_p", 0.05}},
         true},
        {"biases and bans", {{"logit_bias", {{500, 8.0}, {501, -3.0}, {502, false}}}}, false},
        {"min keep", {{"min_p", 0.9}, {"min_keep", 7}}, true},
        {"xtc", {{"xtc_probability", 1.0}, {"xtc_threshold", 0.01}}, false},
        {"xtc then min p",
         {{"xtc_probability", 1.0}, {"xtc_threshold", 0.02}, {"min_p", 0.05}, {"samplers", {"xtc", "min_p"}}},
         true},
        {"xtc that may remove many", {{"xtc_probability", 1.0}, {"xtc_threshold", 0.0001}}, false},
        {"penalties behind a cut",
         {{"repeat_penalty", 1.5}, {"min_p", 1e-6}, {"samplers", {"min_p", "penalties"}}},
         false},
    };
    return cases;
}

// Each draw's log probability is compared, so each token's, and with it the sum over what is left.
static void compare(const row_case & c, float deviation) {
    const std::vector<float>       row      = gaussian_row(n_vocab, deviation, 11);
    const sequence_settings        settings = settings_of(with(c.changes), model_with(n_vocab));
    const std::vector<llama_token> prompt   = prompt_for(row);
    const bool changes = settings.sampling.penalty_repeat != 1.0f ||
                         settings.sampling.penalty_present != 0.0f || settings.sampling.dry_multiplier > 0.0f;
    const int  n_draws = changes ? 40 : 1000;
    std::map<llama_token, int> counts;
    reference                  chain(settings, prompt);
    token_sampler sampler(model_with(n_vocab), settings, settings.sampling.seed, coupling(), prompt, {},
                          nullptr);
    llama_token   drawn = 0, n_strays = 0;
    auto          left = chain.left(row, settings, drawn);
    std::map<llama_token, float> shares;
    for (int i = 0; i < n_draws; i++) {
        if (i == 0 || changes) {
            left = i == 0 ? left : chain.left(row, settings, drawn);
            shares.clear();
            for (const llama_token_data & t : left) {
                shares[t.id] = t.p;
            }
        }
        std::vector<token_logprob> top;
        const llama_token          token  = sampler.draw(row.data(), {});
        const bool                 listed = row_of_thread().listed; // and not drawn from blocks
        const float                found  = logprobs_of_draw(token, 3, top).logprob;
        if (shares.count(token) == 0) { // of thousands, llama.cpp's sums in float miss the border by a few
            n_strays++;
            continue;
        }
        const float share = std::log(shares[token]);
        expect(std::fabs(found - share) < 2e-3, "logprob " + shown(found) + " for " + shown(share));
        for (const token_logprob & t : top) {
            expect(std::fabs(t.logprob - std::log(shares[t.token])) < 2e-3, "a likely token");
        }
        if (changes) {
            chain.accept(token);
        }
        if (c.same_tokens && listed && (changes || i == 0)) {
            expect_equal(std::to_string(drawn), std::to_string(token), "draw " + std::to_string(i));
        }
        counts[token]++;
    }
    expect(n_strays <= n_draws / 1000, "llama.cpp's samplers remove " + std::to_string(n_strays));
    if (!changes) {
        std::sort(left.begin(), left.end(), [](const auto & a, const auto & b) { return a.p > b.p; });
        expect_distribution(left, counts, n_draws);
    }
}

// The same bits in a native build, in a portable one, on each CPU.
static void run_sums() {
    std::vector<float> row;
    uint32_t           state = 1;
    for (int i = 0; i < 100003; i++) {
        state = state * 1664525u + 1013904223u;
        row.push_back((float) (state >> 8) * (1.0f / 524288.0f) - 16.0f);
    }
    const int32_t      n  = (int32_t) row.size();
    const weighting    by = {15.5f, 0.625f};
    std::vector<float> sums;
    sum_blocks(sums, row.data(), n, {-8.0f, 15.5f}, by);
    double all = 0.0;
    for (const float sum : sums) {
        all += sum;
    }
    const entropy_sums e = sum_for_entropy(row.data(), n, {-8.0f, 15.5f}, by);
    const moments      m = moments_of(row.data(), n, {-8.0f, 15.5f}, 15.5f);
    char               text[256];
    snprintf(text, sizeof(text), "%a %a %a %a %a", all, e.weights, e.surplus, m.sum, m.of_2);
    expect_equal("0x1.3a91115cp+12 0x1.3a91115cp+12 -0x1.393e2e4ap+12 -0x1.a4d8f11cp+19 0x1.9c192e2p+23",
                 text);
}

// Arithmetic sampling: codes in order give tokens in the order of their ids, whatever the blocks.
static void run_arithmetic() {
    const std::vector<float> row      = gaussian_row(n_vocab, 2.0f, 3);
    const sequence_settings  settings = settings_of(off, model_with(n_vocab));
    const int                n        = 64;
    std::vector<double>      ends(1, 0.0);
    for (const float logit : row) {
        ends.push_back(ends.back() + std::exp((double) logit));
    }
    std::set<int> parts;
    for (int32_t i = 0; i < n; i++) {
        coupling with;
        with.arithmetic = true;
        with.seed       = 9;
        with.index      = i;
        token_sampler     sampler(model_with(n_vocab), settings, 9, with, {}, {}, nullptr);
        const llama_token token = sampler.draw(row.data(), {});
        parts.insert((int) (ends[(size_t) token] / ends.back() * n));
    }
    expect(parts.size() >= 60, "the codes are spread over " + std::to_string(parts.size()) + " of 64 parts");
}

void add_sampler_cases(std::vector<test_case> & cases) {
    for (const row_case & c : row_cases()) {
        for (const float deviation : {4.5f, 3.0f, 2.0f}) {
            const std::string name = std::string("a row of deviation ") + (deviation == 4.5f ? "4 and a half"
                                                                           : deviation == 3.0f ? "3"
                                                                                               : "2");
            cases.push_back({name + ", " + c.name, [&c, deviation] { compare(c, deviation); }});
        }
    }
    cases.push_back({"the sums of a row have the same bits in every build", run_sums});
    cases.push_back({"arithmetic sampling spreads the first tokens of a row", run_arithmetic});
}
