// Admission: tables of active and waiting requests, and of the requests that are admitted.
#include "cases.h"
#include "world.h"

static std::string letters_of(size_t n, char letter) {
    return std::string(n, letter);
}

// A request, by the facts that admission uses.
struct waiting {
    std::string id, client;
    size_t      n_prompt;
    int32_t     n = 1, priority = 0;
    size_t      n_negative = 0; // more: its sequences are guided
};

struct admission_row {
    const char *         name;
    int32_t              n_cells, n_parallel;
    std::vector<waiting> active, queue;
    const char *         expected; // active, then the queue
};

// A running sequence wants 32 free cells.
static const admission_row table[] = {
    {"all that fit are admitted, in order of arrival",
     256,
     4,
     {},
     {{"a", "x", 10}, {"b", "x", 10}, {"c", "x", 10}},
     "a b c |"},
    {"a request that does not fit holds up those behind it",
     100,
     4,
     {{"a", "x", 30}},
     {{"b", "x", 40}, {"c", "x", 1}},
     "a | b c"},
    {"a request fits that leaves just enough cells", 100, 4, {{"a", "x", 30}}, {{"b", "x", 5}}, "a b |"},
    {"a request does not fit that needs one cell more", 100, 4, {{"a", "x", 30}}, {{"b", "x", 7}}, "a | b"},
    {"if none is active a request always fits", 20, 4, {}, {{"a", "x", 30}}, "a |"},
    {"there are no more requests than sequences may run",
     256,
     2,
     {},
     {{"a", "x", 1}, {"b", "x", 1}, {"c", "x", 1}},
     "a b | c"},
    {"a request with many sequences needs cells only for those that may run",
     200,
     4,
     {{"a", "x", 10}},
     {{"b", "x", 10, 100}},
     "a b |"},
    {"the client with the fewest sequences comes first",
     256,
     8,
     {{"a", "x", 1, 4}},
     {{"b", "x", 1}, {"c", "y", 1}},
     "a c b |"},
    {"a client's second request waits for another client's first",
     256,
     3,
     {},
     {{"a", "x", 1}, {"b", "x", 1}, {"c", "y", 1}},
     "a c b |"},
    {"among clients with equally many the one whose last request was admitted first comes first",
     256,
     8,
     {},
     {{"a", "x", 1}, {"b", "y", 1}, {"c", "y", 1}, {"d", "x", 1}},
     "a b d c |"},
    {"the first priority comes first, whatever its client has",
     256,
     8,
     {{"a", "x", 1, 4}},
     {{"b", "y", 1, 1, 1}, {"c", "x", 1}},
     "a c b |"},
    {"requests of a later priority take no room from it",
     100,
     2,
     {{"a", "x", 30, 1, 1}, {"b", "y", 30, 1, 1}},
     {{"c", "z", 3}},
     "c a b |"},
    {"a later priority waits for room as others do",
     100,
     1,
     {{"a", "x", 30}},
     {{"b", "y", 1, 1, 1}},
     "a | b"},
    {"one client's requests are admitted in order of arrival",
     256,
     2,
     {{"a", "x", 1, 2}},
     {{"b", "x", 1, 9}, {"c", "x", 1}},
     "a b | c"},
    {"a guided sequence takes two slots, and cells for both of its prompts",
     146,
     4,
     {{"a", "x", 10}},
     {{"b", "x", 10, 1, 0, 30}},
     "a b |"},
    {"a guided request does not fit that needs one cell more",
     145,
     4,
     {{"a", "x", 10}},
     {{"b", "x", 10, 1, 0, 30}},
     "a | b"},
};

static void run(const admission_row & row) {
    world_params p;
    p.n_cells    = row.n_cells;
    p.n_parallel = row.n_parallel;
    world w(p);
    char  letter = 'a'; // prompts have nothing in common
    for (const auto * list : {&row.active, &row.queue}) {
        for (const waiting & r : *list) {
            asked a;
            a.id       = r.id;
            a.client   = r.client;
            a.prompt   = letters_of(r.n_prompt, letter++);
            a.n        = r.n;
            a.priority = r.priority;
            a.guided   = r.n_negative > 0;
            a.negative = letters_of(r.n_negative, 'z');
            w.ask(a);
        }
        if (list == &row.active) { // admitted alone, so they run, and have their cells
            while (!w.requests.queue.empty()) {
                w.requests.active.push_back(std::move(w.requests.queue.front()));
                w.requests.queue.pop_front();
                request & r    = *w.requests.active.back();
                r.prompt.cells = w.prefixes.tree.open(0);
                step_plan plan;
                for (const llama_token token : r.command->prompt) {
                    plan.add(r.prompt.cells, token, false);
                }
                w.cells.decode(plan);
                r.prompt.cells->n_decoded = r.n_prompt();
                r.n_live                  = std::min((int32_t) r.sequences.size(), row.n_parallel);
            }
        }
    }
    w.admits.preempt_later(w.requests, w.prefixes);
    w.admits.admit(w.requests, w.prefixes.tree);
    expect_equal(row.expected, w.lists());
}

static void run_known_prompt() {
    world_params p;
    p.n_cells = 128;
    p.n_batch = 64;
    world w(p);
    w.ask({"a", letters_of(50, 'a')});
    w.step("b");
    w.ask({"b", letters_of(50, 'a')});
    w.ask({"c", letters_of(50, 'c')});
    w.admits.admit(w.requests, w.prefixes.tree);
    expect_equal("a b | c", w.lists());
}

void add_admission_cases(std::vector<test_case> & cases) {
    for (const admission_row & row : table) {
        cases.push_back({std::string("admission, ") + row.name, [&row] { run(row); }});
    }
    cases.push_back({"admission, cells that a running request has are not counted twice", run_known_prompt});
}
