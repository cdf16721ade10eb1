// Sampled tokens -> update: each row has a request, the letters that its sequences sample in each step, and the
// expected events. $ is the end-of-text token.
#include "cases.h"
#include "world.h"

static asked with_stop(std::vector<std::string> stop, int32_t min_tokens = 0, bool logprobs = false) {
    asked a      = {"a", "abc"};
    a.stop       = std::move(stop);
    a.min_tokens = min_tokens;
    a.logprobs   = logprobs;
    return a;
}

static asked with_limit(int32_t max_tokens) {
    asked a      = {"a", "abc"};
    a.max_tokens = max_tokens;
    return a;
}

static asked with_banned(const char * banned, bool logprobs = false, int32_t max_tokens = -1) {
    asked a      = {"a", "abc"};
    a.banned     = {banned};
    a.logprobs   = logprobs;
    a.max_tokens = max_tokens;
    return a;
}

static asked with_dedupe(const char * dedupe, int32_t n, int32_t max_tokens) {
    asked a      = {"a", "abc", n};
    a.dedupe     = dedupe;
    a.max_tokens = max_tokens;
    return a;
}

static asked scored(std::vector<std::string> texts) {
    asked a  = {"a", "abc"};
    a.scored = std::move(texts);
    return a;
}

static asked with_sum(const char * banned) {
    asked a        = {"a", "abc"};
    a.banned       = {banned};
    a.sum_logprobs = true;
    return a;
}

static asked with_loops(const loop_limit & loops, int32_t min_tokens = 0, const char * banned = nullptr) {
    asked a      = {"a", "abc"};
    a.loops      = loops;
    a.min_tokens = min_tokens;
    a.max_tokens = 8;
    if (banned) {
        a.banned = {banned};
    }
    return a;
}

