#include "sampling/phrase_biases.h"

#include <common.h> // llama.cpp's common/common.h

#include <algorithm>
#include <cctype>

static const float certain = 1000.0f; // no sampler leaves a token that is so much less likely than another

// By n: the largest smaller number of first tokens that stand at the end of the first n (Knuth, Morris, Pratt).
static std::vector<size_t> shorter_of(const std::vector<llama_token> & tokens) {
    std::vector<size_t> shorter(tokens.size() + 1, 0);
    for (size_t n = 2, k = 0; n <= tokens.size(); n++) {
        while (k > 0 && tokens[k] != tokens[n - 1]) {
            k = shorter[k];
        }
        k += tokens[k] == tokens[n - 1];
        shorter[n] = k;
    }
    return shorter;
}

// Whether a text begins with a letter or a digit of a script that sets spaces between words, up to U+053F.
static bool begins_word(const std::string & text) {
    const auto first = (unsigned char) text.front();
    return std::isalnum(first) != 0 || (first >= 0xc3 && first <= 0xd4);
}

// A word stands behind a space, which is a part of its first token. Without one its first token may be a letter that
// begins anything, or the end of another word; so that spelling, as behind a quote, is only looked for, but for the last
// of several tokens that are to be rare.
phrase_biases::phrase_biases(const std::vector<phrase_bias> & phrases, const llama_vocab * vocab)
    : n_phrases(phrases.size()) {
    for (size_t i = 0; i < phrases.size(); i++) {
        const phrase_bias & p   = phrases[i];
        const auto          add = [&](const std::string & text, bool only_rare) {
            const std::vector<llama_token> tokens = common_tokenize(vocab, text, false, false);
            const bool                     counts = !only_rare || (p.bias < 0.0f && tokens.size() > 1);
            if (!tokens.empty()) {
                spellings.push_back(
                    {tokens, shorter_of(tokens), counts ? p.bias : 0.0f, p.finish && !only_rare, p.once, i});
            }
        };
        add(begins_word(p.text) ? " " + p.text : p.text, false);
        if (begins_word(p.text)) {
            add(p.text, true);
        }
    }
}

phrase_progress::phrase_progress(std::shared_ptr<const phrase_biases> given) : phrases(std::move(given)) {
    if (phrases) {
        n_there.assign(phrases->spellings.size(), 0);
        written.assign(phrases->n_phrases, false);
        list_next();
    }
}

void phrase_progress::accept(llama_token token) {
    if (!phrases) {
        return;
    }
    for (size_t i = 0; i < n_there.size(); i++) {
        const phrase_biases::spelling & s = phrases->spellings[i];
        size_t &                        n = n_there[i];
        n                                 = n == s.tokens.size() ? s.shorter[n] : n;
        while (n > 0 && s.tokens[n] != token) {
            n = s.shorter[n];
        }
        n += s.tokens[n] == token;
        written[s.phrase] = written[s.phrase] || n == s.tokens.size();
    }
    list_next();
}

// What makes a phrase likelier is added to each of its tokens; what makes it rarer to its last one, so that words which
// only begin it stay as they are.
void phrase_progress::list_next() {
    next.clear();
    for (size_t i = 0; i < n_there.size(); i++) {
        const phrase_biases::spelling & s = phrases->spellings[i];
        if ((s.once && written[s.phrase]) || (s.bias == 0.0f && !s.finish)) {
            continue;
        }
        size_t n = n_there[i] == s.tokens.size() ? s.shorter[n_there[i]] : n_there[i];
        if (s.finish && n > 0) {
            next.push_back({s.tokens[n], certain});
            continue;
        }
        for (bool more = true; more; n = s.shorter[n]) {
            if (s.bias > 0.0f || n + 1 == s.tokens.size()) {
                next.push_back({s.tokens[n], s.bias});
            }
            more = n > 0;
        }
    }
    std::sort(next.begin(), next.end(), [](const auto & a, const auto & b) { return a.token < b.token; });
    size_t n = 0;
    for (const llama_logit_bias & b : next) {
        if (n > 0 && next[n - 1].token == b.token) {
            next[n - 1].bias += b.bias;
        } else {
            next[n++] = b;
        }
    }
    next.resize(n);
}

float phrase_progress::of(llama_token token) const {
    const auto at = std::lower_bound(next.begin(), next.end(), token,
                                     [](const llama_logit_bias & b, llama_token t) { return b.token < t; });
    return at == next.end() || at->token != token ? 0.0f : at->bias;
}
