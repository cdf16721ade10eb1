// A salt keeps the cells of a request from all requests without it, wherever prefixes are kept.
#include "cases.h"
#include "world.h"

#include <algorithm>
#include <map>
#include <random>

static asked salted(const char * id, const char * prompt, uint64_t salt, int32_t n = 1) {
    asked a = {id, prompt, n};
    a.salt  = salt;
    return a;
}

// One step computes both, since the adapters are the same.
static void run_own_cells_in_one_step() {
    world w;
    w.ask(salted("a", "abc", 0));
    w.ask(salted("b", "abc", 1));
    w.ask(salted("c", "abc", 2));
    expect_equal("a: begins, 0 tokens cached\n"
                 "b: begins, 0 tokens cached\n"
                 "c: begins, 0 tokens cached\n"
                 "tokens 0-2: cells 0 from 0: 1 2 3*\n"
                 "tokens 3-5: cells 1 from 0: 1 2 3*\n"
                 "tokens 6-8: cells 2 from 0: 1 2 3*\n"
                 "a: completes its prompt with row 2\n"
                 "b: completes its prompt with row 5\n"
                 "c: completes its prompt with row 8\n",
                 w.step("xyz"));
    w.ask(salted("d", "abc", 1)); // of this salt cells and row are known
    expect_equal("d: begins, 3 tokens cached\n"
                 "tokens 0: cells 3 from 3: 24*\n"
                 "tokens 1: cells 4 from 3: 25*\n"
                 "tokens 2: cells 5 from 3: 26*\n"
                 "a.0: row 0\n"
                 "b.0: row 1\n"
                 "c.0: row 2\n"
                 "d: completes its prompt with its known row\n",
                 w.step("wwww"));
}

// A prompt that is being computed is waited for only by those who may have its cells.
static void run_waits_for_no_other_salt() {
    const std::string long_prompt(100, 'a');
    for (const uint64_t salt : {0, 1, 2}) {
        world_params p;
        p.n_ctx_seq = 200;
        p.n_cells   = 1000;
        world w(p);
        w.ask(salted("a", long_prompt.c_str(), 1));
        w.step();
        w.ask(salted("b", long_prompt.c_str(), salt));
        w.step();
        const bool begun = w.requests.find("b")->prompt.cells != nullptr;
        expect(begun == (salt != 1), "salt " + std::to_string(salt) + (begun ? " does not wait" : " waits"));
    }
}

// Nor is a pin of use to another salt, nor does it give it a longer context.
static void run_pins() {
    for (const uint64_t salt : {0, 1, 2}) {
        world w;
        w.ask(salted("p", "abcd", 1, 0));
        w.step();
        branch * const b = w.prefixes.tree.find(letters::tokens("abcd"), 4, by_tokens, 1000).from;
        expect(b != nullptr, "the prefix is not known by its own salt");
        b->live = b->pinned = true;
        const request & r   = w.ask(salted("a", "abcdx", salt));
        const auto      n   = n_ctx_beside_pins(*r.command, w.prefixes.tree, 1000);
        expect_equal(salt == 1 ? "256" : "252", std::to_string(n), "n_ctx of salt " + std::to_string(salt));
        w.plan();
        expect_equal(salt == 1 ? "4" : "0", std::to_string(r.prompt.n_cached), "cached tokens");
    }
}

//
// a law
//

// What may be in cells: the text of a prompt, and behind it what its sequences have drawn: "a", often again.
struct told {
    uint64_t    salt, adapters;
    std::string text;
};

static int32_t n_common(const std::string & a, const std::string & b) {
    const size_t n = std::min(a.size(), b.size());
    return (int32_t) (std::mismatch(a.begin(), a.begin() + (std::ptrdiff_t) n, b.begin()).first - a.begin());
}

static asked any_request(std::mt19937 & random, std::string & prompt) {
    prompt = std::string("abcabc").substr(0, 1 + random() % 6);
    for (size_t k = random() % 7; k > 0; k--) {
        prompt += "ab"[random() % 2];
    }
    asked a    = salted("", prompt.c_str(), random() % 3, (int32_t) (random() % 3));
    a.adapters = random() % 2;
    a.cache    = random() % 8 > 0;
    return a;
}

// The tokens that a request of these may find in cells.
static int32_t n_findable(const std::vector<told> & texts, const told & own) {
    int32_t n = 0;
    for (const told & t : texts) {
        const bool same = t.salt == own.salt && t.adapters == own.adapters;
        n               = std::max(n, same ? n_common(t.text + std::string(9, 'a'), own.text) : 0);
    }
    return n;
}

// Requests come a few at a time, are evicted where there are few cells, and come back from host memory.
static void run_history(std::mt19937 & random, const world_params & p, int32_t & n_hits, int32_t & n_others) {
    world             w(p);
    std::vector<told> texts;
    for (int turn = 0; turn < 20; turn++) {
        std::map<const request *, told> now;
        for (size_t i = 1 + random() % 3; i > 0; i--) {
            std::string prompt;
            asked       a       = any_request(random, prompt);
            a.id                = std::to_string(turn) + "." + std::to_string(i);
            const request * own = &w.ask(a);
            now[own]            = {a.salt, a.adapters, prompt};
        }
        for (int step = 0; step < 60 && !w.requests.empty(); step++) {
            const step_plan plan = w.plan();
            for (const request * r : plan.begun) {
                const told &  own = now[r];
                const int32_t n   = n_findable(texts, own);
                expect(r->prompt.n_cached <= n, "of " + own.text + " of salt " + std::to_string(own.salt) +
                                                    " " + std::to_string(r->prompt.n_cached) +
                                                    " tokens are cached; those before told " +
                                                    std::to_string(n));
                n_hits += r->prompt.n_cached > 0;
                for (const told & t : texts) {
                    n_others += t.salt != own.salt && t.text == own.text && n == 0;
                }
                if (r->command->cache) {
                    texts.push_back(own);
                }
            }
            w.finish(plan, step % 2 ? "$*" : "a*");
        }
        expect(w.requests.empty(), "requests do not end");
    }
}

static void run_law() {
    std::mt19937 random(62);
    int32_t      n_hits = 0, n_others = 0;
    for (int round = 0; round < 300; round++) {
        world_params p;
        p.n_cells   = round % 2 ? 48 : 256;
        p.n_ctx_seq = 32;
        p.n_idle    = p.n_cells / 2;
        p.ram_bytes = round % 3 ? 1 << 20 : 0;
        run_history(random, p, n_hits, n_others);
    }
    expect(n_hits > 1000, "only " + std::to_string(n_hits) + " requests found cells");
    expect(n_others > 50, "only " + std::to_string(n_others) + " prompts were those of other salts alone");
}

void add_salt_cases(std::vector<test_case> & cases) {
    const std::initializer_list<test_case> all = {
        {"salt, each has cells of its own in one step", run_own_cells_in_one_step},
        {"salt, no prompt waits for one of another salt", run_waits_for_no_other_salt},
        {"salt, a pin is of use to its own", run_pins},
        {"salt, no request finds what only another salt told", run_law},
    };
    cases.insert(cases.end(), all.begin(), all.end());
}
