// finish and prune: which sequences of a request go on, and how the others end. A row's certainty is the number of the
// letter that is drawn from it, so x is surer than a.
#include "cases.h"
#include "gaussian.h"
#include "rows/row_sums.h"
#include "world.h"

#include <cmath>

struct contest_row {
    const char *              name;
    asked                     request;
    std::vector<const char *> sampled;  // in each step
    const char *              expected; // events but start and stream
    int32_t                   n_parallel = 4;
};

static asked with_first(int32_t n, int32_t first, int32_t max_tokens = 4) {
    asked a      = {"a", "abc", n};
    a.first      = first;
    a.max_tokens = max_tokens;
    return a;
}

static asked with_prune(int32_t n, std::vector<int32_t> marks, int32_t keep, int32_t max_tokens = 4) {
    asked a      = {"a", "abc", n};
    a.marks      = std::move(marks);
    a.keep       = keep;
    a.max_tokens = max_tokens;
    return a;
}

static asked with_then(asked a) {
    a.then = "tu";
    a.stop = {"z"};
    return a;
}

static asked with_certainty() {
    asked a     = {"a", "abc"};
    a.certainty = true;
    a.banned    = {"yz"};
    return a;
}

static asked with_both() {
    asked a = with_prune(4, {1}, 3);
    a.first = 1;
    return a;
}

