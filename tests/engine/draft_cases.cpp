// Guesses at the next tokens: they change how many tokens a step makes, and nothing else. That each row is behind the right
// tokens is checked by the world in every step.
#include "cases.h"
#include "world.h"

#include <algorithm>
#include <random>

static asked drafting(const char * id, const std::string & prompt, int32_t n = 1) {
    asked a = {id, prompt, n};
    a.draft = 16;
    return a;
}

static void run_plans() {
    world w;
    w.ask(drafting("a", "abcdefgabc"));
    w.step("a");
    w.step("b");
    w.step("c");
    w.take_events();
    expect_equal("tokens 0-7: cells 1 from 12: 3* 4* 5* 6* 7* 1* 2* 3*\n"
                 "a.0: row 0, guesses from row 1\n",
                 w.step("dex"));
    expect_equal("a stream index=0 text=d\na stream index=0 text=e\na stream index=0 text=x\n",
                 w.take_events());
    expect_equal("15", std::to_string(w.prefixes.tree.counts().n_used),
                 "cells: guesses that were wrong have none");
    expect_equal("tokens 0: cells 1 from 15: 24*\na.0: row 0\n", w.step("$"));
    const auto & tree = w.prefixes.tree;
    expect_equal("15",
                 std::to_string(tree.find(letters::tokens("abcdefgabcabcdefg"), 17, by_tokens, 0).length),
                 "of the text as it is");
}

static void run_end_amid() {
    world w;
    asked a = drafting("a", "abcdefgabc");
    a.stop  = {"de"};
    w.ask(a);
    for (const char * letters : {"a", "b", "c", "de"}) {
        w.step(letters);
    }
    expect(w.requests.active.empty(), "it has ended");
    const auto match = w.prefixes.tree.find(letters::tokens("abcdefgabcabcdefg"), 17, by_tokens, 0);
    expect_equal("14", std::to_string(match.length), "cells of what was drawn before its end");
}

static void run_siblings() {
    world w;
    w.ask(drafting("a", "zz", 2));
    for (const char * letters : {"pq", "ab", "bc", "cd"}) {
        w.step(letters);
    }
    w.step("da");
    w.step("eb");
    expect_equal("tokens 0: cells 1 from 7: 5*\n"
                 "tokens 1: cells 2 from 7: 2*\n"
                 "a.0: row 0\n"
                 "a.1: row 1\n",
                 w.step("fc"));
    expect_equal("tokens 0: cells 1 from 8: 6*\n"
                 "tokens 1-4: cells 2 from 8: 3* 4* 5* 6*\n"
                 "a.0: row 0\n"
                 "a.1: row 1, guesses from row 2\n",
                 w.plan().to_string());
}

static void run_shared_rows() {
    world w;
    w.ask(drafting("a", "abcdefgabc", 2));
    for (const char * letters : {"aa", "bb", "cc"}) {
        w.step(letters);
    }
    w.take_events();
    std::string shared;
    for (int32_t i = 0; i < 8; i++) {
        shared += "cells 2 share token " + std::to_string(i) + "\n";
    }
    expect_equal("tokens 0-7: cells 1 from 12: 3* 4* 5* 6* 7* 1* 2* 3*\n" + shared +
                     "a.0: row 0, guesses from row 1\n"
                     "a.1: row 0, guesses from row 1\n",
                 w.step("ddexfz"));
    expect_equal("a stream index=0 text=d\n"
                 "a stream index=1 text=d\n"
                 "a stream index=0 text=e\n"
                 "a stream index=1 text=x\n"
                 "a stream index=0 text=f\n"
                 "a stream index=0 text=z\n",
                 w.take_events());
    expect_equal("16", std::to_string(w.prefixes.tree.counts().n_used),
                 "cells: d is shared, e and f are not");
    expect_equal("tokens 0: cells 1 from 16: 26*\n"
                 "tokens 1: cells 2 from 14: 24*\n"
                 "a.0: row 0\n"
                 "a.1: row 1\n",
                 w.step("gy"));
}

// Two clients' keys: what one has got says nothing of what another one gets, by no time either.
static void run_earlier() {
    world      w;
    const auto fourth_step = [&](const char * id, const char * client, const char * prompt,
                                 const char * drawn) {
        asked a      = drafting(id, prompt);
        a.client     = client;
        a.max_tokens = 6;
        w.ask(a);
        for (const char * letter : {"c", "d", "e"}) {
            w.step(letter);
        }
        return w.step(drawn).find("guesses") != std::string::npos;
    };
    expect(!fourth_step("a", "one", "zzab", "f"), "there is no other answer");
    w.step("g");
    w.step("h");
    expect(!fourth_step("b", "two", "zzab", "f"), "another client's answers are not looked at");
    w.step("x");
    w.step("y");
    expect(!fourth_step("c", "one", "xxyy", "f"), "nor those to other prompts");
    w.step("x");
    w.step("y");
    expect(fourth_step("d", "one", "zzac", "fx"), "its own to a prompt that begins alike");
}

