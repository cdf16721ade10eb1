// Cases of several steps: cached prefixes, the prefill budget, preemption, steps that fail, forks, scores.
#include "cases.h"
#include "world.h"

static asked scored(const char * id, const char * prompt, std::vector<std::string> texts) {
    asked a;
    a.id     = id;
    a.prompt = prompt;
    a.scored = std::move(texts);
    return a;
}

static asked later(const char * id, const char * prompt, int32_t n = 1) {
    asked a    = {id, prompt, n};
    a.priority = 1;
    return a;
}

//
// priorities
//

static void run_first_priority() {
    world w;
    w.ask(later("a", "abcd", 2));
    w.step("xy");
    w.step("xy");
    w.ask({"b", "efg"});
    expect_equal("b: begins, 0 tokens cached\n"
                 "tokens 0-2: cells 3 from 0: 5 6 7*\n"
                 "b: completes its prompt with row 2\n",
                 w.step("z"));
    expect_equal("b.0 a.0 a.1", w.running()); // a is paused
    w.step("$");
    w.take_events();
    expect_equal("tokens 0: cells 1 from 5: 24*\n"
                 "tokens 1: cells 2 from 5: 25*\n"
                 "a.0: row 0\n"
                 "a.1: row 1\n",
                 w.step("pq"));
    w.step("$$");
    expect_equal("a stream index=0 text=p\n"
                 "a stream index=1 text=q\n"
                 "a stop index=0 length=4 stop=1 finish_reason=stop\n"
                 "a stop index=1 length=4 stop=1 finish_reason=stop\n"
                 "a done count=2 prompt_tokens=4 cached_tokens=0 completion_tokens=8\n",
                 w.take_events());
}

// a has 6 of 80 cells, of which one is its second sequence's; b wants those of its prompt and 32.
static void run_first_priority_in_few_cells() {
    for (const auto & [n_prompt, expected] : {std::pair{42, "a.0 a.1"}, {43, "a.0"}, {44, ""}}) {
        world_params p;
        p.n_cells = 80;
        world w(p);
        w.ask(later("a", "abcd", 2));
        w.step("xy");
        w.step("xy");
        w.ask({"b", std::string((size_t) n_prompt, 'e')});
        w.step();
        expect_equal(expected, w.running());
    }
}

static void run_first_priority_takes_ids() {
    world_params p;
    p.n_ids      = 6; // for 5 branches
    p.n_parallel = 4;
    world w(p);
    w.ask(later("a", "abcd", 3));
    w.step("xyz");
    w.ask({"b", "efg", 3});
    w.step("xyz");
    expect_equal("b.0 b.1 b.2 a.0", w.running());
}

//
// prefixes
//

static void run_known_prompt() {
    world w;
    w.ask({"a", "abcd"});
    w.step("x");
    w.ask({"b", "abcd"});
    expect_equal("b: begins, 4 tokens cached\n"
                 "tokens 0: cells 1 from 4: 24*\n"
                 "a.0: row 0\n"
                 "b: completes its prompt with its known row\n",
                 w.step("yz"));
}

static void run_longer_prompt() {
    world w;
    w.ask({"a", "abcd"});
    w.step("x");
    w.ask({"b", "abcefg"});
    expect_equal("b: begins, 3 tokens cached\n"
                 "tokens 0: cells 1 from 4: 24*\n"
                 "tokens 1-3: cells 2 from 3: 5 6 7*\n"
                 "a.0: row 0\n"
                 "b: completes its prompt with row 3\n",
                 w.step("yz"));
}

// A client sends a sequence's text as its next prompt, and the tokenizer splits it into other tokens.
static void run_other_split() {
    world w;
    w.ask({"a", "ab"});
    w.step("A"); // "ab", as one token
    w.step("x");
    w.ask({"b", "ababy"});
    const step_plan plan = w.plan();
    expect_equal(
        "3 cached, prompt 1 2 31 25",
        std::to_string(w.requests.find("b")->prompt.n_cached) + " cached, prompt " + [&] {
            std::string text;
            for (const llama_token token : w.requests.find("b")->command->prompt) {
                text += (text.empty() ? "" : " ") + std::to_string(token);
            }
            return text;
        }());
}

