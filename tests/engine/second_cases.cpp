// Second answers: what a sequence does with `then` behind its free answer, and which cells that takes.
#include "cases.h"
#include "world.h"

static asked with_then(const char * then, int32_t max_tokens, bool return_free = false,
                       bool logprobs = false) {
    asked a       = {"a", "abc"};
    a.then        = then;
    a.max_tokens  = max_tokens;
    a.stop        = {"yz"};
    a.then_stop   = {"p"};
    a.return_free = return_free;
    a.logprobs    = logprobs;
    return a;
}

static asked with_then_and_sum(const char * banned) {
    asked a        = with_then("t", -1);
    a.banned       = {banned};
    a.sum_logprobs = true;
    return a;
}

static asked two_with_then() {
    asked a = with_then("tu", 1);
    a.n     = 2;
    return a;
}

// clang-format off
static const sampled_row table[] = {
    {"the second answer follows the free one and the text",
     with_then("tu", 2), {"x", "y", "q", "r"},
     "a start count=1 prompt_tokens=3 cached_tokens=0\n"
     "a stream index=0 text=q\n"
     "a stream index=0 text=r\n"
     "a stop index=0 length=4 stop=0 finish_reason=length free_length=2\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=4\n"},

    {"an end-of-text token ends each answer",
     with_then("tu", -1), {"x", "$", "q", "$"},
     "a start count=1 prompt_tokens=3 cached_tokens=0\n"
     "a stream index=0 text=q\n"
     "a stop index=0 length=4 stop=1 finish_reason=stop free_length=2\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=4\n"},

    {"each answer has its own stop strings",
     with_then("tu", -1, true), {"p", "x", "y", "z", "y", "p"},
     "a start count=1 prompt_tokens=3 cached_tokens=0\n"
     "a stream index=0 text=p\n"
     "a stream index=0 text=x\n"
     "a then index=0 length=4 stop=1 finish_reason=stop stop_text=yz\n"
     "a stream index=0 text=y\n"
     "a stop index=0 length=6 stop=1 finish_reason=stop stop_text=p free_length=4\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=6\n"},

    {"held text of the free answer comes before the second one",
     with_then("tu", 2, true), {"x", "y", "z", "$"},
     "a start count=1 prompt_tokens=3 cached_tokens=0\n"
     "a stream index=0 text=x\n"
     "a stream index=0 text=y\n"
     "a then index=0 length=2 stop=0 finish_reason=length\n"
     "a stream index=0 text=z\n"
     "a stop index=0 length=4 stop=1 finish_reason=stop free_length=2\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=4\n"},

    {"only the second answer's tokens have logprobs",
     with_then("tu", 2, false, true), {"x", "y", "q", "$"},
     "a start count=1 prompt_tokens=3 cached_tokens=0\n"
     "a stream index=0 text=q tokens=[\"q\"]\n"
     "a stop index=0 length=4 stop=1 finish_reason=stop free_length=2\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=4\n"},

    {"no free answer at all",
     with_then("tu", 0), {"", "q", "$"},
     "a start count=1 prompt_tokens=3 cached_tokens=0\n"
     "a stream index=0 text=q\n"
     "a stop index=0 length=2 stop=1 finish_reason=stop free_length=0\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=2\n"},

    {"a rewind in the second answer, whose sum it is",
     with_then_and_sum("bc"), {"x", "$", "b", "c", "d", "$"},
     "a start count=1 prompt_tokens=3 cached_tokens=0\n"
     "a stream index=0 text=d\n"
     "a stop index=0 length=4 stop=1 finish_reason=stop logprob=-1 free_length=2\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=4\n"},

    {"each sequence goes on as it ends",
     two_with_then(), {"xy", "pq", "$"},
     "a start count=2 prompt_tokens=3 cached_tokens=0\n"
     "a stop index=0 length=2 stop=1 finish_reason=stop stop_text=p free_length=1\n"
     "a stream index=1 text=q\n"
     "a stop index=1 length=3 stop=1 finish_reason=stop free_length=1\n"
     "a done count=2 prompt_tokens=3 cached_tokens=0 completion_tokens=5\n"},

    {"a context without room for it",
     {"a", "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefgh", 1, "", {}, {}, {}, 1, 0, "", "tuvw"},
     {"", "", "", "x"},
     "a start count=1 prompt_tokens=60 cached_tokens=0\n"
     "a stop index=0 length=1 stop=0 finish_reason=length\n"
     "a done count=1 prompt_tokens=60 cached_tokens=0 completion_tokens=1\n"},
};
// clang-format on

//
// cells
//

// The free answer ends with the stop string "yz": the cells of "y" are given up, those of "x" stay.
static void run_cells_are_kept() {
    world w;
    w.ask(with_then("tu", -1));
    w.step("x");
    w.step("y");
    w.step("z");
    expect_equal("tokens 0-1: cells 1 from 4: 20 21*\na.0: row 1\n", w.step("q"));
}