static void run_failed_step() {
    world w;
    w.ask(drafting("a", "abcdefgabc"));
    for (const char * letters : {"a", "b", "c"}) {
        w.step(letters);
    }
    const step_plan plan = w.plan();
    w.plans.undo(plan, w.requests, w.prefixes.tree);
    expect_equal("12", std::to_string(w.requests.find("a")->sequences[0].cells->n_past()));
    expect_equal(plan.to_string(), w.step("dex"));
}

static void run_choice() {
    guess_rates          rates;
    step_curve           curve;
    const draft_evidence many = {draft_source::prompt, 32, 0}, few = {draft_source::prompt, 3, 0};

    const auto chosen = [&](int32_t n_room, double t_share) {
        return choose_drafts({{8, many, &rates}, {8, few, &rates}}, curve, 2, 2, n_room, t_share);
    };
    const auto shown = [](const std::vector<int32_t> & n) {
        return std::to_string(n[0]) + " " + std::to_string(n[1]);
    };
    const auto measure = [&](int32_t n_tokens, int64_t t_us, int64_t n_times = 2) {
        for (int64_t i = 0; i < n_times; i++) {
            curve.add(n_tokens, t_us);
        }
    };
    measure(2, 1000);
    expect_equal("8 8", shown(chosen(99, HUGE_VAL)), "while nothing is known of what rows cost");
    expect_equal("3 0", shown(chosen(3, HUGE_VAL)), "the likelier ones first");
    measure(18, 90000, 1);
    expect_equal("8 8", shown(chosen(99, HUGE_VAL)), "the first step of a size tells nothing");
    measure(18, 9000, 1);
    expect_equal("0 0", shown(chosen(99, HUGE_VAL)), "rows that cost as much as steps");
    measure(2, 1000, 10000);
    expect_equal("4 0", shown(chosen(99, HUGE_VAL)), "what was measured long ago is tried again");
    measure(18, 9000);
    measure(6, 1100);
    expect_equal("4 0", shown(chosen(99, HUGE_VAL)), "as many as are cheap");
    expect_equal("0 0", shown(chosen(99, 1.02)), "others may not wait for them");
    step_curve small;
    const auto gains = [&](int64_t t_us) {
        for (int32_t i = 0; i < 70; i++) {
            small.add(5, t_us);
        }
        return choose_drafts({{4, few, &rates}}, small, 1, 1, 4, HUGE_VAL)[0];
    };
    for (int32_t i = 0; i < 4; i++) {
        small.add(1, 1000);
    }
    expect_equal("4", std::to_string(gains(1100)), "a clear gain");
    expect_equal("0", std::to_string(gains(1800)), "for a small one plain steps are measured, too");
    small.add(1, 1000);
    small.add(5, 1800);
    expect_equal("2", std::to_string(choose_drafts({{4, few, &rates}}, small, 1, 1, 4, HUGE_VAL)[0]));
    step_curve steep;
    for (const int32_t n : {8, 8, 9, 9}) {
        steep.add(n, 1000 * n);
    }
    expect_equal("12.5", std::to_string(steep.at(16) / 1000).substr(0, 4),
                 "above what is known half as steep as that is");
    for (int32_t i = 0; i < 20; i++) {
        rates.add(many, 4, 0);
    }
    expect_equal("0 2", shown(chosen(2, HUGE_VAL)), "what was wrong is tried less");
    for (int32_t i = 0; i < 2000; i++) {
        rates.fade();
    }
    expect_equal("2 0", shown(chosen(2, HUGE_VAL)), "later it is tried again");
    const auto both = choose_drafts({{8, few, &rates, 1}, {8, few, &rates, 3}}, curve, 2, 4, 2, HUGE_VAL);
    expect_equal("0 2", shown(both), "a row that three sequences share makes more tokens");
    const draft_evidence keys = {draft_source::grammar, 0, 3};
    expect(rates.chance(keys, 2) > 0.8 && rates.chance(keys, 3) < 0.5, "the last one may be a longer one");
    expect(rates.expected(keys, 4) > rates.expected(few, 4), "a grammar's are likelier");
}

//
// a draft model
//