// clang-format off
static const sampled_row table[] = {
    {"stop, an end-of-text token ends a sequence and has no text",
     {"a", "abc"}, {"x", "$"},
     "a start count=1 prompt_tokens=3 cached_tokens=0\n"
     "a stream index=0 text=x\n"
     "a stop index=0 length=2 stop=1 finish_reason=stop\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=2\n"},

    {"stop, a stop string is cut off, and text that may begin it is held back",
     with_stop({"yz"}), {"x", "y", "z"},
     "a start count=1 prompt_tokens=3 cached_tokens=0\n"
     "a stream index=0 text=x\n"
     "a stop index=0 length=3 stop=1 finish_reason=stop stop_text=yz\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=3\n"},

    {"stop, text that was held back comes when it begins no stop string",
     with_stop({"yz"}), {"y", "y", "x", "$"},
     "a start count=1 prompt_tokens=3 cached_tokens=0\n"
     "a stream index=0 text=y\n"
     "a stream index=0 text=yx\n"
     "a stop index=0 length=4 stop=1 finish_reason=stop\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=4\n"},

    {"stop, a stop string does not end a text that is too short",
     with_stop({"y"}, 2), {"y", "y", "y"},
     "a start count=1 prompt_tokens=3 cached_tokens=0\n"
     "a stream index=0 text=y\n"
     "a stream index=0 text=y\n"
     "a stop index=0 length=3 stop=1 finish_reason=stop stop_text=y\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=3\n"},

    {"stop, logprobs come with the text that their tokens have",
     with_stop({"yz"}, 0, true), {"x", "y", "x", "y", "z"},
     "a start count=1 prompt_tokens=3 cached_tokens=0\n"
     "a stream index=0 text=x tokens=[\"x\"]\n"
     "a stream index=0 text=yx tokens=[\"y\",\"x\"]\n"
     "a stop index=0 length=5 stop=1 finish_reason=stop stop_text=yz\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=5\n"},

    {"length, max_tokens is exact",
     with_limit(2), {"x", "y"},
     "a start count=1 prompt_tokens=3 cached_tokens=0\n"
     "a stream index=0 text=x\n"
     "a stream index=0 text=y\n"
     "a stop index=0 length=2 stop=0 finish_reason=length\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=2\n"},

    {"length, no tokens at all",
     with_limit(0), {"", ""},
     "a start count=1 prompt_tokens=3 cached_tokens=0\n"
     "a stop index=0 length=0 stop=0 finish_reason=length\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=0\n"},

    {"length, the context of a sequence is full",
     {"a", "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghij"}, {"", "", "", "x", "y"},
     "a start count=1 prompt_tokens=62 cached_tokens=0\n"
     "a stream index=0 text=x\n"
     "a stream index=0 text=y\n"
     "a stop index=0 length=2 stop=0 finish_reason=length\n"
     "a done count=1 prompt_tokens=62 cached_tokens=0 completion_tokens=2\n"},

    {"rewind, a banned phrase is not seen and its tokens do not count",
     with_banned("yz"), {"x", "y", "z", "u", "$"},
     "a start count=1 prompt_tokens=3 cached_tokens=0\n"
     "a stream index=0 text=x\n"
     "a stream index=0 text=u\n"
     "a stop index=0 length=3 stop=1 finish_reason=stop\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=3\n"},

    {"rewind, logprobs of the removed tokens are removed",
     with_banned("yz", true), {"x", "y", "z", "u", "$"},
     "a start count=1 prompt_tokens=3 cached_tokens=0\n"
     "a stream index=0 text=x tokens=[\"x\"]\n"
     "a stream index=0 text=u tokens=[\"u\"]\n"
     "a stop index=0 length=3 stop=1 finish_reason=stop\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=3\n"},

    {"loop, a passage stands three times; what the prompt repeats does not count",
     with_loops({1, 2, 3}), {"c", "x", "y", "x", "y", "x", "y"},
     "a start count=1 prompt_tokens=3 cached_tokens=0\n"
     "a stream index=0 text=c\n"
     "a stream index=0 text=x\n"
     "a stream index=0 text=y\n"
     "a stream index=0 text=x\n"
     "a stream index=0 text=y\n"
     "a stream index=0 text=x\n"
     "a stream index=0 text=y\n"
     "a stop index=0 length=7 stop=0 finish_reason=repetition\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=7\n"},

    {"loop, shorter and longer passages may repeat, and all before min_tokens",
     with_loops({2, 2, 2}, 6), {"x", "y", "x", "y", "z", "z", "u", "v"},
     "a start count=1 prompt_tokens=3 cached_tokens=0\n"
     "a stream index=0 text=x\n"
     "a stream index=0 text=y\n"
     "a stream index=0 text=x\n"
     "a stream index=0 text=y\n"
     "a stream index=0 text=z\n"
     "a stream index=0 text=z\n"
     "a stream index=0 text=u\n"
     "a stream index=0 text=v\n"
     "a stop index=0 length=8 stop=0 finish_reason=length\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=8\n"},

    {"loop, a window is nothing but a passage, whose last time is cut off",
     with_loops({1, 0, 2, 5}), {"u", "x", "y", "x", "y", "x"},
     "a start count=1 prompt_tokens=3 cached_tokens=0\n"
     "a stream index=0 text=u\n"
     "a stream index=0 text=x\n"
     "a stream index=0 text=y\n"
     "a stream index=0 text=x\n"
     "a stream index=0 text=y\n"
     "a stream index=0 text=x\n"
     "a stop index=0 length=6 stop=0 finish_reason=repetition\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=6\n"},

    {"loop, its later times are not seen when the sequence goes back",
     with_loops({1, 3, 2, 0, true}), {"x", "y", "x", "y", "u", "x", "z", "$"},
     "a start count=1 prompt_tokens=3 cached_tokens=0\n"
     "a stream index=0 text=x\n"
     "a stream index=0 text=y\n"
     "a stream index=0 text=u\n"
     "a stream index=0 text=xz\n"
     "a stop index=0 length=6 stop=1 finish_reason=stop\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=6\n"},

    {"loop, what is held back for it comes when the sequence is full",
     with_loops({3, 3, 2, 0, true}), {"s", "x", "y", "z", "u", "x", "y", "z"},
     "a start count=1 prompt_tokens=3 cached_tokens=0\n"
     "a stream index=0 text=s\n"
     "a stream index=0 text=x\n"
     "a stream index=0 text=y\n"
     "a stream index=0 text=z\n"
     "a stream index=0 text=u\n"
     "a stream index=0 text=x\n"
     "a stream index=0 text=y\n"
     "a stream index=0 text=z\n"
     "a stop index=0 length=8 stop=0 finish_reason=length\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=8\n"},

    {"loop, beside banned phrases, which are looked for in what is held back",
     with_loops({1, 3, 2, 0, true}, 0, "yu"), {"x", "y", "x", "y", "x", "y", "u", "v", "$"},
     "a start count=1 prompt_tokens=3 cached_tokens=0\n"
     "a stream index=0 text=x\n"
     "a stream index=0 text=v\n"
     "a stop index=0 length=3 stop=1 finish_reason=stop\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=3\n"},

    {"rewind, text that was held back comes when the sequence is full",
     with_banned("yz", false, 2), {"x", "y"},
     "a start count=1 prompt_tokens=3 cached_tokens=0\n"
     "a stream index=0 text=x\n"
     "a stream index=0 text=y\n"
     "a stop index=0 length=2 stop=0 finish_reason=length\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=2\n"},

    {"duplicate, the later of two equal texts is marked",
     with_dedupe("mark", 3, 1), {"xyx"},
     "a start count=3 prompt_tokens=3 cached_tokens=0\n"
     "a stream index=0 text=x\n"
     "a stop index=0 length=1 stop=0 finish_reason=length\n"
     "a stream index=1 text=y\n"
     "a stop index=1 length=1 stop=0 finish_reason=length\n"
     "a stream index=2 text=x\n"
     "a stop index=2 length=1 stop=0 finish_reason=length duplicate_of=0\n"
     "a done count=3 prompt_tokens=3 cached_tokens=0 completion_tokens=3\n"},

    {"duplicate, texts are not compared where the client does not ask",
     {"a", "abc", 2, "", {}, {}, {}, 1}, {"xx"},
     "a start count=2 prompt_tokens=3 cached_tokens=0\n"
     "a stream index=0 text=x\n"
     "a stop index=0 length=1 stop=0 finish_reason=length\n"
     "a stream index=1 text=x\n"
     "a stop index=1 length=1 stop=0 finish_reason=length\n"
     "a done count=2 prompt_tokens=3 cached_tokens=0 completion_tokens=2\n"},

    {"duplicate, it is retried from its prompt on",
     with_dedupe("again", 2, 1), {"xx", "y"},
     "a start count=2 prompt_tokens=3 cached_tokens=0\n"
     "a stream index=0 text=x\n"
     "a stop index=0 length=1 stop=0 finish_reason=length\n"
     "a stream index=1 text=x\n"
     "a again index=1\n"
     "a stream index=1 text=y\n"
     "a stop index=1 length=1 stop=0 finish_reason=length\n"
     "a done count=2 prompt_tokens=3 cached_tokens=0 completion_tokens=3\n"},

    {"score, the sum of the logprobs, and whether all tokens are the likeliest",
     scored({"de", "zd"}), {"", ""},
     "a start count=2 prompt_tokens=3 cached_tokens=0\n"
     "a score index=0 count=2 logprob=-1 greedy=true tokens=[\"d\",\"e\"]\n"
     "a score index=1 count=2 logprob=-1 greedy=false tokens=[\"z\",\"d\"]\n"
     "a done count=2 prompt_tokens=3 cached_tokens=0 completion_tokens=4\n"},

    {"score, a text of one token needs no step of its own",
     scored({"d"}), {""},
     "a start count=1 prompt_tokens=3 cached_tokens=0\n"
     "a score index=0 count=1 logprob=-0.5 greedy=true tokens=[\"d\"]\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=1\n"},

    {"rewind, the sum of logprobs is that of the tokens that remain",
     with_sum("yz"), {"x", "y", "z", "u", "$"},
     "a start count=1 prompt_tokens=3 cached_tokens=0\n"
     "a stream index=0 text=x\n"
     "a stream index=0 text=u\n"
     "a stop index=0 length=3 stop=1 finish_reason=stop logprob=-1.5\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=3\n"},
};
// clang-format on

