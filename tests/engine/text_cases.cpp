// Texts that become vectors: which of them each batch has.
#include "cases.h"
#include "model/text_queue.h"

#include <algorithm>
#include <map>
#include <random>
#include <utility>

namespace {

// A command, by what the queue sees of it.
struct embed_row {
    std::string          id, client;
    std::vector<int32_t> sizes; // tokens of its texts
    int32_t              priority = 0;
    int32_t              at       = 0; // the number of batches before it comes
    bool                 shares   = false;
};

struct queue_row {
    const char *           name;
    batch_limits           limits;
    std::vector<embed_row> commands;
    // A line for each batch: "a.0" is text 0 of a, "a.1:4-7" a piece of text 1, "a.2/3" has three tokens of another text.
    const char * expected;
};

const batch_limits whole_steps = {8, 8}, small_steps = {4, 8}, an_encoder = {8, 8, false};

const queue_row table[] = {
    {"one client's commands are computed in order of arrival, in full batches",
     whole_steps,
     {{"a", "x", {3, 3, 3, 3}}, {"b", "x", {2}}},
     "a.0 a.1 a.2:0-1\n"
     "a.2:2-2 a.3\n"
     "b.0\n"},
    {"clients take turns, a batch each",
     whole_steps,
     {{"a", "x", {4, 4, 4, 4, 4, 4}}, {"b", "x", {4, 4}}, {"c", "y", {4, 4, 4}, 0, 1}, {"d", "z", {1}, 0, 1}},
     "a.0 a.1\n"
     "c.0 c.1\n"
     "d.0\n"
     "a.2 a.3\n"
     "c.2\n"
     "a.4 a.5\n"
     "b.0 b.1\n"},
    {"a text in several batches waits for others, and they for none of its pieces",
     small_steps,
     {{"a", "x", {20}}, {"b", "y", {3, 6}, 0, 1}, {"c", "z", {5}, 0, 1}},
     "a.0:0-3\n"
     "b.0\n"
     "c.0:0-3\n"
     "a.0:4-7\n"
     "c.0:4-4\n"
     "b.1:0-3\n"
     "a.0:8-11\n"
     "b.1:4-5\n"
     "a.0:12-15\n"
     "a.0:16-19\n"},
    {"of two texts that are longer than a batch the second begins when the first has ended",
     whole_steps,
     {{"a", "x", {20, 9}}, {"b", "y", {9}, 0, 1}, {"c", "z", {8}, 0, 2}},
     "a.0:0-7\n"
     "a.0:8-15\n"
     "c.0\n"
     "a.0:16-19\n"
     "b.0:0-7\n"
     "b.0:8-8\n"
     "a.1:0-7\n"
     "a.1:8-8\n"},
    {"the first priority comes first, but a text that has begun ends in its turns",
     whole_steps,
     {{"a", "x", {4, 12, 4}, 1}, {"b", "y", {8, 8, 8}, 0, 1}, {"c", "x", {1}, 0, 1}},
     "a.0 a.1:0-3\n"
     "b.0\n"
     "a.1:4-11\n"
     "b.1\n"
     "c.0\n"
     "b.2\n"
     "a.2\n"},
    {"an encoder computes complete texts",
     an_encoder,
     {{"a", "x", {5, 5, 3, 5}}, {"b", "y", {2}, 0, 1}},
     "a.0\n"
     "b.0\n"
     "a.1 a.2\n"
     "a.3\n"},
    {"what all texts begin with is computed once in a batch",
     whole_steps,
     {{"a", "x", {6, 4, 5, 6, 4}, 0, 0, true}, {"b", "x", {9, 9}, 0, 0, true}, {"c", "x", {4}, 0, 0, true}},
     "a.0 a.1/3 a.2:0-3/3\n"
     "a.2:4-4 a.3 a.4/3\n"
     "b.0:0-7\n"
     "b.0:8-8 b.1:0-6\n"
     "b.1:7-8\n"
     "c.0\n"},
};

text_job job_of(const embed_row & row) {
    text_job job;
    job.id       = row.id;
    job.client   = row.client;
    job.priority = row.priority;
    for (const int32_t n : row.sizes) {
        job.texts.emplace_back(n, 1);
    }
    if (row.shares) {
        job.share_beginning();
    }
    return job;
}

std::string text_of(const text_batch & batch) {
    std::string line;
    for (const text_piece & p : batch.pieces) {
        const bool whole = p.n_tokens == (int32_t) batch.job->texts[p.i_text].size();
        line += (line.empty() ? "" : " ") + batch.job->id + "." + std::to_string(p.i_text);
        line +=
            whole ? "" : ":" + std::to_string(p.n_before) + "-" + std::to_string(p.n_before + p.n_tokens - 1);
        line += p.n_shared > 0 ? "/" + std::to_string(p.n_shared) : "";
    }
    return line + "\n";
}

// The batches of all commands; seen: is called with each of them before it is computed.
template <typename function>
std::string batches_of(const batch_limits & limits, std::vector<embed_row> commands, function seen) {
    text_queue  queue;
    std::string lines;
    for (int32_t step = 0; step < 10000 && !(commands.empty() && queue.empty()); step++) {
        const auto comes = std::stable_partition(commands.begin(), commands.end(),
                                                 [&](const embed_row & c) { return c.at > step; });
        std::for_each(comes, commands.end(), [&](const embed_row & c) { queue.submit(job_of(c)); });
        commands.erase(comes, commands.end());
        if (queue.empty()) {
            continue;
        }
        const text_batch batch = queue.next(limits);
        expect(!batch.pieces.empty(), "a batch has no tokens");
        lines += text_of(batch);
        seen(batch, step);
        for (const text_piece & p : batch.pieces) {
            batch.job->take(p);
        }
        if (batch.job->is_done()) {
            queue.remove(*batch.job);
        }
    }
    expect(queue.empty(), "a text is never computed:\n" + lines);
    return lines;
}

void run(const queue_row & row) {
    expect_equal(row.expected, batches_of(row.limits, row.commands, [](const text_batch &, int32_t) {}));
}

const int32_t n_longest = 100; // tokens of a text

// Texts have ids and cells of their own, and there are enough: what has begun, and the batch.
class cell_counter {
  public:
    explicit cell_counter(const batch_limits & limits)
        : n_cells(n_longest + 2 * limits.n_batch), n_max(limits.n_max) {}

