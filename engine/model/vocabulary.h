// The texts of tokens: of a model's vocabulary, or of a small one in a test; and how far two lists of tokens have the
// same text.
#pragma once

#include "llama.h"

#include <cstdint>
#include <string>
#include <vector>

class vocabulary {
  public:
    virtual ~vocabulary() = default;

    // The bytes of a token. special: those of control tokens, too.
    virtual std::string piece(llama_token token, bool special) const = 0;
    // Whether a text ends with this token.
    virtual bool is_end(llama_token token) const = 0;
    // Whether it is no text: its name may be text, too, which then is other tokens.
    virtual bool is_control(llama_token token) const = 0;
    // A text that stands in the middle of another one: without a token for the beginning, and without control tokens.
    virtual std::vector<llama_token> tokenize(const std::string & text) const = 0;

    void append(std::vector<llama_token> & tokens, const std::string & text) const {
        const std::vector<llama_token> more = tokenize(text);
        tokens.insert(tokens.end(), more.begin(), more.end());
    }
};

class model_vocabulary final : public vocabulary {
  public:
    explicit model_vocabulary(const llama_vocab * vocab) : vocab(vocab) {}

    std::string              piece(llama_token token, bool special) const override;
    bool                     is_end(llama_token token) const override;
    bool                     is_control(llama_token token) const override;
    std::vector<llama_token> tokenize(const std::string & text) const override;

  private:
    const llama_vocab * const vocab;
};

// How many of the bytes at a healed prompt's end the first n tokens have not spelled yet.
size_t n_not_spelled(size_t n_bytes, const std::vector<llama_token> & tokens, size_t n,
                     const vocabulary & vocab);
// Adds tokens for the bytes at a healed prompt's end that these tokens do not spell.
void spell_prompt(const std::string & bytes, std::vector<llama_token> & tokens, const vocabulary & vocab);

// The number of first tokens that two lists have in common; at most n_max.
int32_t common_length(const std::vector<llama_token> & a, const std::vector<llama_token> & b,
                      int32_t n_max = INT32_MAX);

// The first `length` tokens of one list stand for the first `n_matched` tokens of another one. The two numbers differ
// where the same text is split otherwise: sampled tokens are often not the tokenizer's own split.
struct token_match {
    int32_t length    = 0;
    int32_t n_matched = 0;
};

enum match_by { by_tokens, by_text };

// How many of the first n_held tokens of `held` stand for how many of the first n_max of `tokens`. By text: up to the
// last position where both lists have a border between tokens after the same bytes; a control token is only equal to
// itself.
token_match match_tokens(const std::vector<llama_token> & held, int32_t n_held,
                         const std::vector<llama_token> & tokens, int32_t n_max, match_by by,
                         const vocabulary & vocab);
