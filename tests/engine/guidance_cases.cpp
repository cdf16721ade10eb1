// Guided sequences: two sets of cells, both rows in one step, whatever happens to the sequence. That each row is behind the
// right tokens is checked by the world in every step.
#include "cases.h"
#include "sampling/guidance.h"
#include "world.h"

#include <cmath>
#include <cstring>
#include <random>

static asked guided(const char * id, const char * prompt, const char * negative, int32_t n = 1) {
    asked a    = {id, prompt, n};
    a.guided   = true;
    a.negative = negative;
    return a;
}

// The tokens of the negative cells of a request's sequence.
static std::string negative_text(world & w, const char * id, size_t index = 0) {
    const sequence & s = w.requests.find(id)->sequences[index];
    std::string      text;
    for (const llama_token token : w.cells.tokens_of(s.negative->seq_id)) {
        text += w.vocab.piece(token, true);
    }
    return text;
}

// Tokens that a row bans are well defined at every scale.
static void run_banned_tokens() {
    const float no       = -INFINITY;
    const float prompt[] = {1.0f, 0.0f, no, 2.0f, no}, negative[] = {0.0f, 1.0f, 0.5f, no, no};
    const auto  sum = [](std::vector<double> logits) {
        double all = 0.0;
        for (const double x : logits) {
            all += std::exp(x);
        }
        return std::log(all);
    };
    const double p = sum({1.0, 0.0, 2.0}), n = sum({0.0, 1.0, 0.5});
    for (const double scale : {-1.0, 0.0, 0.5, 1.5, 3.0}) {
        const float * row         = guided_row({prompt, negative, 5, (float) scale});
        const double  only_prompt = scale > 1.0 ? 2.0 - p : (double) no;
        const double  wanted[]    = {-n + scale * (1.0 - p + n), 1.0 - n + scale * (-p - 1.0 + n), no,
                                     only_prompt, no};
        for (size_t i = 0; i < 5; i++) {
            const bool same = wanted[i] == row[i] || std::fabs(wanted[i] - row[i]) < 1e-5;
            expect(same, "token " + std::to_string(i) + " at scale " + std::to_string(scale) + " has " +
                             std::to_string(row[i]) + ", not " + std::to_string(wanted[i]));
        }
    }
    expect(guided_row({prompt, nullptr, 5, 1.0f}) == prompt, "a row without a negative one is itself");
}

static void run_plans() {
    world w;
    w.ask(guided("a", "abc", "yz", 2));
    expect_equal("a: begins, 0 tokens cached\n"
                 "tokens 0: cells 1 from 0: 25\n"
                 "tokens 1-2: cells 0 from 0: 1 2\n",
                 w.step());
    expect_equal("tokens 0: cells 2 from 2: 3*\n"
                 "tokens 1: cells 3 from 1: 26*\n"
                 "cells 4 share token 0\n"
                 "cells 5 share token 1\n"
                 "a.0: row 0, negative row 1\n"
                 "a.1: row 0, negative row 1\n",
                 w.step("xx"));
    w.step("xy"); // equal texts share both rows
    expect_equal("5", std::to_string(w.prefixes.tree.counts().n_used - 2), "cells beside the first tokens");
    expect_equal("tokens 0: cells 2 from 4: 24*\n"
                 "tokens 1: cells 3 from 3: 24*\n"
                 "tokens 2: cells 4 from 4: 25*\n"
                 "tokens 3: cells 5 from 3: 25*\n"
                 "a.0: row 0, negative row 1\n"
                 "a.1: row 2, negative row 3\n",
                 w.step("$$"));
    expect(w.requests.active.empty(), "it has ended");
}

static void run_slots() {
    world w; // of four slots
    w.ask(guided("a", "abc", "z", 3));
    w.ask({"b", "def"});
    w.step("x");
    w.step("xyz*");
    w.step("u*");
    expect_equal("a.0 b.0", w.running()); // a's second one would take a third and a fourth slot
    w.step("u$");
    w.step("v*");
    expect_equal("a.0 a.1", w.running());
}

static void run_last_token() {
    world w;
    w.ask(guided("a", "abc", ""));
    w.step();
    w.step("x");
    w.step("y");
    expect_equal("cx", negative_text(w, "a"));
}

