#include "sampling/dry.h"

#include <list>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

namespace {

// All that the sampler is made of.
using settings_of_dry =
    std::tuple<const llama_vocab *, float, float, int32_t, int32_t, std::vector<std::string>>;

struct known_dry {
    settings_of_dry   settings;
    llama_sampler_ptr sampler; // without any accepted token
};

const size_t         n_known_max = 4; // with breakers like a space each takes some MB
std::mutex           mutex;
std::list<known_dry> known; // most recently used first

} // namespace

static llama_sampler_ptr make_dry(const llama_vocab * vocab, const common_params_sampling & sampling) {
    std::vector<const char *> breakers;
    for (const std::string & text : sampling.dry_sequence_breakers) {
        breakers.push_back(text.c_str());
    }
    return llama_sampler_ptr(llama_sampler_init_dry(vocab, sampling.dry_multiplier, sampling.dry_base,
                                                    sampling.dry_allowed_length, sampling.dry_penalty_last_n,
                                                    breakers.data(), breakers.size()));
}

llama_sampler_ptr copy_of_dry(const llama_vocab * vocab, const common_params_sampling & sampling) {
    const settings_of_dry settings{vocab,
                                   sampling.dry_multiplier,
                                   sampling.dry_base,
                                   sampling.dry_allowed_length,
                                   sampling.dry_penalty_last_n,
                                   sampling.dry_sequence_breakers};

    const std::lock_guard lock(mutex);
    auto                  found = known.begin();
    while (found != known.end() && found->settings != settings) {
        found++;
    }
    if (found == known.end()) {
        known.push_front({settings, make_dry(vocab, sampling)});
        if (known.size() > n_known_max) {
            known.pop_back();
        }
    } else {
        known.splice(known.begin(), known, found);
    }
    return llama_sampler_ptr(llama_sampler_clone(known.front().sampler.get()));
}
