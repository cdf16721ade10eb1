#include "store/store.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

//
// in memory
//

void part_memory::hold(snapshot & s, const snapshot_parts & parts) {
    for (const auto & part : parts) {
        n_bytes_ += part->n_snapshots++ == 0 ? part->n_bytes : 0;
    }
    s.parts = parts;
}

void part_memory::release(snapshot & s) {
    for (const auto & part : s.parts) {
        n_bytes_ -= --part->n_snapshots == 0 ? part->n_bytes : 0;
    }
    s.parts.clear();
}

// Whether a snapshot of `longer` serves every prompt that one of `shorter` serves.
static bool covers(const std::vector<llama_token> & longer, const std::vector<llama_token> & shorter,
                   bool exact) {
    return (exact ? longer.size() == shorter.size() : longer.size() >= shorter.size()) &&
           std::equal(shorter.begin(), shorter.end(), longer.begin());
}

int32_t n_served(const std::list<snapshot> & list, const std::vector<llama_token> & tokens, uint64_t adapters,
                 bool exact, bool on_disk) {
    int32_t most = 0;
    for (const snapshot & s : list) {
        const bool    out = s.adapters != adapters || (on_disk && s.file == 0);
        const int32_t n   = out ? 0 : common_length(s.tokens, tokens);
        if (!exact || n == (int32_t) s.tokens.size()) {
            most = std::max(most, n);
        }
    }
    return most;
}

int32_t n_tokens_of(const snapshot_parts & parts) {
    int32_t n = 0;
    for (const auto & part : parts) {
        n += (int32_t) part->n_tokens;
    }
    return n;
}

snapshot_parts parts_of(const std::list<snapshot> & list, const std::vector<llama_token> & tokens,
                        uint64_t adapters) {
    snapshot_parts best;
    int32_t        most = 0;
    for (const snapshot & s : list) {
        const int32_t n_same = s.adapters == adapters ? common_length(s.tokens, tokens) : 0;
        int32_t       n      = 0;
        auto          part   = s.parts.begin();
        for (; part != s.parts.end() && n + (int32_t) (*part)->n_tokens <= n_same; part++) {
            n += (int32_t) (*part)->n_tokens;
        }
        if (n > most) {
            most = n;
            best.assign(s.parts.begin(), part);
        }
    }
    return best;
}

// Files share no parts: each holds a whole text. It must be new for at least a quarter.
bool prefix_store::worth_a_file(const std::vector<llama_token> & tokens, uint64_t adapters) const {
    const auto n_held = (size_t) n_served(snapshots, tokens, adapters, params.exact, true);
    return has_disk && (tokens.size() - n_held) * 4 >= tokens.size();
}

void prefix_store::put(const std::vector<llama_token> & tokens, uint64_t adapters,
                       const snapshot_parts & parts, bool to_disk) {
    const bool fits    = bytes_of(parts) <= params.ram_bytes;
    const bool in_file = (to_disk || !fits) && worth_a_file(tokens, adapters);
    if (!fits && !in_file) {
        return;
    }
    // a snapshot of a beginning of it serves nothing more
    snapshots.remove_if([&](snapshot & s) {
        const bool needless = s.file == 0 && s.adapters == adapters && covers(tokens, s.tokens, params.exact);
        if (needless) {
            memory.release(s);
        }
        return needless;
    });
    snapshot & s = snapshots.emplace_front();
    s.tokens     = tokens;
    s.adapters   = adapters;
    if (in_file) {
        s.file = params.folder->write(s.tokens, s.adapters, parts);
    }
    if (fits) {
        memory.hold(s, parts);
        limit_memory(params.ram_bytes);
    }
}

void prefix_store::drop(uint64_t adapters) {
    snapshots.remove_if([&](snapshot & s) {
        if (s.adapters == adapters) {
            memory.release(s);
        }
        return s.adapters == adapters && s.file == 0;
    });
}

// The least recently used snapshots are removed from memory, and written to disk if there is one.
void prefix_store::limit_memory(uint64_t n_bytes) {
    params.ram_bytes = n_bytes;
    for (auto s = snapshots.end(); memory.n_bytes() > params.ram_bytes && s != snapshots.begin();) {
        --s;
        if (s->parts.empty()) {
            continue;
        }
        if (s->file == 0 && worth_a_file(s->tokens, s->adapters)) {
            s->file = params.folder->write(s->tokens, s->adapters, s->parts);
        }
        memory.release(*s);
        if (s->file == 0) {
            s = snapshots.erase(s);
        }
    }
}

//
// on disk
//

std::list<snapshot> & prefix_store::all() {
    if (has_disk) {
        take_news();
    }
    return snapshots;
}

void prefix_store::take_news() {
    std::unordered_set<uint64_t> gone;
    for (folder_news & n : params.folder->take_news()) {
        switch (n.what) {
            case folder_news::found:
                snapshots.push_back({std::move(n.tokens), n.adapters, {}, n.file});
                break;
            case folder_news::gone: gone.insert(n.file); break;
            case folder_news::read: take_read(std::move(n)); break;
        }
    }
    if (!gone.empty()) {
        snapshots.remove_if([&](snapshot & s) {
            s.file = gone.count(s.file) > 0 ? 0 : s.file;
            return s.file == 0 && s.parts.empty();
        });
    }
}

void prefix_store::take_read(folder_news && n) {
    const auto s = std::find_if(snapshots.begin(), snapshots.end(),
                                [&](const snapshot & x) { return x.file == n.file; });
    if (s == snapshots.end() || !s->parts.empty()) {
        return;
    }
    if (bytes_of(n.parts) > params.ram_bytes) {
        arrived = std::move(n);
        return;
    }
    snapshots.splice(snapshots.begin(), snapshots, s); // so that limit_memory removes others first
    memory.hold(*s, n.parts);
    limit_memory(params.ram_bytes);
}

snapshot_parts prefix_store::load(snapshot & s) {
    const auto at =
        std::find_if(snapshots.begin(), snapshots.end(), [&](const snapshot & x) { return &x == &s; });
    snapshots.splice(snapshots.begin(), snapshots, at); // s is the first now
    if (s.parts.empty()) {
        return is_arrived(s) ? std::exchange(arrived, {}).parts : snapshot_parts();
    }
    if (s.file != 0) {
        params.folder->touch(s.file);
    }
    return s.parts;
}