static void run_prompt_without_cache() {
    world w;
    asked a = {"a", "abcd"};
    a.cache = false;
    w.ask(a);
    w.step("x");
    w.ask({"b", "abcd"});
    expect(w.step("yz").find("b: begins, 0 tokens cached") == 0,
           "cells of a request without cache are shared");
    w.ask({"c", "abcdx"}); // a.0 has these cells, b the first four
    const std::string plan = w.step("uvw");
    expect(plan.find("c: begins, 4 tokens cached") == 0, "a sequence's cells are shared:\n" + plan);
}

// A prompt that has at least a chunk in common with one that is being computed waits for it.
static void run_common_prompt() {
    world_params p;
    p.n_ctx_seq = 512;
    p.n_batch   = 32;
    world             w(p);
    const std::string common(100, 'q');
    w.ask({"a", common + "a"});
    w.ask({"b", common + "b"});
    expect(w.step().find("b: begins") == std::string::npos, "the second prompt does not wait");
    w.step();
    const std::string third = w.step();
    expect(third.find("b: begins, 64 tokens cached") != std::string::npos,
           "the second prompt does not begin when less than a chunk is missing:\n" + third);
}

//
// the prefill budget
//

struct budget_row {
    const char * name;
    int64_t      t_us;      // of the first prompt's step, 200 tokens
    int32_t      n_prefill; // of the second prompt's first step, in which a sequence runs
};

static const budget_row budgets[] = {
    {"tokens that take 100 ms by the last prompt's step", 400000, 49},
    {"never fewer than 32 tokens", 40000000, 32},
    {"never more than the batch has left", 1000, 255},
};

static void run_budget(const budget_row & row) {
    world_params p;
    p.n_ctx_seq = 1024;
    p.n_batch   = 256;
    p.n_cells   = 2048;
    world w(p);
    w.ask({"a", std::string(200, 'a')});
    w.step("x", row.t_us);
    w.ask({"b", std::string(600, 'b')});
    expect_equal(std::to_string(row.n_prefill), std::to_string(w.plan().n_prefill), "tokens of prefill");
}

// The budget is for all prompts of a step together.
static void run_budget_of_two() {
    world_params p;
    p.n_ctx_seq = 1024;
    p.n_batch   = 256;
    p.n_cells   = 2048;
    world w(p);
    w.ask({"a", std::string(200, 'a')});
    w.step("x", 400000);
    w.ask({"b", std::string(40, 'b')});
    w.ask({"c", std::string(40, 'c')});
    expect_equal("49", std::to_string(w.plan().n_prefill), "tokens of prefill");
}

//
// preemption
//

static world_params narrow() {
    world_params p;
    p.n_cells   = 100;
    p.n_ctx_seq = 128;
    p.n_idle    = 0;
    return p;
}

// Makes steps until other sequences run; returns their number.
static int step_until_changed(world & w) {
    const std::string running = w.running();
    for (int n = 1; n < 200; n++) {
        w.step("x*");
        if (w.running() != running) {
            return n;
        }
    }
    throw std::string("the same sequences run for ever: " + running);
}

// The prompts have 5 cells; then each step takes 2 of the 95 others.
static void run_preemption() {
    world w(narrow());
    w.ask({"a", "abc"});
    request & b = w.ask({"b", "ef"});
    w.step("xy");
    expect_equal("a.0 b.0", w.running());
    expect_equal("48", std::to_string(step_until_changed(w)), "steps until one is preempted");
    expect_equal("a.0", w.running());
    expect_equal("48", std::to_string(b.sequences[0].generated.size()), "tokens of the preempted sequence");
    w.step("$");
    w.take_events();
    for (int i = 0; i < 6; i++) { // its prompt, and its tokens in batches of 16
        w.step("z*");
    }
    expect_equal("b.0", w.running());
    expect_equal("b stream index=0 text=z\n", w.take_events().substr(0, 24));
}

static void run_oldest_keeps_one() {
    world w(narrow());
    w.ask({"a", "abc", 2});
    w.step("xy");
    step_until_changed(w);
    expect_equal("a.0", w.running());
    while (preempt_youngest(w.requests, w.prefixes.tree)) {
        expect_equal("a.0", w.running());
    }
    w.ask({"b", "ef"});
    w.step("x");
    expect_equal("a.0", w.running());
}