static void run_rewind() {
    world w;
    asked a  = guided("a", "abc", "z");
    a.banned = {"xyz"};
    w.ask(a);
    for (const char * letters : {"", "u", "x", "y", "z"}) {
        w.step(letters);
    }
    w.step("p");
    w.step("q");
    expect_equal("zup", negative_text(w, "a"));
}

static void run_second() {
    world w;
    asked a       = guided("a", "abc", "z");
    a.then        = "tu";
    a.stop        = {"yx"};
    a.return_free = true;
    w.ask(a);
    for (const char * letters : {"", "p", "y", "x", "q"}) {
        w.step(letters);
    }
    w.step("r");
    expect(w.requests.active.empty(), "it has ended");
    expect_equal("a start count=1 prompt_tokens=3 cached_tokens=0\n"
                 "a stream index=0 text=p\n"
                 "a then index=0 length=3 stop=1 finish_reason=stop stop_text=yx\n"
                 "a stream index=0 text=q\n"
                 "a stream index=0 text=r\n"
                 "a stop index=0 length=5 stop=0 finish_reason=length free_length=3\n"
                 "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=5 negative_tokens=1\n",
                 w.take_events());
}

static void run_fork() {
    world w;
    w.ask(guided("a", "abc", "z"));
    for (const char * letters : {"", "u", "v", "w"}) {
        w.step(letters);
    }
    w.extend("a", 1, 0, 2);
    w.step("x"); // the prompt begins again
    w.step("xy");
    w.step("xy");
    expect_equal("zuvwxx", negative_text(w, "a", 0));
    expect_equal("zuvy", negative_text(w, "a", 1));
}

// A request that continues another one has its own negative prompt, in place of the first request's prompt.
static void run_continued() {
    world w;
    w.ask({"a", "abc"});
    w.step("u");
    w.step("v");
    w.step("$");
    asked b     = guided("b", "d", "yz");
    b.continues = {"a", 0, -1};
    w.ask(b);
    w.step();
    w.step("w");
    w.step("$");
    asked c     = guided("c", "e", "");
    c.continues = {"b", 0, -1};
    w.ask(c);
    expect_equal("abcuvdwe", [&] {
        std::string text;
        for (const llama_token token : w.requests.find("c")->command->prompt) {
            text += w.vocab.piece(token, true);
        }
        return text;
    }());
    w.step();
    w.step("x");
    w.step("y");
    expect_equal("cuvdwex", negative_text(w, "c"));
}

// One sequence has room for both of its sets of cells, to its last token.
static void run_room() {
    for (const char * negative : {"z", "", "zzzzzzzzzzzzzzzzzzzzzzzz"}) {
        world_params p;
        p.n_cells = 40;
        world w(p);
        w.ask(guided("a", "abcdef", negative, 2));
        for (int32_t i = 0; i < 200 && !w.requests.empty(); i++) {
            w.step("x*");
        }
        expect(w.requests.empty(), "it ends");
        const std::string events = w.take_events();
        const size_t      n      = std::max(strlen(negative), (size_t) 1);
        const std::string length = " length=" + std::to_string((40 - 6 - n) / 2) + " stop=0";
        expect(events.find("index=0" + length) != std::string::npos &&
                   events.find("index=1" + length) != std::string::npos,
               "both have all the room:\n" + events);
    }
}

static void run_too_long() {
    world_params p;
    p.n_cells = 40;
    world w(p);
    for (const size_t n : {size_t(32), size_t(33)}) {
        std::string found = "taken";
        try {
            w.ask(guided(n == 32 ? "a" : "b", "abcdef", std::string(n, 'z').c_str()));
        } catch (const command_error & e) {
            found = e.param + ": " + e.what();
        }
        expect_equal(
            n == 32 ? "taken"
                    : "negative_prompt: the prompt has 6 tokens and the negative prompt 33; with one more "
                      "each they exceed the context or the 40 cells",
            found);
    }
}

static void run_failed_step() {
    world w;
    w.ask(guided("a", "abc", "yz", 2));
    w.step();
    for (const char * letters : {"xx", "xy", "$$"}) {
        const step_plan failed = w.plan();
        w.plans.undo(failed, w.requests, w.prefixes.tree);
        w.step(letters);
    }
    expect(w.requests.active.empty(), "it has ended");
}

