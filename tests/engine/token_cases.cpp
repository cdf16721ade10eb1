// Prompts that are cut.
#include "cases.h"
#include "model/token_cut.h"
#include "world.h"

static std::string cut(const std::string & text, size_t n_head, size_t n_room) {
    const letters            vocab;
    std::vector<llama_token> tokens = letters::tokens(text);
    const size_t             n_cut  = cut_tokens(tokens, n_head, n_room, vocab);
    std::string              left;
    for (const llama_token token : tokens) {
        left += vocab.piece(token, true);
    }
    return std::to_string(n_cut) + " " + left;
}

static void run_cuts() {
    expect_equal("0 abcdefgh", cut("abcdefgh", 0, 8), "what fits");
    expect_equal("2 cdefghi", cut("abcdefghi", 0, 8), "in steps of a quarter");
    expect_equal("2 adefghi", cut("abcdefghi", 1, 8), "behind the head");
    expect_equal("4 abcdijkl", cut("abcdefghijkl", 4, 8), "a head that is half of the room");
    expect_equal("4 abcdijkl", cut("abcdefghijkl", 12, 8), "a head that is larger than the room");
    expect_equal("11 l", cut("abcdefghijkl", 5, 1), "a room of one");
}

void add_token_cases(std::vector<test_case> & cases) {
    cases.push_back({"a prompt is cut behind its head", run_cuts});
}