// Guesses the letters that follow in the alphabet, and notes what it was asked.
class alphabet : public draft_maker {
  public:
    std::vector<std::vector<llama_token>> guess(const std::vector<draft_text> & texts, int32_t n_most,
                                                double) override {
        std::vector<std::vector<llama_token>> made;
        for (const draft_text & text : texts) {
            asked += std::to_string(text.owner.second) + ": " + std::to_string(n_most) + " behind " +
                     std::to_string(text.size()) + "\n";
            made.emplace_back();
            for (int32_t i = 1; i <= n_most; i++) {
                made.back().push_back(text.at(text.size() - 1) + i);
            }
        }
        return made;
    }
    double t_round_us() const override { return t_round; }

    std::string asked;
    double      t_round = 0;
};

static void run_model() {
    alphabet     letters;
    world_params p;
    p.drafts = &letters;
    world w(p);
    asked a = drafting("a", "gfedcbxy");
    a.draft = 3;
    w.ask(a);
    w.step("p");
    expect_equal("tokens 0-3: cells 1 from 8: 16* 17* 18* 19*\na.0: row 0, guesses from row 1\n",
                 w.step("qrx"), "the letters behind p");
    expect_equal("0: 3 behind 9\n", letters.asked);
    w.step("g");
    w.step("f");
    w.step("e");
    letters.asked.clear();
    expect_equal("tokens 0-3: cells 1 from 14: 5* 4* 3* 2*\na.0: row 0, guesses from row 1\n", w.step("z"));
    expect_equal("", letters.asked, "what texts say is not asked");
    w.ask(drafting("b", "mno"));
    w.step("pq");
    letters.asked.clear();
    w.step("st");
    expect_equal("", letters.asked, "another request does not wait for it");
}

static void run_rounds() {
    guess_rates          rates;
    step_curve           curve;
    const draft_evidence why = {draft_source::model, 0, 0};
    for (int32_t i = 0; i < 2; i++) {
        curve.add(1, 1000);
        curve.add(9, 1200);
    }
    const auto rounds = [&](double t_round) { return choose_rounds(rates, curve, 1, 1, 1, t_round, 8).n; };
    expect(rounds(10) > 2 && rounds(150) > 0 && rounds(150) < rounds(10), "as many as they cost");
    expect_equal("0", std::to_string(rounds(900)), "a model that is as slow as the large one");
    double t_little = 0; // with it one guess is just not worth the asking
    while (rounds(t_little) > 0) {
        t_little += 5;
    }
    const double made = 1.0 + rates.chance(why, 0);
    expect(made / (curve.at(2) + t_little) > 1.0 / curve.at(1), "what gains too little is not asked for");
    for (int32_t i = 0; i < 40; i++) {
        rates.add(why, 1, 0);
    }
    expect_equal("0", std::to_string(rounds(50)), "guesses that are wrong");
    for (int32_t i = 0; i < 2000; i++) {
        rates.fade();
    }
    expect(rounds(50) > 0, "later it is asked again");
}

//
// the law
//

static uint32_t mixed(uint32_t a, uint32_t b) {
    a = (a ^ b) * 0x9e3779b1u;
    return a ^ (a >> 15);
}

// The next token of a text that repeats itself and others, and now and then does not.
static llama_token drawn(uint32_t seed, const request & r, const sequence & s) {
    const auto & tokens = s.generated.empty() ? r.command->prompt : s.generated;
    uint32_t     hash   = mixed(seed, (uint32_t) s.sampling.n_restarts);
    for (size_t i = tokens.size() - std::min(tokens.size(), (size_t) 2); i < tokens.size(); i++) {
        hash = mixed(hash, (uint32_t) tokens[i]);
    }
    uint32_t own = mixed(mixed(seed, (uint32_t) s.index), (uint32_t) s.generated.size());
    own          = mixed(own, (uint32_t) r.id[0]);
    if (own % 11 == 0) {
        hash = own / 11 % 40 == 0 ? hash : own;
    }
    if (own % 97 == 0) {
        return 0;
    }
    llama_token token  = (llama_token) (1 + hash / 5 % 6);
    const auto  banned = [&](const std::pair<size_t, llama_token> & one) {
        return one.first == s.generated.size() && one.second == token;
    };
    while (std::any_of(s.sampling.banned.begin(), s.sampling.banned.end(), banned)) {
        token = token % 6 + 1;
    }
    return token;
}

