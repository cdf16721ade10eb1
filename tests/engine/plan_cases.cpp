// State -> plan: each row has a set of requests, the letters that are sampled in each step, and the expected text of
// each step's plan.
#include "cases.h"
#include "world.h"

struct plan_row {
    const char *              name;
    world_params              params;
    std::vector<asked>        requests;
    std::vector<const char *> sampled;  // in each step
    const char *              expected; // the plans, with an empty line between them
};

static world_params with(int32_t n_parallel, int32_t n_batch = 16, int32_t n_cells = 256) {
    world_params p;
    p.n_parallel = n_parallel;
    p.n_batch    = n_batch;
    p.n_cells    = n_cells;
    return p;
}

static world_params recurrent() {
    world_params p;
    p.recurrent = true;
    return p;
}

static asked with_adapters(const char * id, const char * prompt, uint64_t key) {
    asked a;
    a.id       = id;
    a.prompt   = prompt;
    a.adapters = key;
    return a;
}

static asked scored(const char * id, const char * prompt, std::vector<std::string> texts) {
    asked a;
    a.id     = id;
    a.prompt = prompt;
    a.scored = std::move(texts);
    return a;
}

static asked echoed(const char * id, const char * prompt) {
    asked a;
    a.id     = id;
    a.prompt = prompt;
    a.echo = a.logprobs = true;
    return a;
}