// clang-format off
static const contest_row table[] = {
    {"finish, the rest ends when so many are over",
     with_first(3, 2), {"xyz", "$yz", "z$"},
     "a stop index=0 length=2 stop=1 finish_reason=stop\n"
     "a stop index=2 length=3 stop=1 finish_reason=stop\n"
     "a stop index=1 length=3 stop=0 finish_reason=surplus\n"
     "a done count=3 prompt_tokens=3 cached_tokens=0 completion_tokens=8 saved_tokens=1\n"},

    {"finish, of those that end in one step as many as are wanted count",
     with_first(3, 1, 2), {"xyz", "xyz"},
     "a stop index=0 length=2 stop=0 finish_reason=length\n"
     "a stop index=1 length=1 stop=0 finish_reason=surplus\n"
     "a stop index=2 length=1 stop=0 finish_reason=surplus\n"
     "a done count=3 prompt_tokens=3 cached_tokens=0 completion_tokens=4 saved_tokens=2\n"},

    {"finish, what never began ends with length 0",
     with_first(4, 1), {"xy", "$y"},
     "a stop index=0 length=2 stop=1 finish_reason=stop\n"
     "a stop index=1 length=1 stop=0 finish_reason=surplus\n"
     "a stop index=2 length=0 stop=0 finish_reason=surplus\n"
     "a stop index=3 length=0 stop=0 finish_reason=surplus\n"
     "a done count=4 prompt_tokens=3 cached_tokens=0 completion_tokens=3 saved_tokens=11\n", 2},

    {"finish, texts without tokens are over, too",
     with_first(3, 2, 0), {"", ""},
     "a stop index=0 length=0 stop=0 finish_reason=length\n"
     "a stop index=1 length=0 stop=0 finish_reason=length\n"
     "a stop index=2 length=0 stop=0 finish_reason=surplus\n"
     "a done count=3 prompt_tokens=3 cached_tokens=0 completion_tokens=0 saved_tokens=0\n"},

    {"finish, more than there are ends nothing",
     with_first(2, 3, 2), {"xy", "xy"},
     "a stop index=0 length=2 stop=0 finish_reason=length\n"
     "a stop index=1 length=2 stop=0 finish_reason=length\n"
     "a done count=2 prompt_tokens=3 cached_tokens=0 completion_tokens=4 saved_tokens=0\n"},

    {"finish, only the end of a second answer counts",
     with_then(with_first(2, 1, 9)), {"zy", "py", "qy"},
     "a stop index=0 length=3 stop=0 finish_reason=length free_length=1\n"
     "a stop index=1 length=2 stop=0 finish_reason=surplus\n"
     "a done count=2 prompt_tokens=3 cached_tokens=0 completion_tokens=5 saved_tokens=7\n"},

    {"prune, at a mark all but the best end",
     with_prune(4, {1}, 2), {"dbca", "xx", "xx", "xx"},
     "a stop index=1 length=1 stop=0 finish_reason=pruned\n"
     "a stop index=3 length=1 stop=0 finish_reason=pruned\n"
     "a stop index=0 length=4 stop=0 finish_reason=length\n"
     "a stop index=2 length=4 stop=0 finish_reason=length\n"
     "a done count=4 prompt_tokens=3 cached_tokens=0 completion_tokens=10 saved_tokens=6\n"},

    {"prune, the mean of all tokens so far counts, at each mark",
     with_prune(3, {2, 3}, 1, 5), {"azc", "zab", "z", "x", "x"},
     "a stop index=1 length=2 stop=0 finish_reason=pruned\n"
     "a stop index=2 length=2 stop=0 finish_reason=pruned\n"
     "a stop index=0 length=5 stop=0 finish_reason=length\n"
     "a done count=3 prompt_tokens=3 cached_tokens=0 completion_tokens=9 saved_tokens=6\n"},

    {"prune, of equal ones the first go on",
     with_prune(3, {1}, 2, 2), {"aaa", "xx"},
     "a stop index=2 length=1 stop=0 finish_reason=pruned\n"
     "a stop index=0 length=2 stop=0 finish_reason=length\n"
     "a stop index=1 length=2 stop=0 finish_reason=length\n"
     "a done count=3 prompt_tokens=3 cached_tokens=0 completion_tokens=5 saved_tokens=1\n"},

    {"prune, a text that has ended before the mark is one of those that are kept",
     with_prune(4, {2}, 2, 3), {"abcd", "$xyz", "x"},
     "a stop index=0 length=2 stop=1 finish_reason=stop\n"
     "a stop index=1 length=2 stop=0 finish_reason=pruned\n"
     "a stop index=2 length=2 stop=0 finish_reason=pruned\n"
     "a stop index=3 length=3 stop=0 finish_reason=length\n"
     "a done count=4 prompt_tokens=3 cached_tokens=0 completion_tokens=9 saved_tokens=2\n"},

    {"prune, no place is left",
     with_prune(3, {2}, 1, 3), {"abc", "$zz"},
     "a stop index=0 length=2 stop=1 finish_reason=stop\n"
     "a stop index=1 length=2 stop=0 finish_reason=pruned\n"
     "a stop index=2 length=2 stop=0 finish_reason=pruned\n"
     "a done count=3 prompt_tokens=3 cached_tokens=0 completion_tokens=6 saved_tokens=2\n"},

    {"prune, with more sequences than slots each is compared with those that are there",
     with_prune(4, {1}, 1, 2), {"bd", "xa", "z", "x"},
     "a stop index=0 length=1 stop=0 finish_reason=pruned\n"
     "a stop index=1 length=2 stop=0 finish_reason=length\n"
     "a stop index=2 length=1 stop=0 finish_reason=pruned\n"
     "a stop index=3 length=2 stop=0 finish_reason=length\n"
     "a done count=4 prompt_tokens=3 cached_tokens=0 completion_tokens=6 saved_tokens=2\n", 2},

    {"prune, a second answer has passed all marks and keeps its place",
     with_then(with_prune(3, {2}, 2, 4)), {"zab", "pxy", "qc", "d", "p", "q"},
     "a stop index=1 length=2 stop=0 finish_reason=pruned\n"
     "a stop index=0 length=3 stop=0 finish_reason=length free_length=1\n"
     "a stop index=2 length=6 stop=0 finish_reason=length free_length=4\n"
     "a done count=3 prompt_tokens=3 cached_tokens=0 completion_tokens=11 saved_tokens=2\n"},

    {"prune and finish together",
     with_both(), {"abcd", "xyz", "$xy"},
     "a stop index=0 length=1 stop=0 finish_reason=pruned\n"
     "a stop index=1 length=3 stop=1 finish_reason=stop\n"
     "a stop index=2 length=2 stop=0 finish_reason=surplus\n"
     "a stop index=3 length=2 stop=0 finish_reason=surplus\n"
     "a done count=4 prompt_tokens=3 cached_tokens=0 completion_tokens=8 saved_tokens=7\n"},

    {"certainty, the mean of the tokens that remain after a rewind",
     with_certainty(), {"b", "y", "z", "d", "$"},
     "a stop index=0 length=3 stop=1 finish_reason=stop certainty=2\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=3\n"},
};
// clang-format on

