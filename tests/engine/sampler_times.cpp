// Times draws as sample_all makes them: the rows of a step side by side, on the threads of one team.
//
//   engine-tests --samplers   reads JSON lines {"n_vocab","deviation","n","threads","seconds","logprobs","sampling"},
//                             and writes for each {"ms": a step's median time, "read_ms": that of one read of its rows}
#include "gaussian.h"
#include "sampling/logprobs.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <functional>
#include <iostream>
#include <memory>
#include <random>

using json = nlohmann::json;

// One thread's own time, whatever else runs; that of several by the clock.
static double milliseconds(bool own, const std::function<void()> & work) {
    const std::clock_t cpu   = std::clock();
    const auto         begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - begin;
    return own ? 1000.0 * (double) (std::clock() - cpu) / CLOCKS_PER_SEC : passed.count();
}

static double median(std::vector<double> times) {
    std::nth_element(times.begin(), times.begin() + (std::ptrdiff_t) times.size() / 2, times.end());
    return times[times.size() / 2];
}

// The least that any sampler needs.
static float largest(const std::vector<float> & row) {
    float lanes[64] = {0};
    for (size_t i = 0; i + 64 <= row.size(); i += 64) {
        for (size_t k = 0; k < 64; k++) {
            lanes[k] = row[i + k] > lanes[k] ? row[i + k] : lanes[k];
        }
    }
    return *std::max_element(lanes, lanes + 64);
}

// Its prompt has 512 tokens, some of them often, as texts have.
static std::unique_ptr<token_sampler>
sampler_of(const llama_model * model, const sequence_settings & settings, uint32_t seed, int32_t n_vocab) {
    std::mt19937             random(seed);
    std::vector<llama_token> prompt;
    for (int i = 0; i < 512; i++) {
        const uint32_t range = random() % 2 ? 300 : (uint32_t) n_vocab - 300;
        prompt.push_back(300 + (llama_token) (random() % range));
    }
    return std::make_unique<token_sampler>(model, settings, seed, coupling(), prompt,
                                           std::vector<llama_token>(), nullptr);
}

static json times_of(const json & row) {
    const int32_t                   n_vocab = row["n_vocab"], n = row["n"], n_threads = row["threads"];
    const int32_t                   n_logprobs = row.value("logprobs", -1);
    const llama_model *             model      = model_with(n_vocab);
    const sequence_settings         settings   = settings_of(row["sampling"], model);
    std::vector<std::vector<float>> rows;
    std::vector<std::unique_ptr<token_sampler>> samplers;
    for (int32_t i = 0; i < n; i++) {
        rows.push_back(gaussian_row(n_vocab, row["deviation"], (uint32_t) i));
        samplers.push_back(sampler_of(model, settings, (uint32_t) i, n_vocab));
    }
    volatile float sink = 0.0f;
    const auto     read = [&] {
#pragma omp parallel for num_threads(n_threads) schedule(dynamic)
        for (int32_t i = 0; i < n; i++) {
            sink = largest(rows[(size_t) i]);
        }
    };
    const auto draw = [&] {
#pragma omp parallel for num_threads(n_threads) schedule(dynamic)
        for (int32_t i = 0; i < n; i++) {
            static thread_local std::vector<token_logprob> top;

            const std::vector<float> & logits = rows[(size_t) i];
            const llama_token          token  = samplers[(size_t) i]->draw(logits.data(), {});
            if (n_logprobs >= 0) {
                sink = logprobs_of(logits.data(), n_vocab, token, n_logprobs, top).logprob;
            }
        }
    };
    std::vector<double> reads, draws;
    draw();
    for (double sum = 0.0;
         draws.size() < 5 || (sum < 1000.0 * row["seconds"].get<double>() && draws.size() < 1000);) {
        reads.push_back(milliseconds(n_threads == 1, read));
        draws.push_back(milliseconds(n_threads == 1, draw));
        sum += reads.back() + draws.back();
    }
    return {{"ms", median(draws)}, {"read_ms", median(reads)}};
}

int time_samplers() {
    for (std::string line; std::getline(std::cin, line);) {
        std::cout << times_of(json::parse(line)).dump() << std::endl;
    }
    return 0;
}