// The last token of a free answer that max_tokens has ended has no cell yet.
static void run_last_token_is_computed() {
    world w;
    w.ask(with_then("tu", 2));
    w.step("x");
    w.step("y");
    expect_equal("tokens 0-2: cells 1 from 4: 25 20 21*\na.0: row 2\n", w.step("q"));
}

// A recurrent state cannot be cut: the sequence is resumed from its prompt.
static void run_recurrent() {
    world_params p;
    p.recurrent = true;
    world w(p);
    w.ask(with_then("tu", -1));
    w.step();
    w.step("x");
    w.step("y");
    w.step("z");
    w.step(); // the sequence is resumed in the next step
    const std::string plan = w.step("q");
    expect(plan.find("24 20 21*") != std::string::npos,
           "the free answer and the text are computed:\n" + plan);
    w.step("$");
    expect_equal("a start count=1 prompt_tokens=3 cached_tokens=0\n"
                 "a stream index=0 text=q\n"
                 "a stop index=0 length=5 stop=1 finish_reason=stop free_length=3\n"
                 "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=5\n",
                 w.take_events());
}

static void run_preempted() {
    world w;
    w.ask(with_then("tu", 1));
    asked b = with_then("tu", 1);
    b.id    = "b";
    w.ask(b);
    w.step("xx");
    w.step("qq");
    w.take_events();
    expect(preempt_youngest(w.requests, w.prefixes.tree), "no sequence is preempted");
    expect_equal("a.0", w.running());
    w.step("r");
    while (!w.requests.active.empty()) {
        w.step("r*");
    }
    expect_equal("a stream index=0 text=r\n"
                 "a stop index=0 length=3 stop=0 finish_reason=length free_length=1\n"
                 "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=3\n"
                 "b stream index=0 text=r\n"
                 "b stop index=0 length=3 stop=0 finish_reason=length free_length=1\n"
                 "b done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=3\n",
                 w.take_events());
}

//
// commands
//

static void run_cancelled() {
    world w;
    asked a     = with_then("tu", 1);
    a.n         = 3;
    request & r = w.ask(a);
    w.step("x*");
    w.step("q*"); // all are in their second answers
    w.take_events();
    cancel_request(r, 1, "cancelled", w.updates);
    expect_equal("a stop index=1 length=2 stop=0 finish_reason=cancelled free_length=1\n", w.take_events());
    w.step("pp");
    expect_equal("a stop index=0 length=3 stop=1 finish_reason=stop stop_text=p free_length=1\n"
                 "a stop index=2 length=3 stop=1 finish_reason=stop stop_text=p free_length=1\n"
                 "a done count=3 prompt_tokens=3 cached_tokens=0 completion_tokens=8\n",
                 w.take_events());
}

static void run_cancelled_before() {
    world     w;
    request & r = w.ask(with_then("tu", -1));
    w.step("x");
    w.take_events();
    cancel_request(r, -1, "cancelled", w.updates);
    expect_equal("a stop index=0 length=1 stop=0 finish_reason=cancelled\n", w.take_events());
}

// A later limit is for free answers; a new sequence has both answers, too.
static void run_extended() {
    world w;
    w.ask(with_then("tu", 1));
    w.step("x");
    w.step("q");
    w.extend("a", 1);
    w.take_events();
    w.step("ry"); // a.0 ends
    w.step("s");
    w.step("$");
    expect_equal("a stream index=0 text=r\n"
                 "a stop index=0 length=3 stop=0 finish_reason=length free_length=1\n"
                 "a stream index=1 text=s\n"
                 "a stop index=1 length=3 stop=1 finish_reason=stop free_length=1\n"
                 "a done count=2 prompt_tokens=3 cached_tokens=0 completion_tokens=6\n",
                 w.take_events());
}

static void run_fork_is_refused() {
    world w;
    w.ask(with_then("tu", 3));
    w.step("x");
    try {
        w.extend("a", 1, 0);
        expect(false, "a fork is taken");
    } catch (const command_error & e) {
        expect_equal("fork", e.param);
    }
}

// What is continued later: the prompt, both answers, and the text between them.
static void run_history() {
    world w;
    w.ask(with_then("tu", 1));
    w.step("x");
    w.step("q");
    w.step("$");
    const auto tokens = w.history.find("a")->seen(0);
    expect(tokens == letters::tokens("xtuq"), "the tokens of both answers are not known");
}

void add_second_cases(std::vector<test_case> & cases) {
    for (const sampled_row & row : table) {
        cases.push_back({std::string("then, ") + row.name, [&row] { row.run(); }});
    }
    const test_case others[] = {
        {"then, the free answer keeps its cells", run_cells_are_kept},
        {"then, the last token of a free answer is computed with the text", run_last_token_is_computed},
        {"then, a recurrent state is computed again after a stop string", run_recurrent},
        {"then, a second answer is preempted and resumed", run_preempted},
        {"then, a sequence is cancelled in its second answer", run_cancelled},
        {"then, a cancelled free answer has no second one", run_cancelled_before},
        {"then, a sequence is added", run_extended},
        {"then, no sequence is forked", run_fork_is_refused},
        {"then, the history has both answers", run_history},
    };
    cases.insert(cases.end(), std::begin(others), std::end(others));
}
