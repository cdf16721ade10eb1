#include "sampling/dry.h"

#include <algorithm>
#include <list>
#include <mutex>

namespace {

struct known_list {
    const llama_vocab *      vocab;
    std::vector<std::string> texts;
    dry_breakers             found;
};

const size_t          n_known_max = 4; // with breakers like a space each takes some MB
std::mutex            mutex;
std::list<known_list> known; // most recently used first

} // namespace

// With the lock held.
static dry_breakers find_known(const llama_vocab * vocab, const std::vector<std::string> & texts) {
    const auto found = std::find_if(known.begin(), known.end(), [&](const known_list & one) {
        return one.vocab == vocab && one.texts == texts;
    });
    if (found == known.end()) {
        return nullptr;
    }
    known.splice(known.begin(), known, found);
    return found->found;
}

dry_breakers find_dry_breakers(const llama_vocab * vocab, const std::vector<std::string> & texts) {
    std::unique_lock lock(mutex);
    if (dry_breakers found = find_known(vocab, texts)) {
        return found;
    }
    lock.unlock(); // others do not wait for this search
    std::vector<const char *> given;
    for (const std::string & text : texts) {
        given.push_back(text.c_str());
    }
    // any strength at which it is on
    const dry_breakers made(llama_sampler_init_dry(vocab, 1.0f, 2.0f, 1, 1, given.data(), given.size()),
                            llama_sampler_deleter());
    lock.lock();
    if (dry_breakers found = find_known(vocab, texts)) {
        return found; // by another thread meanwhile
    }
    known.push_front({vocab, texts, made});
    if (known.size() > n_known_max) {
        known.pop_back();
    }
    return made;
}

llama_sampler_ptr make_dry(const common_params_sampling & sampling, const llama_sampler * breakers) {
    return llama_sampler_ptr(llama_sampler_init_dry_like(breakers, sampling.dry_multiplier, sampling.dry_base,
                                                         sampling.dry_allowed_length,
                                                         sampling.dry_penalty_last_n));
}
