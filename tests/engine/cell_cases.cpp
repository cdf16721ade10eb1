// Branches, their cells, and their eviction.
#include "cases.h"
#include "world.h"

// A branch with these tokens, decoded; from: the branch whose first cells it shares.
static branch * grow(world & w, const std::string & text, branch * from = nullptr, int32_t n_shared = 0) {
    branch *  b = w.prefixes.tree.open(0, from, n_shared);
    step_plan plan;
    for (const llama_token token : letters::tokens(text)) {
        plan.add(b, token, false);
    }
    w.cells.decode(plan);
    b->n_decoded = b->n_past();
    return b;
}

static std::string text_of(const world & w, const branch * b) {
    std::string text;
    for (const llama_token token : w.cells.tokens_of(b->seq_id)) {
        text += w.vocab.piece(token, true);
    }
    return text;
}

static std::string counts_of(const world & w) {
    const cell_counts n = w.prefixes.tree.counts();
    expect_equal(std::to_string(w.cells.n_used()), std::to_string(n.n_used), "cells in use");
    return "used " + std::to_string(n.n_used) + ", idle " + std::to_string(n.n_idle) + ", shared " +
           std::to_string(n.n_shared);
}

static bool knows(world & w, const std::string & text) {
    const auto match = w.prefixes.tree.find(letters::tokens(text), (int32_t) text.size(), by_tokens, 0);
    return match.length == (int32_t) text.size();
}

static void run_counts() {
    world    w;
    branch * prompt = grow(w, "abc");
    branch * a      = grow(w, "xy", prompt, 3);
    branch * b      = grow(w, "z", prompt, 2);
    expect_equal("used 6, idle 0, shared 5", counts_of(w));
    w.prefixes.tree.release(prompt);
    expect_equal("used 6, idle 0, shared 5", counts_of(w)); // live branches share all of it
    w.prefixes.tree.release(a);
    expect_equal("used 6, idle 3, shared 5", counts_of(w)); // c x y; b has a and b
    w.prefixes.tree.release(b);
    expect_equal("used 6, idle 6, shared 5", counts_of(w));
}

static void run_heirs() {
    world    w;
    branch * prompt = grow(w, "abc");
    branch * a      = grow(w, "x", prompt, 3);
    branch * b      = grow(w, "y", prompt, 2);
    w.prefixes.tree.remove(prompt);
    expect_equal("used 5, idle 0, shared 2", counts_of(w));
    w.prefixes.tree.remove(a);
    expect_equal("used 3, idle 0, shared 0", counts_of(w));
    expect_equal("aby", text_of(w, b));
}

static void run_truncate() {
    world    w;
    branch * a = grow(w, "abcd");
    branch * b = grow(w, "x", a, 4);
    w.prefixes.tree.truncate(a, 1);
    expect_equal("used 5, idle 0, shared 1", counts_of(w));
    expect_equal("abcdx", text_of(w, b));
    expect_equal("a", text_of(w, a));
}

static void run_eviction_order() {
    world_params p;
    p.n_cells = 12;
    p.n_ids   = 16;
    world    w(p);
    branch * prompt = grow(w, "abcd");
    branch * a      = grow(w, "x", prompt, 4);
    branch * b      = grow(w, "y", prompt, 4);
    branch * other  = grow(w, "efgh");
    for (branch * idle : {prompt, a, other, b}) {
        w.prefixes.tree.release(idle);
    }
    expect_equal("5", std::to_string(w.prefixes.tree.make_room(5)));
    expect(!knows(w, "abcdx"), "the branch that was used longest ago, but for the prompt, is not evicted");
    w.prefixes.tree.make_room(6);
    expect(!knows(w, "efgh") && knows(w, "abcdy"), "the next one is not evicted");
    w.prefixes.tree.make_room(8);
    expect(!knows(w, "abcdy") && knows(w, "abcd"), "the prompt is evicted before its candidate");
    expect_equal("12", std::to_string(w.prefixes.tree.make_room(100)));
}

// Pins count once where they share cells; one that is evicted next would be the prompt, which was used longest ago.
static void run_pins() {
    world_params p;
    p.n_cells = 12;
    world    w(p);
    branch * prompt = grow(w, "abcd");
    branch * more   = grow(w, "xy", prompt, 3);
    branch * idle   = grow(w, "efgh");
    prompt->pinned = more->pinned = true;
    w.prefixes.tree.release(idle);
    const cell_counts n = w.prefixes.tree.counts();
    expect_equal("6 pinned by 2, 4 idle", std::to_string(n.n_pinned) + " pinned by " +
                                              std::to_string(n.n_pins) + ", " + std::to_string(n.n_idle) +
                                              " idle");
    expect_equal("5", std::to_string(w.prefixes.tree.counts(prompt).n_pinned)); // abc, xy
    expect_equal("6", std::to_string(w.prefixes.tree.make_room(12)));
    expect(knows(w, "abcd") && knows(w, "abcxy") && !knows(w, "efgh"), "a pin is evicted");
    w.prefixes.tree.release(prompt);
    expect_equal("7", std::to_string(w.prefixes.tree.make_room(12)));
    expect_equal("5", std::to_string(w.prefixes.tree.counts().n_pinned));
}

static void run_live_branches_stay() {
    world_params p;
    p.n_cells = 8;
    world w(p);
    grow(w, "abcdef");
    expect_equal("2", std::to_string(w.prefixes.tree.make_room(5)));
    expect_equal("used 6, idle 0, shared 0", counts_of(w));
}

struct budget_row {
    const char * name;
    int32_t      n_budget;
    bool         busy;
    const char * expected;
};