static std::string ends_of(const std::string & events) {
    std::string text;
    size_t      begin = 0;
    for (size_t end; (end = events.find('\n', begin)) != std::string::npos; begin = end + 1) {
        const std::string line = events.substr(begin, end + 1 - begin);
        text += line.find(" stop index") == 1 || line.find(" done ") == 1 ? line : "";
    }
    return text;
}

static void run(const contest_row & row) {
    world_params p;
    p.n_parallel = row.n_parallel;
    world w(p);
    w.ask(row.request);
    for (const char * sampled : row.sampled) {
        w.step(sampled);
    }
    w.plan(); // ends that follow from marks
    expect_equal(row.expected, ends_of(w.take_events()));
    expect(w.requests.empty(), "the request has not ended");
}

//
// waiting at a mark
//

// The cells of a sequence that waits stay, and no token of it is decoded; those of one that ends are free in the next
// step.
static void run_cells_of_a_wait() {
    world w;
    w.ask(with_prune(2, {2}, 1, 9));
    w.step("ab");
    w.extend("a", 1); // a.2 begins a token later
    w.step("xyz");    // a.0 and a.1 are at the mark
    const int32_t     n_room = w.prefixes.tree.counts().n_room();
    const std::string plan   = w.step("z");
    expect(plan.find("a.2: row 0") != std::string::npos && plan.find("a.0") == std::string::npos,
           "only the late one is decoded, but:\n" + plan);
    expect_equal("a.0 a.1 a.2", w.running());
    expect_equal(std::to_string(n_room - 1), std::to_string(w.prefixes.tree.counts().n_room()), "free cells");
    w.step("x");
    expect_equal("a.2", w.running());
    // a cell for x of a.2; those of a.0 and a.1, which share the prompt, had a token each
    expect_equal(std::to_string(n_room - 2 + 2), std::to_string(w.prefixes.tree.counts().n_room()),
                 "free cells, those of the pruned ones among them");
}

// All slots are taken by sequences of two requests that wait for others: they give up their slots, and go on from their
// cells.
static void run_two_requests_wait() {
    world_params p;
    p.n_parallel = 2;
    world w(p);
    w.ask(with_prune(2, {1}, 1, 3));
    asked b = with_prune(2, {1}, 1, 3);
    b.id    = "b";
    w.ask(b);
    for (int i = 0; i < 12 && !w.requests.empty(); i++) {
        w.step("x*");
    }
    const std::string events = w.take_events();
    expect(w.requests.empty(), "the requests wait for each other for ever:\n" + events);
    expect(events.find("a stop index=1 length=1 stop=0 finish_reason=pruned") != std::string::npos, events);
    expect(events.find("b stop index=1 length=1 stop=0 finish_reason=pruned") != std::string::npos, events);
}

static void run_preempted_at_a_mark() {
    world     w;
    request & r = w.ask(with_prune(3, {2}, 2, 9));
    w.step("abc");
    w.extend("a", 1);
    w.step("xyza"); // three wait for a.3
    w.take_events();
    expect(preempt_youngest(w.requests, w.prefixes.tree), "a.3 is not preempted");
    expect(preempt_youngest(w.requests, w.prefixes.tree), "a.2, which waits, is not preempted");
    expect_equal("a.0 a.1", w.running());
    while (r.sequences[3].generated.size() < 2) {
        w.step("c*"); // the prompt begins again, then a.3 is resumed
        expect(!r.sequences[2].cells, "a sequence at a mark is resumed");
    }
    while (r.sequences[2].generated.size() < 3) {
        w.step("x*");
    }
    expect_equal("a stop index=0 length=2 stop=0 finish_reason=pruned\n"
                 "a stop index=3 length=2 stop=0 finish_reason=pruned\n",
                 ends_of(w.take_events()));
    expect_equal("0", std::to_string(r.n_waiting()), "sequences that wait for a slot");
}

// The last one that others wait for is cancelled: they do not wait for ever, and a cancelled one has no place.
static void run_cancel_at_a_mark() {
    world     w;
    request & r = w.ask(with_prune(2, {2}, 1, 9));
    w.step("ab");
    w.extend("a", 1);
    w.step("xyz");
    w.take_events();
    cancel_request(r, 2, "cancelled", w.updates);
    w.step("z");
    expect_equal("a stop index=2 length=1 stop=0 finish_reason=cancelled\n"
                 "a stop index=0 length=2 stop=0 finish_reason=pruned\n",
                 ends_of(w.take_events()));
    cancel_request(r, -1, "surplus", w.updates);
    expect_equal("a stop index=1 length=3 stop=0 finish_reason=surplus\n", ends_of(w.take_events()));
}