//
// rewinds
//

static std::string banned_of(const sequence & s) {
    std::string text;
    for (const auto & [place, token] : s.sampling.banned) {
        text += (text.empty() ? "" : " ") + std::to_string(place) + ":" + std::to_string(token);
    }
    return text;
}

static void run_rewind_bans_the_first_token() {
    world     w;
    request & r = w.ask(with_banned("yz"));
    w.step("x");
    w.step("y");
    w.step("z");
    const sequence & s = r.sequences[0];
    expect_equal("1:25", banned_of(s), "banned (place:token)");
    expect_equal("1", std::to_string(s.generated.size()), "tokens of the sequence");
    expect_equal("1", std::to_string(s.sampling.n_restarts), "restarts of the sampler");
    // the token before the phrase is decoded again
    expect_equal("tokens 0: cells 1 from 3: 24*\na.0: row 0\n", w.step("u"));
}

// The phrase comes twice. Each rewind bans its first token at its place, and forgets the bans of earlier places.
static void run_rewinds_forget_places_that_are_passed() {
    world     w;
    request & r = w.ask(with_banned("yz"));
    w.step("y");
    w.step("z"); // 0:y
    expect_equal("0:25", banned_of(r.sequences[0]));
    w.step("x");
    w.step("y");
    w.step("z"); // 1:y; the ban of place 0 is forgotten
    expect_equal("1:25", banned_of(r.sequences[0]));
}

