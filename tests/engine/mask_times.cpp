// engine-tests --masks VOCABULARY: how long schemas take, for benchmarks/structure.py. VOCABULARY is a GGUF file. The
// first line of stdout is the vocabulary, {"texts": [in hexadecimal, by token], "ends": [tokens that end a text]}. Each
// line of stdin is as for --admits, with {"texts": [texts that are admitted], "n": sequences, "most": tokens of a text,
// "check": whether each mask is compared with each token}; each line of stdout is {"tokens", "error": text} or {"ms": of the compilation, "tokens": of the texts, "alone",
// "together": µs of each token's mask, with one sequence and with n of one grammar; "held": µs of each call that
// holds the grammar's mutex, with n}. All is a thread's own time, without that of the clock.
#include "admits.h"
#include "cases.h"

#include "common.h"
#include "grammar/grammar.h"
#include "llama-cpp.h"
#include "util/json.h"

#include <algorithm>
#include <ctime>
#include <iostream>
#include <memory>

namespace {

using json      = indexed_json;
using token_ids = std::vector<llama_token>;

double now() { // µs
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1e6 * (double) t.tv_sec + 1e-3 * (double) t.tv_nsec;
}

// What two calls of the clock take.
double time_clock() {
    std::vector<double> times(1001);
    for (double & time : times) {
        const double begin = now();
        time               = now() - begin;
    }
    std::nth_element(times.begin(), times.begin() + 500, times.end());
    return times[500];
}

class measurement {
  public:
    explicit measurement(const json & line, std::shared_ptr<token_tree> vocabulary)
        : line(line), vocabulary(std::move(vocabulary)) {
        for (const json & text : line["texts"]) {
            texts.push_back(common_tokenize(this->vocabulary->vocab, text.get<std::string>(), false, false));
            texts.back().resize(std::min(texts.back().size(), line.value("most", (size_t) 1000)));
        }
    }

    json run() {
        json out = {{"tokens", texts}};
        try {
            double begin = now();
            auto   one   = compile();
            out["ms"]    = passed(begin) / 1000;
            for (const token_ids & text : texts) {
                walk(*one, {text}, out["alone"]);
            }
            held.clear();
            std::vector<token_ids> all;
            for (size_t i = 0; i < line.value("n", (size_t) 0); i++) {
                all.push_back(texts[i % texts.size()]);
            }
            walk(*compile(), all, out["together"]);
            out["held"] = held;
        } catch (const std::exception & e) {
            out["error"] = e.what();
        }
        return out;
    }

  private:
    double passed(double begin) const {
        static const double of_clock = time_clock();
        return std::max(0.0, now() - begin - of_clock);
    }

    std::unique_ptr<grammar> compile() const {
        return std::make_unique<grammar>(compile_line(line).rules, vocabulary);
    }

    // The mask of each token, with the step of the token before; sequence i begins i tokens later than the first.
    void walk(grammar & rules, const std::vector<token_ids> & all, json & times) {
        times = times.is_array() ? times : json::array();
        std::vector<grammar::position> at(all.size());
        size_t                         n_steps = 0;
        for (size_t i = 0; i < all.size(); i++) {
            n_steps = std::max(n_steps, i + all[i].size() + 1);
        }
        const auto call = [&](double & sum, const auto & work) {
            const double begin = now();
            work();
            held.push_back(passed(begin));
            sum += held.back();
        };
        for (size_t step = 0; step < n_steps; step++) {
            for (size_t i = 0; i < std::min(step + 1, all.size()); i++) {
                const size_t                     n = step - i;
                std::shared_ptr<const token_set> mask;
                double                           sum = 0;
                if (n > all[i].size()) {
                    continue;
                }
                if (n > 0) {
                    call(sum, [&] { rules.accept(at[i], all[i][n - 1]); });
                }
                call(sum, [&] { mask = rules.allowed(at[i]); });
                times.push_back(sum);
                if (line.value("check", false)) {
                    check(rules, at[i], *mask);
                }
                if (n < all[i].size() && !(*mask)[all[i][n]]) {
                    throw std::runtime_error("a token of an admitted text is not in the mask");
                }
            }
        }
    }

    void check(grammar & rules, grammar::position & at, const token_set & mask) const {
        for (size_t token = 0; token < mask.size(); token++) {
            if (mask[token] != rules.allows(at, (llama_token) token)) {
                throw std::runtime_error("the mask is wrong for \"" + vocabulary->text((llama_token) token) +
                                         "\"");
            }
        }
    }

    const json                        line;
    const std::shared_ptr<token_tree> vocabulary;
    std::vector<token_ids>            texts;
    std::vector<double>               held;
};

json describe(const token_tree & vocabulary) {
    json texts = json::array();
    for (llama_token token = 0; token < llama_vocab_n_tokens(vocabulary.vocab); token++) {
        std::string hex;
        for (const char c : vocabulary.text(token)) {
            hex += "0123456789abcdef"[(uint8_t) c >> 4];
            hex += "0123456789abcdef"[(uint8_t) c & 15];
        }
        texts.push_back(hex);
    }
    return {{"texts", texts}, {"ends", vocabulary.end_tokens}};
}

} // namespace

int time_masks(const char * path) {
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    llama_model_params params = llama_model_default_params();
    params.vocab_only         = true;
    const llama_model_ptr model(llama_model_load_from_file(path, params));
    if (!model) {
        std::cerr << path << " cannot be read" << std::endl;
        return 1;
    }
    const auto vocabulary = std::make_shared<token_tree>(llama_model_get_vocab(model.get()));
    vocabulary->part_with(0);
    std::cout << describe(*vocabulary).dump() << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
        std::cout << measurement(json::parse(line), vocabulary).run().dump() << std::endl;
    }
    return 0;
}