static asked random_request(std::mt19937 & dice, int32_t i) {
    asked a = {std::string(1, (char) ('a' + i)), "", 1 + (int32_t) (dice() % 3)};
    for (size_t n = 1 + dice() % 20; n > 0; n--) {
        a.prompt += (char) ('a' + dice() % 6);
    }
    a.client                              = std::string(1, (char) ('A' + dice() % 2));
    a.max_tokens                          = 1 + (int32_t) (dice() % 40);
    a.min_tokens                          = dice() % 4 ? 0 : 5;
    a.priority                            = dice() % 4 ? 0 : 1;
    a.cache                               = dice() % 5 != 0;
    a.certainty                           = dice() % 4 == 0;
    a.logprobs                            = dice() % 2 == 0;
    a.return_ids                          = dice() % 3 == 0;
    a.returns_stop                        = dice() % 3 == 0;
    const std::vector<std::string> some[] = {{}, {}, {"ab"}, {"cd", "fe"}, {"abc"}};
    a.stop                                = some[dice() % 5];
    a.banned                              = some[dice() % 5];
    if (dice() % 5 == 0) {
        a.then        = "ab";
        a.then_stop   = some[dice() % 5];
        a.return_free = true;
    }
    return a;
}

// What clients have got: of each sequence its text, its tokens, and how it ended.
static std::map<std::string, std::string> told(uint32_t seed, int32_t n_draft, int64_t & n_steps,
                                               int64_t & n_right, draft_maker * drafts = nullptr) {
    std::mt19937 dice(seed);
    world_params p;
    p.n_cells    = seed % 2 ? 120 : 400;
    p.n_parallel = 1 + (int32_t) (seed % 6);
    p.n_batch    = p.n_parallel + 1 + (int32_t) (seed % 30);
    p.recurrent  = seed % 11 == 0;
    p.ram_bytes  = seed % 3 ? 0 : 4096;
    p.drafts     = drafts;
    world w(p);
    w.draws = [seed](const request & r, const sequence & s) { return drawn(seed, r, s); };
    for (int32_t i = 0; i < 6; i++) {
        asked a = random_request(dice, i);
        a.draft = n_draft;
        w.ask(a);
    }
    std::map<std::string, std::string> of;
    for (int32_t step = 0; step < 2000 && !w.requests.empty(); step++) {
        const step_plan plan = w.plan();
        for (const planned_rows & row : plan.rows) {
            expect(n_draft > 0 || row.i_drafts < 0, "guesses that nobody wants");
        }
        w.finish(plan, "");
        n_steps++;
        for (const auto & r : w.requests.active) {
            n_right += r->drafts.n_right;
        }
        size_t begin = 0;
        for (size_t end; (end = w.out.find('\n', begin)) != std::string::npos; begin = end + 1) {
            auto event = nlohmann::ordered_json::parse(w.out.substr(begin, end - begin));
            if (event.contains("index")) {
                std::string & text = of[event["id"].get<std::string>() + "." + event["index"].dump()];
                for (const char * name :
                     {"text", "tokens", "logprobs", "event", "finish_reason", "stop_text"}) {
                    text +=
                        event.contains(name) && (event["event"] != "stream" || name != std::string("event"))
                            ? event[name].dump() + " "
                            : "";
                }
            }
        }
        w.out.clear();
    }
    expect(w.requests.empty(), "the requests do not end, with seed " + std::to_string(seed));
    expect_equal("0", std::to_string(w.prefixes.tree.counts().n_used - w.prefixes.tree.counts().n_idle),
                 "cells that no request has");
    return of;
}

static void run_law() {
    int64_t  n_plain = 0, n_drafted = 0, n_right = 0, n_none = 0;
    alphabet letters;
    for (uint32_t seed = 0; seed < 400; seed++) {
        const auto plain = told(seed, 0, n_plain, n_none);
        const auto other = told(seed, 16, n_drafted, n_right, seed % 2 ? nullptr : &letters);
        for (const auto & [name, text] : plain) {
            const auto found = other.find(name);
            expect_equal(text, found == other.end() ? "nothing" : found->second,
                         (name + " with seed " + std::to_string(seed)).c_str());
        }
    }
    expect(!letters.asked.empty(), "the model is asked, too");
    expect(n_right > 1000 && n_drafted < n_plain, "guesses are right, and save steps");
}

void add_draft_cases(std::vector<test_case> & cases) {
    const std::vector<test_case> own = {
        {"drafts, what stood behind the same tokens before is a row of the step", run_plans},
        {"drafts, a text that ends amid its guesses keeps no cell of them", run_end_amid},
        {"drafts, a sequence guesses what another one has said", run_siblings},
        {"drafts, earlier answers of the same client", run_earlier},
        {"drafts, sequences that share a row guess together", run_shared_rows},
        {"drafts, a step that fails is planned again", run_failed_step},
        {"drafts, as many as make the most tokens a second", run_choice},
        {"drafts, a draft model is asked where texts say nothing", run_model},
        {"drafts, as many of a draft model as are worth its time", run_rounds},
        {"drafts, whatever is asked for, the texts are those without them", run_law},
    };
    cases.insert(cases.end(), own.begin(), own.end());
}