static const budget_row budgets[] = {
    {"within it nothing is evicted", 8, false, "used 8, idle 8, shared 0"},
    {"above it one branch is evicted", 7, false, "used 4, idle 4, shared 0"},
    {"while sequences run idle branches may hold twice as much", 4, true, "used 8, idle 8, shared 0"},
    {"but no more than that", 3, true, "used 4, idle 4, shared 0"},
};

static void run_budget(const budget_row & row) {
    world_params p;
    p.n_idle = row.n_budget;
    world w(p);
    for (const char * text : {"abcd", "efgh"}) {
        w.prefixes.tree.release(grow(w, text));
    }
    w.prefixes.tree.trim_to_budget({row.busy, 0});
    expect_equal(row.expected, counts_of(w));
}

static void run_ids() {
    world_params p;
    p.n_ids      = 16; // 15 for branches
    p.n_parallel = 4;  // 10 are left free: for two requests, each with its prompt
    world w(p);
    for (char letter = 'a'; letter < 'a' + 6; letter++) {
        w.prefixes.tree.release(grow(w, std::string(1, letter)));
    }
    expect(w.prefixes.tree.needs_trim(), "idle branches hold an id too many");
    w.prefixes.tree.trim_to_budget({false, 0});
    expect(!w.prefixes.tree.needs_trim(), "no id was freed");
    expect(!knows(w, "a") && knows(w, "b"), "another branch than the oldest was evicted");
}

static void run_open_evicts() {
    world_params p;
    p.n_ids = 3; // 2 for branches
    world    w(p);
    branch * a = grow(w, "ab");
    w.prefixes.tree.release(a);
    grow(w, "cd");
    expect(w.prefixes.tree.open(0) != nullptr, "no idle branch is evicted for its id");
    expect(w.prefixes.tree.open(0) == nullptr, "a live branch has lost its id");
}

static void run_snapshot() {
    world_params p;
    p.n_cells   = 128;
    p.n_ctx_seq = 128;
    p.ram_bytes = 1 << 20;
    world             w(p);
    const std::string text = std::string(40, 'a') + std::string(40, 'b');
    w.prefixes.tree.release(grow(w, text));
    w.prefixes.tree.make_room(100);
    expect(!knows(w, text), "the branch was not evicted");
    prefix_cache::search asked;
    const auto           match = w.prefixes.find(letters::tokens(text), 70, by_tokens, 0, asked);
    expect(match.restored, "the snapshot is not restored");
    expect_equal(text.substr(0, 70), text_of(w, match.from));
    expect_equal("used 70, idle 0, shared 0", counts_of(w));
}

// Snapshots of candidates share the part of their prompt. A part whose cells a live branch has is not restored again.
static void run_shared_parts() {
    world_params p;
    p.n_cells   = 256;
    p.n_ctx_seq = 128;
    p.ram_bytes = 1 << 20;
    world             w(p);
    const std::string common(40, 'a'), end(40, 'b');
    branch *          prompt = grow(w, common);
    w.prefixes.tree.release(grow(w, end, prompt, 40));
    w.prefixes.tree.make_room(216);
    expect(!knows(w, common + end), "the candidate was not evicted");
    prefix_cache::search asked;
    const auto           match = w.prefixes.find(letters::tokens(common + end), 80, by_tokens, 0, asked);
    expect(match.restored, "the snapshot is not restored");
    expect_equal(common + end, text_of(w, match.from));
    expect_equal("used 80, idle 0, shared 40", counts_of(w));
}

//
// matches by text
//

struct match_row {
    const char * name;
    const char * held;
    const char * tokens;
    const char * expected; // tokens of both lists
};

static const match_row matches[] = {
    {"a text that is split otherwise", "Axy", "abxz", "2 3"},
    {"a border that only one list has", "A", "a", "0 0"},
    {"the same control token", "A$c", "ab$c", "3 4"},
    {"a control token and other text", "A$c", "abc", "1 2"},
    {"a control token that only the other list has", "Ac", "ab$c", "1 2"},
    {"a control token where no list has a border", "A$", "a$", "0 0"},
};

static void run_match(const match_row & row) {
    const letters vocab;
    const auto    held = letters::tokens(row.held), tokens = letters::tokens(row.tokens);
    const auto m = match_tokens(held, (int32_t) held.size(), tokens, (int32_t) tokens.size(), by_text, vocab);
    expect_equal(row.expected, std::to_string(m.length) + " " + std::to_string(m.n_matched));
}

void add_cell_cases(std::vector<test_case> & cases) {
    for (const match_row & row : matches) {
        cases.push_back({std::string("match, ") + row.name, [&row] { run_match(row); }});
    }
    for (const budget_row & row : budgets) {
        cases.push_back({std::string("trim to budget, ") + row.name, [&row] { run_budget(row); }});
    }
    const test_case others[] = {
        {"cells, those that branches share are counted once", run_counts},
        {"cells, the branches that share them become their owners", run_heirs},
        {"cells, a branch that is truncated leaves others theirs", run_truncate},
        {"evict, a prompt after its candidates, else the one used longest ago", run_eviction_order},
        {"evict, live branches stay", run_live_branches_stay},
        {"evict, pins stay until they are released", run_pins},
        {"trim to budget, idle branches leave ids for two requests", run_ids},
        {"evict, for an id", run_open_evicts},
        {"snapshot, an evicted branch comes back as far as it is needed", run_snapshot},
        {"snapshot, cells that a live branch has are not restored again", run_shared_parts},
    };
    cases.insert(cases.end(), std::begin(others), std::end(others));
}