// clang-format off
static const plan_row table[] = {
    {"a prompt, then a token of each of its sequences",
     with(4), {{"a", "abc", 2}}, {"xy", "xy"},
     "a: begins, 0 tokens cached\n"
     "tokens 0-2: cells 0 from 0: 1 2 3*\n"
     "a: completes its prompt with row 2\n"
     "\n"
     "tokens 0: cells 1 from 3: 24*\n"
     "tokens 1: cells 2 from 3: 25*\n"
     "a.0: row 0\n"
     "a.1: row 1\n"},

    {"sequences with equal texts are decoded once, until they differ",
     with(4), {{"a", "abc", 3}}, {"xxy", "xyz", "xyz"},
     "a: begins, 0 tokens cached\n"
     "tokens 0-2: cells 0 from 0: 1 2 3*\n"
     "a: completes its prompt with row 2\n"
     "\n"
     "tokens 0: cells 1 from 3: 24*\n"
     "tokens 1: cells 3 from 3: 25*\n"
     "cells 2 share token 0\n"
     "a.0: row 0\n"
     "a.1: row 0\n"
     "a.2: row 1\n"
     "\n"
     "tokens 0: cells 1 from 4: 24*\n"
     "tokens 1: cells 2 from 4: 25*\n"
     "tokens 2: cells 3 from 4: 26*\n"
     "a.0: row 0\n"
     "a.1: row 1\n"
     "a.2: row 2\n"},

    {"a last token that is equal does not make texts equal",
     with(4), {{"a", "abc", 3}}, {"yxx", "bab", "zzz"},
     "a: begins, 0 tokens cached\n"
     "tokens 0-2: cells 0 from 0: 1 2 3*\n"
     "a: completes its prompt with row 2\n"
     "\n"
     "tokens 0: cells 1 from 3: 25*\n"
     "tokens 1: cells 2 from 3: 24*\n"
     "cells 3 share token 1\n"
     "a.0: row 0\n"
     "a.1: row 1\n"
     "a.2: row 1\n"
     "\n"
     "tokens 0: cells 1 from 4: 2*\n"
     "tokens 1: cells 2 from 4: 1*\n"
     "tokens 2: cells 3 from 4: 2*\n"
     "a.0: row 0\n"
     "a.1: row 1\n"
     "a.2: row 2\n"},

    {"equal sequences of different requests are decoded apart",
     with(4), {{"a", "abc", 1}, {"b", "abc", 1}}, {"xx", "xx"},
     "a: begins, 0 tokens cached\n"
     "b: begins, 0 tokens cached\n"
     "tokens 0-2: cells 0 from 0: 1 2 3*\n"
     "tokens 3-5: cells 1 from 0: 1 2 3*\n"
     "a: completes its prompt with row 2\n"
     "b: completes its prompt with row 5\n"
     "\n"
     "tokens 0: cells 2 from 3: 24*\n"
     "tokens 1: cells 3 from 3: 24*\n"
     "a.0: row 0\n"
     "b.0: row 1\n"},

    {"a long prompt is computed in whole batches while nothing else runs",
     with(4, 4), {{"a", "abcdefghij"}}, {"", "", "x"},
     "a: begins, 0 tokens cached\n"
     "tokens 0-3: cells 0 from 0: 1 2 3 4\n"
     "\n"
     "tokens 0-3: cells 0 from 4: 5 6 7 8\n"
     "\n"
     "tokens 0-1: cells 0 from 8: 9 10*\n"
     "a: completes its prompt with row 1\n"},

    {"of two prompts the older one is computed first",
     with(4, 6), {{"a", "abcd"}, {"b", "efgh"}}, {"x", "yz"},
     "a: begins, 0 tokens cached\n"
     "b: begins, 0 tokens cached\n"
     "tokens 0-3: cells 0 from 0: 1 2 3 4*\n"
     "tokens 4-5: cells 1 from 0: 5 6\n"
     "a: completes its prompt with row 3\n"
     "\n"
     "tokens 0: cells 2 from 4: 24*\n"
     "tokens 1-2: cells 1 from 2: 7 8*\n"
     "a.0: row 0\n"
     "b: completes its prompt with row 2\n"},

    {"a prefix waits until the prompts of sequences are complete",
     with(4, 4), {{"p", "abc", 0}, {"a", "efgh"}, {"q", "ijk", 0}}, {"", "x", "y"},
     "p: begins, 0 tokens cached\n"
     "a: begins, 0 tokens cached\n"
     "q: begins, 0 tokens cached\n"
     "tokens 0-2: cells 0 from 0: 1 2 3*\n"
     "tokens 3: cells 1 from 0: 5\n"
     "p: completes its prompt with row 2\n"
     "\n"
     "tokens 0-2: cells 1 from 1: 6 7 8*\n"
     "a: completes its prompt with row 2\n"
     "\n"
     "tokens 0: cells 3 from 4: 24*\n"
     "tokens 1-3: cells 2 from 0: 9 10 11*\n"
     "a.0: row 0\n"
     "q: completes its prompt with row 3\n"},

    {"the second wave starts with the prompt's last token as others end",
     with(2), {{"a", "abc", 3}}, {"xy", "$y", "zz"},
     "a: begins, 0 tokens cached\n"
     "tokens 0-2: cells 0 from 0: 1 2 3*\n"
     "a: completes its prompt with row 2\n"
     "\n"
     "tokens 0: cells 1 from 3: 24*\n"
     "tokens 1: cells 2 from 3: 25*\n"
     "a.0: row 0\n"
     "a.1: row 1\n"
     "\n"
     "tokens 0: cells 2 from 4: 25*\n"
     "tokens 1: cells 3 from 2: 3*\n"
     "a.1: row 0\n"
     "a.2: row 1\n"},

    {"a free slot goes to the request with the fewest running sequences",
     with(3), {{"a", "abc", 4}, {"b", "efg", 4}}, {"xyz", "$yz", "yzu"},
     "a: begins, 0 tokens cached\n"
     "b: begins, 0 tokens cached\n"
     "tokens 0-2: cells 0 from 0: 1 2 3*\n"
     "tokens 3-5: cells 1 from 0: 5 6 7*\n"
     "a: completes its prompt with row 2\n"
     "b: completes its prompt with row 5\n"
     "\n"
     "tokens 0: cells 2 from 3: 24*\n"
     "tokens 1: cells 3 from 3: 25*\n"
     "tokens 2: cells 4 from 3: 26*\n"
     "a.0: row 0\n"
     "a.1: row 1\n"
     "a.2: row 2\n"
     "\n"
     "tokens 0: cells 3 from 4: 25*\n"
     "tokens 1: cells 4 from 4: 26*\n"
     "tokens 2: cells 5 from 2: 7*\n"
     "a.1: row 0\n"
     "a.2: row 1\n"
     "b.0: row 2\n"},

    {"the sets of adapters alternate, a step each",
     with(4), {with_adapters("a", "abc", 1), with_adapters("b", "abc", 2), with_adapters("c", "efg", 1)},
     {"xy", "z", "xy", "z"},
     "a: begins, 0 tokens cached\n"
     "b: begins, 0 tokens cached\n"
     "c: begins, 0 tokens cached\n"
     "tokens 0-2: cells 0 from 0: 1 2 3*\n"
     "tokens 3-5: cells 2 from 0: 5 6 7*\n"
     "a: completes its prompt with row 2\n"
     "c: completes its prompt with row 5\n"
     "\n"
     "tokens 0-2: cells 1 from 0: 1 2 3*\n"
     "b: completes its prompt with row 2\n"
     "\n"
     "tokens 0: cells 3 from 3: 24*\n"
     "tokens 1: cells 4 from 3: 25*\n"
     "a.0: row 0\n"
     "c.0: row 1\n"
     "\n"
     "tokens 0: cells 5 from 3: 26*\n"
     "b.0: row 0\n"},

    {"a recurrent model's prompt stops one token early, and nothing is shared after it",
     recurrent(), {{"a", "abc", 2}}, {"", "xx", "yy"},
     "a: begins, 0 tokens cached\n"
     "tokens 0-1: cells 0 from 0: 1 2\n"
     "\n"
     "tokens 0: cells 1 from 2: 3*\n"
     "tokens 1: cells 2 from 2: 3*\n"
     "a.0: row 0\n"
     "a.1: row 1\n"
     "\n"
     "tokens 0: cells 1 from 3: 24*\n"
     "tokens 1: cells 2 from 3: 24*\n"
     "a.0: row 0\n"
     "a.1: row 1\n"},

    {"a scored text wants a row of each token but its last",
     with(4), {scored("a", "abc", {"def"})}, {"", ""},
     "a: begins, 0 tokens cached\n"
     "tokens 0-2: cells 0 from 0: 1 2 3*\n"
     "a: completes its prompt with row 2\n"
     "\n"
     "tokens 0-1: cells 1 from 3: 4* 5*\n"
     "a.0: row 0 and 1 more\n"},

    {"scored texts come after sequences and prompts",
     with(4), {scored("a", "abc", {"def"}), {"b", "ghi"}}, {"x", "y"},
     "a: begins, 0 tokens cached\n"
     "b: begins, 0 tokens cached\n"
     "tokens 0-2: cells 0 from 0: 1 2 3*\n"
     "tokens 3-5: cells 1 from 0: 7 8 9*\n"
     "a: completes its prompt with row 2\n"
     "b: completes its prompt with row 5\n"
     "\n"
     "tokens 0: cells 3 from 3: 24*\n"
     "tokens 1-2: cells 2 from 3: 4* 5*\n"
     "b.0: row 0\n"
     "a.0: row 1 and 1 more\n"},

    {"echo wants a row of each token of the prompt",
     with(4), {echoed("a", "abc")}, {"x"},
     "a: begins, 0 tokens cached\n"
     "tokens 0-2: cells 0 from 0: 1* 2* 3*\n"
     "a: completes its prompt with row 2\n"
     "a: echoes token 1 with row 0\n"
     "a: echoes token 2 with row 1\n"},
};
// clang-format on

static void run(const plan_row & row) {
    world w(row.params);
    for (const asked & a : row.requests) {
        w.ask(a);
    }
    std::string plans;
    for (const char * sampled : row.sampled) {
        plans += (plans.empty() ? "" : "\n") + w.step(sampled);
    }
    expect_equal(row.expected, plans);
}

void add_plan_cases(std::vector<test_case> & cases) {
    for (const plan_row & row : table) {
        cases.push_back({std::string("plan, ") + row.name, [&row] { run(row); }});
    }
}
