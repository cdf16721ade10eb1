// Sampled tokens -> update, where the client wants the ids of all tokens: which ids come with which text, and what stands
// in the history. $ is the end-of-text token; a is token 1, b is 2, and so on; A is "ab", B is "bc".
#include "cases.h"
#include "world.h"

static asked with_ids(std::vector<std::string> stop = {}, const char * banned = nullptr) {
    asked a      = {"a", "abc"};
    a.return_ids = true;
    a.stop       = std::move(stop);
    if (banned) {
        a.banned = {banned};
    }
    return a;
}

static asked with_stop_token(char letter, bool returned) {
    asked a        = with_ids();
    a.stop_tokens  = {letters::token(letter)};
    a.returns_stop = returned;
    return a;
}

static asked with_stop_text(std::string stop) {
    asked a        = with_ids({std::move(stop)});
    a.returns_stop = true;
    return a;
}

// clang-format off
static const sampled_row table[] = {
    {"ids, the end token is one of them",
     with_ids(), {"x", "$"},
     "a start count=1 prompt_tokens=3 cached_tokens=0 prompt_token_ids=[1,2,3]\n"
     "a stream index=0 text=x token_ids=[24]\n"
     "a stream index=0 text= token_ids=[0]\n"
     "a stop index=0 length=2 stop=1 finish_reason=stop\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=2\n"},

    {"ids, those of a stop string come, and wait while it is not decided",
     with_ids({"yz"}), {"x", "y", "z"},
     "a start count=1 prompt_tokens=3 cached_tokens=0 prompt_token_ids=[1,2,3]\n"
     "a stream index=0 text=x token_ids=[24]\n"
     "a stream index=0 text= token_ids=[25,26]\n"
     "a stop index=0 length=3 stop=1 finish_reason=stop stop_text=yz\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=3\n"},

    {"ids, a token that a stop string cuts is whole",
     with_ids({"c"}), {"x", "B"},
     "a start count=1 prompt_tokens=3 cached_tokens=0 prompt_token_ids=[1,2,3]\n"
     "a stream index=0 text=x token_ids=[24]\n"
     "a stream index=0 text=b token_ids=[32]\n"
     "a stop index=0 length=2 stop=1 finish_reason=stop stop_text=c\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=2\n"},

    {"ids, those of a banned phrase are never sent",
     with_ids({}, "yz"), {"x", "y", "z", "u", "$"},
     "a start count=1 prompt_tokens=3 cached_tokens=0 prompt_token_ids=[1,2,3]\n"
     "a stream index=0 text=x token_ids=[24]\n"
     "a stream index=0 text=u token_ids=[21]\n"
     "a stream index=0 text= token_ids=[0]\n"
     "a stop index=0 length=3 stop=1 finish_reason=stop\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=3\n"},

    {"ids, a stop token ends the text and is named",
     with_stop_token('y', false), {"x", "y"},
     "a start count=1 prompt_tokens=3 cached_tokens=0 prompt_token_ids=[1,2,3]\n"
     "a stream index=0 text=x token_ids=[24]\n"
     "a stream index=0 text= token_ids=[25]\n"
     "a stop index=0 length=2 stop=1 finish_reason=stop stop_token=25\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=2\n"},

    {"ids, the text of a stop token is returned if that is wanted",
     with_stop_token('y', true), {"x", "y"},
     "a start count=1 prompt_tokens=3 cached_tokens=0 prompt_token_ids=[1,2,3]\n"
     "a stream index=0 text=x token_ids=[24]\n"
     "a stream index=0 text=y token_ids=[25]\n"
     "a stop index=0 length=2 stop=1 finish_reason=stop stop_token=25\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=2\n"},

    {"ids, a stop string is returned if that is wanted",
     with_stop_text("yz"), {"x", "y", "z"},
     "a start count=1 prompt_tokens=3 cached_tokens=0 prompt_token_ids=[1,2,3]\n"
     "a stream index=0 text=x token_ids=[24]\n"
     "a stream index=0 text=yz token_ids=[25,26]\n"
     "a stop index=0 length=3 stop=1 finish_reason=stop stop_text=yz\n"
     "a done count=1 prompt_tokens=3 cached_tokens=0 completion_tokens=3\n"},
};
// clang-format on