// At its first token a sequence has no token before the phrase but the prompt's last one.
static void run_rewind_to_the_prompt() {
    world w;
    w.ask(with_banned("yz"));
    w.step("y");
    w.step("z");
    expect_equal("tokens 0: cells 1 from 2: 3*\na.0: row 0\n", w.step("u"));
}

//
// duplicates
//

static void run_retries_are_bounded() {
    world w;
    w.ask(with_dedupe("again", 2, 1));
    w.step("xx");
    for (int i = 0; i < 8; i++) {
        w.step("x");
    }
    expect(w.requests.active.empty(), "a duplicate is retried for ever");
    const std::string events = w.take_events();
    size_t            n      = 0;
    for (size_t at = 0; (at = events.find("a again", at)) != std::string::npos; at++) {
        n++;
    }
    expect_equal("8", std::to_string(n), "retries");
    expect(events.find("duplicate_of=0") != std::string::npos, "the last retry is not marked as a duplicate");
}

static void run_cancelled_is_no_duplicate() {
    world     w;
    request & r = w.ask(with_dedupe("mark", 2, -1));
    w.step("xx");
    w.take_events();
    cancel_request(r, -1, "cancelled", w.updates);
    expect_equal("a stop index=0 length=1 stop=0 finish_reason=cancelled\n"
                 "a stop index=1 length=1 stop=0 finish_reason=cancelled\n",
                 w.take_events());
}

static void run_own_text_of_a_fork() {
    world w;
    w.ask(with_dedupe("again", 1, 3));
    w.step("x");
    w.step("y");
    w.extend("a", 1, 0, 1); // begins with "x"
    w.step("z");            // a.0 ends with "xyz"
    w.take_events();
    w.step("y");
    w.step("z"); // the fork's own text is "yz"
    expect_equal("a stream index=1 text=y\n"
                 "a stream index=1 text=z\n"
                 "a stop index=1 length=3 stop=0 finish_reason=length\n"
                 "a done count=2 prompt_tokens=3 cached_tokens=0 completion_tokens=5\n",
                 w.take_events());
}

