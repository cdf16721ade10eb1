// Phrases that a request makes likelier or rarer as a whole.
#pragma once

#include <llama.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

// As a request has it.
struct phrase_bias {
    std::string text;
    float       bias   = 0.0f;
    bool        finish = false; // once it has begun, it is written to its end
    bool        once   = false; // it counts until it stands in the text
};

// Phrases as tokens. Sequences with equal settings share them.
class phrase_biases {
  public:
    phrase_biases(const std::vector<phrase_bias> & phrases, const llama_vocab * vocab);

    // One way to write a phrase.
    struct spelling {
        std::vector<llama_token> tokens;
        std::vector<size_t>
               shorter; // by the number of tokens that stand there: the next smaller one that does
        float  bias;
        bool   finish;
        bool   once;
        size_t phrase; // its place in the request's list
    };

    std::vector<spelling> spellings;
    size_t                n_phrases;
};

// How far the phrases stand at the end of one sequence's text.
class phrase_progress {
  public:
    explicit phrase_progress(
        std::shared_ptr<const phrase_biases> phrases = nullptr); // nullptr: there are none

    void accept(llama_token token);

    // What is added to the logits of the next token: tokens in ascending order, each once.
    const std::vector<llama_logit_bias> & biases() const { return next; }
    float                                 of(llama_token token) const; // 0: nothing

  private:
    void list_next();

    std::shared_ptr<const phrase_biases> phrases;
    std::vector<size_t>                  n_there; // by spelling: tokens of it at the end of the text
    std::vector<bool>                    written; // by phrase: it stands in the text
    std::vector<llama_logit_bias>        next;
};
