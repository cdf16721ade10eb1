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
    w.prefixes.tree.trim_to_budget({row.busy, 0, 0});
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
    w.prefixes.tree.trim_to_budget({false, 0, 0});
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

// Copies in pieces: three texts of one prompt, each long enough for a snapshot.
struct copied_world : world {
    explicit copied_world(const world_params & p) : world(p) {
        prompt = grow(*this, std::string(40, 'a'));
        for (char letter = 'b'; letter < 'e'; letter++) {
            texts.push_back(grow(*this, std::string(40, letter), prompt, 40));
        }
    }
    void release_all() {
        for (branch * b : texts) {
            prefixes.tree.release(b);
        }
        prefixes.tree.release(prompt);
    }
    // Trims, one cell at a time, until nothing is left to do; returns how often.
    int trim(bool busy = false) {
        int n = 0;
        while (prefixes.tree.needs_trim()) {
            prefixes.tree.trim_to_budget({busy, 0, token_us});
            expect(++n < 1000, "trimming does not end");
        }
        return n;
    }
    // How many of the prompt and its texts are found in snapshots.
    int n_kept() {
        int n = 0;
        for (const char * end : {"", "b", "c", "d"}) {
            const std::string    text = std::string(40, 'a') + (*end ? std::string(40, *end) : "");
            prefix_cache::search asked;
            const auto           match =
                prefixes.find(letters::tokens(text), (int32_t) text.size(), by_tokens, 0, asked);
            if (match.length == (int32_t) text.size()) {
                expect_equal(text, text_of(*this, match.from).substr(0, text.size()));
                n++;
            }
            if (match.restored) {
                prefixes.tree.release(match.from);
            }
        }
        return n;
    }

    branch *              prompt = nullptr;
    std::vector<branch *> texts;
    double                token_us = 0;
};

struct copy_row {
    const char * name;
    bool         on_device;
    double       token_us; // of computing a token; copying one takes 8 bytes / 16384
    int32_t      n_rivals;
    bool         evicted_for_a_request; // not by a trim
    int          n_kept;                // of a prompt and three texts
};

static const copy_row copies[] = {
    {"in host memory all are copied", false, 0.0001, 3, false, 4},
    {"in host memory also in front of a request", false, 0.0001, 3, true, 4},
    {"on a device what takes longer to compute is copied", true, 1, 3, false, 4},
    {"on a device nothing is copied in front of a request", true, 1, 3, true, 0},
    {"on a device one text of many is computed again, its prompt is copied", true, 1, 10000, false, 1},
    {"on a device what is computed sooner than copied is not copied", true, 0.0001, 3, false, 0},
    {"on a device all are copied until it is known how long computing takes", true, 0, 1000, false, 4},
};

static void run_copies(const copy_row & row) {
    world_params p;
    p.n_ctx_seq = 128;
    p.n_idle    = 0;
    p.on_device = row.on_device;
    p.ram_bytes = 1 << 20;
    copied_world w(p);
    for (branch * b : w.texts) {
        b->copying.n_rivals = row.n_rivals;
    }
    w.token_us = row.token_us;
    w.release_all();
    if (row.evicted_for_a_request) {
        w.prefixes.tree.make_room(p.n_cells);
    }
    w.trim();
    expect_equal("used 0, idle 0, shared 0", counts_of(w));
    expect_equal(std::to_string(row.n_kept), std::to_string(w.n_kept()));
}

// The cells of the prompt and of its three texts are copied once each, a cell in each call of the trim.
static void run_copies_in_pieces() {
    world_params p;
    p.n_ctx_seq = 128;
    p.n_idle    = 0;
    p.ram_bytes = 1 << 20;
    copied_world w(p);
    w.release_all();
    w.prefixes.tree.trim_to_budget({false, 0, 0}); // begins
    for (int i = 0; i < 160; i++) {
        expect(w.prefixes.is_copying(), "the copy ends early");
        expect_equal("used 160, idle 160, shared 120", counts_of(w));
        w.prefixes.tree.trim_to_budget({false, 0, 0});
    }
    w.prefixes.tree.trim_to_budget({false, 0, 0}); // nothing is left
    expect(!w.prefixes.is_copying(), "cells are copied twice");
    w.trim();
    expect_equal("4", std::to_string(w.n_kept()));
}

// A branch that is evicted while it is copied has no snapshot; the others have theirs.
static void run_copy_is_dropped() {
    world_params p;
    p.n_ctx_seq = 128;
    p.n_idle    = 80;
    p.on_device = true;
    p.ram_bytes = 1 << 20;
    copied_world w(p);
    w.release_all();
    for (int i = 0; i < 20; i++) {
        w.prefixes.tree.trim_to_budget({false, 0, 0});
    }
    expect(w.prefixes.is_copying(), "nothing is copied");
    w.prefixes.tree.make_room(p.n_cells - 120); // for a request: one of the texts is evicted
    expect(w.prefixes.is_copying(), "the others are not copied any more");
    w.trim();
    w.prefixes.tree.make_room(p.n_cells);
    expect_equal("3", std::to_string(w.n_kept()));
}

// Without memory for snapshots nothing waits for a copy, so an idle engine sleeps.
static void run_no_copies_without_memory() {
    world_params p;
    p.n_ctx_seq = 128;
    p.on_device = true;
    copied_world w(p);
    w.release_all();
    expect(!w.prefixes.tree.needs_trim(), "branches wait for a copy that is never made");
}

// On a device that is half full idle branches are copied before there are too many of them.
static void run_early_copies() {
    world_params p;
    p.n_ctx_seq = 128;
    p.n_cells   = 400;
    p.on_device = true;
    p.ram_bytes = 1 << 20;
    copied_world w(p);
    w.release_all();
    w.trim();
    expect_equal("used 160, idle 160, shared 120", counts_of(w));
    w.prefixes.tree.make_room(400);
    expect_equal("0", std::to_string(w.n_kept())); // 160 of 400 cells: nothing is copied early

    branch * more = grow(w, std::string(100, 'x'));
    w.prefixes.tree.release(more);
    branch * last = grow(w, std::string(101, 'y'));
    w.prefixes.tree.release(last);
    w.trim();
    expect_equal("used 201, idle 201, shared 0", counts_of(w));
    w.prefixes.tree.make_room(400);
    prefix_cache::search asked;
    const auto match = w.prefixes.find(letters::tokens(std::string(100, 'x')), 100, by_tokens, 0, asked);
    expect(match.restored, "what was copied early is lost when it is evicted");
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
    for (const copy_row & row : copies) {
        cases.push_back({std::string("evict, ") + row.name, [&row] { run_copies(row); }});
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
        {"evict, texts of one prompt are copied together, in pieces", run_copies_in_pieces},
        {"evict, a branch takes its copy with it, the others keep theirs", run_copy_is_dropped},
        {"evict, without memory for snapshots nothing waits for a copy", run_no_copies_without_memory},
        {"evict, a device that is half full copies early", run_early_copies},
        {"snapshot, cells that a live branch has are not restored again", run_shared_parts},
    };
    cases.insert(cases.end(), std::begin(others), std::end(others));
}