// Two forks begin with "x"; the second one's own text is that of the first, so it begins with "x" again.
static void run_fork_keeps_its_beginning() {
    world     w;
    request & r = w.ask(with_dedupe("again", 1, 3));
    w.step("x");
    w.extend("a", 2, 0, 1);
    w.step("y");
    w.step("zuu");
    w.take_events();
    w.step("vv");
    expect_equal("a stream index=1 text=v\n"
                 "a stop index=1 length=3 stop=0 finish_reason=length\n"
                 "a stream index=2 text=v\n"
                 "a again index=2\n",
                 w.take_events());
    expect_equal("1", std::to_string(r.sequences[2].generated.size()), "tokens of the fork that is retried");
}

//
// ends of requests
//

static void run_cancel_one() {
    world     w;
    request & r = w.ask({"a", "abc", 2});
    w.step("xy");
    w.take_events();
    cancel_request(r, 1, "cancelled", w.updates);
    expect_equal("a stop index=1 length=1 stop=0 finish_reason=cancelled\n", w.take_events());
    expect_equal("a.0", w.running());
    w.step("$");
    expect_equal("a stop index=0 length=2 stop=1 finish_reason=stop\n"
                 "a done count=2 prompt_tokens=3 cached_tokens=0 completion_tokens=3\n",
                 w.take_events());
}

static void run_cancelled_score() {
    world     w;
    request & r = w.ask(scored({"def"}));
    w.step();
    w.take_events();
    cancel_request(r, -1, "cancelled", w.updates);
    expect_equal("a stop index=0 length=1 stop=0 finish_reason=cancelled\n", w.take_events());
}

static void run_failed_sample() {
    world w;
    w.ask({"a", "abc", 2});
    w.step("xy");
    w.take_events();
    const step_plan     plan = w.plan();
    std::vector<sample> samples(2);
    for (size_t i = 0; i < 2; i++) {
        samples[i].r     = plan.rows[i].r;
        samples[i].s     = plan.rows[i].s;
        samples[i].token = letters::token('x');
    }
    samples[0].error = command_error("engine_error", "no token is left");
    take_samples(samples, w.updates);
    expect_equal("a error code=engine_error message=no token is left\n", w.take_events());
    expect_equal("", w.running());
    expect_equal("0", std::to_string(w.requests.n_live()), "running sequences");
}

static void run_seen_tokens() {
    world w;
    w.ask(with_stop({"c"}));
    w.step("x");
    w.step("B"); // "bc": its "b" was sent
    const record * known = w.history.find("a");
    expect(known != nullptr, "the request is not in the history");
    std::string text;
    for (const llama_token token : known->seen(0)) {
        text += w.vocab.piece(token, true);
    }
    expect_equal("xb", text, "the text that can be continued");
}

void add_update_cases(std::vector<test_case> & cases) {
    for (const sampled_row & row : table) {
        cases.push_back({row.name, [&row] { row.run(); }});
    }
    const test_case others[] = {
        {"rewind, the first token of the phrase is banned at its place", run_rewind_bans_the_first_token},
        {"rewind, places that are passed are forgotten", run_rewinds_forget_places_that_are_passed},
        {"rewind, to the end of the prompt", run_rewind_to_the_prompt},
        {"duplicate, retries are bounded", run_retries_are_bounded},
        {"duplicate, a cancelled sequence is none", run_cancelled_is_no_duplicate},
        {"duplicate, of a fork only its own text is compared", run_own_text_of_a_fork},
        {"duplicate, a fork is retried from where it was forked", run_fork_keeps_its_beginning},
        {"cancel, one sequence of two", run_cancel_one},
        {"cancel, a scored text", run_cancelled_score},
        {"error, a sample that fails ends its request at once", run_failed_sample},
        {"history, the text that a client has can be continued", run_seen_tokens},
    };
    cases.insert(cases.end(), std::begin(others), std::end(others));
}