    void operator()(const text_batch & batch) {
        for (const text_piece & p : batch.pieces) {
            const auto text = std::make_pair(batch.job->id, p.i_text);
            const auto held = by_id.find(p.seq_id);
            expect(p.seq_id < text_queue::n_ids, "there is no such sequence id");
            expect((p.n_before > 0) == (held != by_id.end()) &&
                       (p.n_before == 0 || held->second.first == text),
                   "another text has the sequence id");
            by_id[p.seq_id] = {text, p.n_before + p.n_tokens};
        }
        int32_t n_used = 0, n_rows = 0;
        for (const auto & held : by_id) {
            n_used += held.second.second;
        }
        for (const text_piece & p : batch.pieces) {
            const auto & pieces = batch.pieces;
            const bool   has_it = std::any_of(pieces.begin(), pieces.end(), [&](const text_piece & first) {
                return first.n_before + first.n_shared == 0 && first.n_tokens >= p.n_shared;
            });
            expect(p.n_shared == 0 || (p.n_before == 0 && has_it && p.n_shared < p.n_tokens),
                   "a text shares what no other one has");
            n_used -= p.n_shared;
            n_rows += p.n_tokens - p.n_shared;
        }
        expect(n_rows <= n_max, std::to_string(n_rows) + " tokens in a batch");
        expect(n_used <= n_cells, std::to_string(n_used) + " cells are used");
        for (const text_piece & p : batch.pieces) {
            if (p.n_before + p.n_tokens == (int32_t) batch.job->texts[p.i_text].size()) {
                by_id.erase(p.seq_id);
            }
        }
    }

  private:
    using text_name = std::pair<std::string, size_t>;
    const int32_t                                         n_cells, n_max;
    std::map<llama_seq_id, std::pair<text_name, int32_t>> by_id; // tokens that have cells
};

// Commands of four clients with texts of any size, and one of p, whose texts always fit: all are computed, each client's in
// their order, and p waits for one batch of each other client.
void run_random(uint32_t seed) {
    std::mt19937 random(seed);
    const auto   below = [&](uint32_t n) { return (int32_t) (random() % n); };

    const batch_limits     limits   = {1 + below(32), 32};
    const embed_row        p        = {"1", "p", std::vector<int32_t>(50, 1), 0, below(20)};
    std::vector<embed_row> commands = {p};
    for (int32_t i = 2; i < 14; i++) {
        embed_row c = {std::string(1, (char) ('0' + i)), std::string(1, (char) ('a' + below(4))), {}};
        for (int32_t n = 1 + below(20); n > 0; n--) {
            c.sizes.push_back(1 + below(below(2) ? n_longest : 8));
        }
        c.shares = below(2);
        c.at     = commands.back().client == "p" ? 0 : commands.back().at + below(3);
        commands.push_back(std::move(c));
    }
    std::map<std::string, std::pair<std::string, size_t>> last;    // of each client: its last text
    std::map<std::string, int>                            n_since; // batches since the last one of p
    cell_counter                                          count(limits);
    batches_of(limits, commands, [&](const text_batch & batch, int32_t step) {
        const std::string & client = batch.job->client;
        const auto          text   = std::make_pair(batch.job->id, batch.pieces.back().i_text);
        expect(last[client] <= text, "the order of a client's texts");
        last[client] = text;
        count(batch);
        n_since = client == "p" ? std::map<std::string, int>() : n_since;
        expect(client == "p" || step < p.at || last["p"].second + 1 == p.sizes.size() ||
                   ++n_since[client] <= 1,
               "p waits for two batches of " + client);
    });
}

} // namespace

void add_text_cases(std::vector<test_case> & cases) {
    for (const queue_row & row : table) {
        cases.push_back({std::string("texts, ") + row.name, [&row] { run(row); }});
    }
    cases.push_back({"texts, of any sizes, all are computed in cells and ids of their own", [] {
                         for (uint32_t seed = 0; seed < 300; seed++) {
                             run_random(seed);
                         }
                     }});
}
