// How llama-server's drafters that need no model do on recorded texts: a line in, a line out for each.
//
// In: {"prompt": [tokens], "answer": [tokens]}. Out: {KIND: {"steps", "guessed", "right"}}, where a step takes all guesses
// that are right and one token more.
#include "speculative.h"

#include <nlohmann/json.hpp>

#include <cstdio>
#include <iostream>
#include <string>

using nlohmann::json;

static json run(const std::string & kind, const llama_tokens & prompt, const llama_tokens & answer) {
    common_params_speculative params;
    params.types = common_speculative_types_from_names({kind});
    const common_speculative_ptr drafter(common_speculative_init(params, 1));
    llama_tokens                 text    = prompt, guesses;
    int64_t                      n_steps = 0, n_guessed = 0, n_right = 0;
    common_speculative_begin(drafter.get(), 0, prompt);
    for (size_t at = 0; at < answer.size();) {
        const llama_token last = answer[at++]; // the one that the step before has drawn
        n_steps++;
        guesses.clear();
        auto & asked   = common_speculative_get_draft_params(drafter.get(), 0);
        asked.drafting = true;
        asked.n_max    = -1;
        asked.pos0     = (llama_pos) text.size();
        asked.id_last  = last;
        asked.prompt   = &text;
        asked.result   = &guesses;
        common_speculative_draft(drafter.get());
        text.push_back(last);
        size_t n = 0;
        while (n < guesses.size() && at < answer.size() && guesses[n] == answer[at]) {
            text.push_back(answer[at++]);
            n++;
        }
        if (!guesses.empty()) {
            common_speculative_accept(drafter.get(), 0, (uint16_t) n);
        }
        n_guessed += (int64_t) guesses.size();
        n_right += (int64_t) n;
    }
    return {{"steps", n_steps}, {"guessed", n_guessed}, {"right", n_right}};
}

int main() {
    for (std::string line; std::getline(std::cin, line);) {
        const json         given  = json::parse(line);
        const llama_tokens prompt = given["prompt"], answer = given["answer"];
        json               all = json::object();
        for (const char * const kind :
             {"ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"}) {
            all[kind] = run(kind, prompt, answer);
        }
        std::cout << all.dump() << std::endl;
    }
}