static std::string spelled(const std::vector<llama_token> & tokens, const letters & vocab) {
    std::string text;
    for (const llama_token token : tokens) {
        text += (text.empty() ? "" : " ") + vocab.piece(token, true);
    }
    return text;
}

static void run_history() {
    world w;
    w.ask(with_ids({"c"}));
    w.step("x");
    w.step("B"); // "bc": its "b" was sent
    const record * known = w.history.find("a");
    expect(known != nullptr, "the request is not in the history");
    expect_equal("x bc", spelled(known->list(1), w.vocab), "the tokens as drawn");
    expect_equal("x b", spelled(known->seen(0), w.vocab), "the tokens of the text");
}

// The fork rewinds to a token that it was made with: what it draws in its place is told.
static void run_rewound_fork() {
    world w;
    w.ask(with_ids({}, "xyz"));
    w.step("x");
    w.step("y");
    w.extend("a", 1, 0, 2); // begins with "xy"
    w.step("u");
    w.step("$z"); // a.0 ends; the fork has "xyz"
    w.take_events();
    w.step("v");
    w.step("$");
    expect_equal("a stream index=1 text=v token_ids=[22]\n"
                 "a stream index=1 text= token_ids=[0]\n"
                 "a stop index=1 length=2 stop=1 finish_reason=stop\n"
                 "a done count=2 prompt_tokens=3 cached_tokens=0 completion_tokens=6\n",
                 w.take_events());
}

// A stop string holds "xy" back, of which the client gets all with the text: of the fork that begins with it as of the first
// sequence, and of one that begins there once the first one's text has been sent.
static void run_forks_of_held_text() {
    world w;
    asked a     = with_ids({"xyz"});
    a.logprobs  = true;
    a.entropies = true;
    w.ask(a);
    w.step("w");
    w.step("x");
    w.step("y");
    w.take_events();
    w.extend("a", 1, 0); // begins with "wxy"
    w.step("u");
    w.extend("a", 1, 0, 3); // so does this one
    w.step("$$v");
    w.step("$");
    expect_equal(
        "a stream index=0 text=xyu tokens=[\"x\",\"y\",\"u\"] token_ids=[24,25,21] entropies=[24,25,21]\n"
        "a stream index=0 text= tokens=[\"\"] token_ids=[0] entropies=[0]\n"
        "a stop index=0 length=5 stop=1 finish_reason=stop\n"
        "a stream index=1 text=xy tokens=[\"x\",\"y\",\"\"] token_ids=[24,25,0] entropies=[24,25,0]\n"
        "a stop index=1 length=4 stop=1 finish_reason=stop\n"
        "a stream index=2 text=xyv tokens=[\"x\",\"y\",\"v\"] token_ids=[24,25,22] entropies=[24,25,22]\n"
        "a stream index=2 text= tokens=[\"\"] token_ids=[0] entropies=[0]\n"
        "a stop index=2 length=5 stop=1 finish_reason=stop\n"
        "a done count=3 prompt_tokens=3 cached_tokens=0 completion_tokens=8\n",
        w.take_events());
}

void add_id_cases(std::vector<test_case> & cases) {
    for (const sampled_row & row : table) {
        cases.push_back({row.name, [&row] { row.run(); }});
    }
    cases.push_back({"ids, a fork that rewinds before its beginning", run_rewound_fork});
    cases.push_back({"ids, forks tell of text that was held back", run_forks_of_held_text});
    cases.push_back({"history, tokens as drawn, and those of the text", run_history});
}