static void run_youngest_request_first() {
    world w;
    w.ask({"a", "abc", 2});
    w.ask({"b", "ef", 2});
    w.step("xyxy");
    std::string left;
    while (preempt_youngest(w.requests, w.prefixes.tree)) {
        left += w.running() + "\n";
    }
    expect_equal("a.0 a.1 b.0\na.0 a.1\na.0\n", left);
}

static void run_resume() {
    world w;
    w.ask({"a", "abc", 2});
    w.step("xy");
    w.step("xy");
    expect(preempt_youngest(w.requests, w.prefixes.tree), "nothing is preempted");
    expect_equal("a.0", w.running());
    w.take_events();
    // it begins again with the prompt's cells, which the other sequence has; then its own idle cells are found
    w.step("x");
    expect_equal("a.0 a.1", (w.step("xz"), w.running()));
    expect_equal("a stream index=0 text=x\na stream index=0 text=x\na stream index=1 text=z\n",
                 w.take_events());
}

static void run_undo() {
    world w;
    w.ask({"a", "abc", 2});
    w.step("xx");
    const std::string first = [&] {
        const step_plan plan = w.plan();
        w.plans.undo(plan, w.requests, w.prefixes.tree);
        return plan.to_string();
    }();
    expect_equal(first, w.step("xx"));
}

static void run_undo_prompt() {
    world           w;
    request &       r    = w.ask({"a", "abc"});
    const step_plan plan = w.plan();
    w.plans.undo(plan, w.requests, w.prefixes.tree);
    expect_equal("0", std::to_string(r.prompt.cells->n_past()), "tokens of the prompt");
    expect_equal("tokens 0-2: cells 0 from 0: 1 2 3*\na: completes its prompt with row 2\n", w.step("x"));
}

// A recurrent model's prompt is complete when it is planned.
static void run_undo_recurrent_prompt() {
    world_params p;
    p.recurrent = true;
    world           w(p);
    request &       r    = w.ask({"a", "abc", 0});
    const step_plan plan = w.plan();
    w.plans.undo(plan, w.requests, w.prefixes.tree);
    expect(!finish_request(r, w.history, w.updates), "a prefix ends before it is computed");
    w.step();
    expect(w.requests.empty(), "the prefix has not ended");
}

//
// forks, scores
//

static void run_fork() {
    world w;
    w.ask({"a", "abc"});
    w.step("x");
    w.step("y");
    w.step("z");
    w.extend("a", 1, 0, 2); // begins with "xy", whose cells are cached
    w.step("u");
    const std::string plan = w.step("vw");
    expect_equal("tokens 0: cells 1 from 6: 21*\n"
                 "tokens 1: cells 3 from 4: 25*\n"
                 "a.0: row 0\n"
                 "a.1: row 1\n",
                 plan);
}

static void run_rows_are_bounded() {
    world_params p;
    p.n_ctx_seq = 512;
    p.n_batch   = 256;
    p.n_cells   = 1024;
    p.n_vocab   = 1 << 20; // 4 MiB a row, so 32 rows are 128 MiB
    world w(p);
    w.ask(scored("a", "abc", {std::string(100, 'd')}));
    w.step();
    expect_equal("32", std::to_string(w.plan().n_tokens()), "tokens of the scored text");
}

static void run_chunk_beside_sequences() {
    world_params p;
    p.n_ctx_seq = 512;
    p.n_batch   = 256;
    p.n_cells   = 1024;
    world w(p);
    w.ask(scored("a", "abc", {std::string(200, 'd')}));
    w.ask({"b", "ghi"});
    w.step("x");
    expect_equal("65", std::to_string(w.plan().n_tokens()), "tokens: one of b, a chunk of a");
}