//
// any requests
//

static asked random_request(std::mt19937 & dice, int32_t i) {
    const auto one_of = [&](int32_t n) { return (int32_t) (dice() % (uint32_t) n); };
    const auto text   = [&](int32_t most) {
        return std::string("abcdefghabcdefghabcdefgh").substr(0, 1 + one_of(most));
    };
    asked a;
    a.id         = "r" + std::to_string(i);
    a.prompt     = text(20);
    a.n          = 1 + one_of(4);
    a.guided     = one_of(3) > 0;
    a.negative   = one_of(2) ? text(24) : "";
    a.max_tokens = 1 + one_of(12);
    a.cache      = one_of(4) > 0;
    a.priority   = one_of(2);
    a.banned     = one_of(2) ? std::vector<std::string>{"ba"} : std::vector<std::string>{};
    a.then       = one_of(3) ? "" : "cd";
    return a;
}

static std::string random_letters(std::mt19937 & dice) {
    std::string letters;
    for (int32_t i = 0; i < 20; i++) {
        letters += "aaabbcd$"[dice() % 8];
    }
    return letters + "*";
}

static void change_one(world & w, std::mt19937 & dice) {
    if (w.requests.active.empty()) {
        return;
    }
    request & r = *w.requests.active.back();
    switch (dice() % 4) {
        case 0: cancel_request(r, (int32_t) (dice() % 3), "cancelled", w.updates); break;
        case 1:
            if (!r.command->common.settings->second) {
                w.extend(r.id, 1, (int32_t) (dice() % r.sequences.size()));
            }
            break;
        case 2:  preempt_youngest(w.requests, w.prefixes.tree); break;
        default: {
            const step_plan failed = w.plan();
            w.plans.undo(failed, w.requests, w.prefixes.tree);
        }
    }
}

static void run_any(uint32_t seed) {
    std::mt19937 dice(seed);
    world_params p;
    p.n_cells    = seed % 2 ? 80 : 200;
    p.n_parallel = 1 + (int32_t) (seed % 6);
    p.n_ids      = 2 * p.n_parallel + 5;
    p.n_batch    = 2 * p.n_parallel + 4;
    p.recurrent  = seed % 5 == 0;
    p.ram_bytes  = seed % 3 ? 0 : 4096;
    world   w(p);
    int32_t n_asked = 0, n_idle = 0;
    for (int32_t step = 0; step < 400 && (n_asked < 10 || !w.requests.empty()); step++) {
        if (n_asked < 10 && dice() % 4 == 0) {
            w.ask(random_request(dice, n_asked++));
        }
        if (dice() % 8 == 0) {
            change_one(w, dice);
        }
        const step_plan plan = w.plan();
        n_idle               = plan.empty() && !w.requests.active.empty() ? n_idle + 1 : 0;
        expect(n_idle < 3, "the requests come to nothing, with seed " + std::to_string(seed));
        w.finish(plan, random_letters(dice));
    }
    expect(w.requests.empty(), "the requests do not end, with seed " + std::to_string(seed));
    expect_equal("0", std::to_string(w.prefixes.tree.counts().n_used - w.prefixes.tree.counts().n_idle),
                 "cells that no request has");
}

void add_guidance_cases(std::vector<test_case> & cases) {
    const std::vector<test_case> own = {
        {"guidance, tokens that a row bans", run_banned_tokens},
        {"guidance, both rows are of one step, and equal texts share them", run_plans},
        {"guidance, a sequence takes two slots", run_slots},
        {"guidance, without a negative prompt the last token stands for it", run_last_token},
        {"guidance, a rewind takes both sets of cells back", run_rewind},
        {"guidance, a second answer has both sets of cells", run_second},
        {"guidance, a fork has both sets of cells", run_fork},
        {"guidance, a text that is continued goes on behind the negative prompt", run_continued},
        {"guidance, a sequence has room for both sets of cells", run_room},
        {"guidance, prompts that leave no room are refused", run_too_long},
        {"guidance, a step that fails is planned again", run_failed_step},
        {"guidance, any requests end with all rows behind their tokens",
         [] {
             for (uint32_t seed = 0; seed < 300; seed++) {
                 run_any(seed);
             }
         }},
    };
    cases.insert(cases.end(), own.begin(), own.end());
}