// The best of those that wait is cancelled: its place is free for another one.
static void run_best_cancelled_at_a_mark() {
    world     w;
    request & r = w.ask(with_prune(2, {2}, 1, 9));
    w.step("xa");
    w.extend("a", 1);
    w.step("xab"); // a.0 and a.1 are at the mark
    cancel_request(r, 0, "cancelled", w.updates);
    w.take_events();
    w.step("c");
    w.step("x");
    expect_equal("a stop index=1 length=2 stop=0 finish_reason=pruned\n", ends_of(w.take_events()));
    expect_equal("a.2", w.running());
}

// A fork begins behind the mark, so it passes without a comparison; a sequence that comes later is compared with all that
// were there.
static void run_extended_behind_a_mark() {
    world w;
    w.ask(with_prune(3, {1}, 2, 9));
    w.step("cbd");
    w.step("xx"); // a.1 is out
    w.extend("a", 1, 0, 1);
    w.extend("a", 2);
    w.take_events();
    w.step("xxaz"); // a.4 and a.5, for which there are slots
    w.step("xxxx"); // a.4 is out, and the fork has its slot
    expect_equal("a stop index=4 length=1 stop=0 finish_reason=pruned\n", ends_of(w.take_events()));
    expect_equal("a.0 a.2 a.3 a.5", w.running());
}

static void run_continued() {
    world w;
    w.ask(with_prune(2, {2}, 1, 2 + 1));
    w.step("ab");
    w.step("xy");
    w.step("z");
    expect(w.requests.empty(), "the request has not ended");
    const record * known = w.history.find("a");
    expect(known != nullptr, "the request is not in the history");
    std::string text;
    for (const llama_token token : known->list(1)) {
        text += w.vocab.piece(token, true);
    }
    expect_equal("ax", text, "the text of the pruned sequence, which can be continued");
}

// The sums of certainty, in any number of pieces, are those of the logits that are numbers.
static void run_sums_for_certainty() {
    for (const int32_t n : {1, 31, 512, 513, 5000}) {
        std::vector<float> row = gaussian_row(n, 3.0f, (uint32_t) n);
        for (int32_t i = 0; i < n; i += 7) {
            row[(size_t) i] = n > 1 ? -INFINITY : row[0];
        }
        flatness_sums found;
        add_for_flatness(found, row.data(), n / 3);
        add_for_flatness(found, row.data() + n / 3, n - n / 3);
        double count = 0.0, sum = 0.0, weights = 0.0;
        for (const float x : row) {
            count += std::isfinite(x);
            sum += std::isfinite(x) ? x : 0.0;
            weights += std::exp((double) x);
        }
        const double log_sum = found.max + std::log(found.weights);
        expect(found.n == count, "logits that are counted");
        expect(std::fabs(found.sum - sum) < 1e-3, "their sum");
        expect(std::fabs(log_sum - std::log(weights)) < 1e-5, "the logarithm of the sum of exponentials");
    }
    flatness_sums none;
    const float   out[] = {-INFINITY, -INFINITY};
    add_for_flatness(none, out, 2);
    expect(none.n == 0.0, "a row without numbers");
}

void add_contest_cases(std::vector<test_case> & cases) {
    for (const contest_row & row : table) {
        cases.push_back({row.name, [&row] { run(row); }});
    }
    const test_case others[] = {
        {"prune, a sequence that waits keeps its cells", run_cells_of_a_wait},
        {"prune, two requests that wait for slots", run_two_requests_wait},
        {"prune, preempted at a mark", run_preempted_at_a_mark},
        {"prune, cancelled at a mark", run_cancel_at_a_mark},
        {"prune, the best one is cancelled at a mark", run_best_cancelled_at_a_mark},
        {"prune, extended behind a mark", run_extended_behind_a_mark},
        {"prune, what was pruned can be continued", run_continued},
        {"certainty, its sums are those of the numbers in a row", run_sums_for_certainty},
    };
    cases.insert(cases.end(), std::begin(others), std::end(others));
}