// Two clients' texts come to be scored while the many of another one are: the rows of each step.
static void run_scores_of_clients() {
    world      w;
    const auto of = [](const char * id, const char * client, size_t n, const char * text) {
        asked a  = scored(id, "", std::vector<std::string>(n, text));
        a.client = client;
        return a;
    };
    const auto rows = [&] {
        const step_plan plan = w.plan();
        std::string     line;
        for (const planned_rows & p : plan.rows) {
            line += (line.empty() ? "" : " ") + p.r->id + "." + std::to_string(p.s->index);
        }
        w.finish(plan, "");
        return line + "\n";
    };
    const std::string text(13, 'd');
    w.ask(of("a", "x", 6, text.c_str()));
    w.ask(of("b", "x", 6, text.c_str()));
    std::string lines = rows();
    lines += rows();
    w.ask(of("c", "y", 2, text.c_str()));
    w.ask(of("d", "z", 1, text.c_str()));
    for (int i = 0; i < 6; i++) {
        lines += rows();
    }
    expect_equal("\n" // the prompts
                 "a.0 a.1\n"
                 "a.1 a.2\n" // no other client's prompt is ready
                 "c.0 a.2\n"
                 "d.0 c.1\n"
                 "a.3 b.0\n"
                 "c.1 a.4\n"
                 "a.4 a.5\n",
                 lines);
}

// A client's short prompt comes while three long ones of another are computed: the tokens of each in each step.
static void run_prompts_of_clients() {
    world_params p;
    p.n_ctx_seq = 128;
    p.n_cells   = 512;
    world      w(p);
    const auto computed = [&] {
        const step_plan plan = w.plan();
        std::string     line;
        for (const auto & r : w.requests.active) {
            const auto is_of = [&](const planned_token & t) { return t.cells == r->prompt.cells; };
            const auto n     = std::count_if(plan.tokens.begin(), plan.tokens.end(), is_of);
            line += n > 0 ? " " + r->id + std::to_string(n) : "";
        }
        w.finish(plan, "*");
        return line + "\n";
    };
    for (const char * id : {"a", "b", "c"}) {
        asked a  = {id, std::string(40, *id)};
        a.client = "x";
        w.ask(a);
    }
    std::string lines = computed();
    asked       d     = {"d", std::string(10, 'd')};
    d.client          = "y";
    w.ask(d);
    lines += computed();
    lines += computed();
    expect_equal(" a16\n"
                 " a6 d10\n" // before the rest of a, b and c
                 " a15\n",   // and a token of d's sequence
                 lines);
}

void add_step_cases(std::vector<test_case> & cases) {
    for (const budget_row & row : budgets) {
        cases.push_back({std::string("prefill budget, ") + row.name, [&row] { run_budget(row); }});
    }
    const test_case others[] = {
        {"prefill budget, two prompts share it", run_budget_of_two},
        {"priority, later ones are paused", run_first_priority},
        {"priority, later ones are preempted for cells, as far as need be", run_first_priority_in_few_cells},
        {"priority, later ones are preempted for ids", run_first_priority_takes_ids},
        {"prefix, a known prompt is not decoded again", run_known_prompt},
        {"prefix, what a prompt has in common with a running one is shared", run_longer_prompt},
        {"prefix, a text is found that is split otherwise", run_other_split},
        {"prefix, cells of a request without cache are not shared", run_prompt_without_cache},
        {"prefix, a prompt waits for another one with a chunk in common", run_common_prompt},
        {"preemption, a sequence is preempted when cells run out, and resumed", run_preemption},
        {"preemption, the youngest request first, and its last sequence", run_youngest_request_first},
        {"preemption, the oldest request keeps one sequence", run_oldest_keeps_one},
        {"preemption, a preempted sequence is resumed with its tokens", run_resume},
        {"undo, a plan that was not decoded is planned again", run_undo},
        {"undo, a prompt that was not decoded is not complete", run_undo_prompt},
        {"undo, a prefix that was not decoded has not ended", run_undo_recurrent_prompt},
        {"fork, a sequence begins with the cells of another one", run_fork},
        {"score, rows take a bounded number of bytes", run_rows_are_bounded},
        {"score, clients take turns", run_scores_of_clients},
        {"prompts, clients take turns", run_prompts_of_clients},
        {"score, a chunk beside running sequences", run_chunk_beside_sequences},
    };
    cases.insert(cases.end(), std::begin(others), std::end(others));
}
