// A prompt in parts: in some of them the texts of control tokens are those tokens, in the others they are plain text.
#pragma once

#include "util/word_finder.h"

#include "llama.h"

#include <string>
#include <vector>

struct prompt_part {
    std::string text;
    bool        special = false; // texts of control tokens become these tokens
};
using prompt_parts = std::vector<prompt_part>;

// The parts' text as one.
std::string joined_text(const prompt_parts & parts);

// The parts' tokens: text between two control tokens is one text, of whatever parts, as where a whole prompt is tokenized.
// begins: with the tokens that the model's tokenizer adds to a text.
std::vector<llama_token> tokenize_parts(const prompt_parts & parts, const llama_vocab * vocab, bool begins);

// A text in parts: names of control tokens, which are special, and the text between them, which is not.
prompt_parts split_at(const word_finder & names, const std::string & text);

// The tokens of parts that stand behind other text.
std::vector<llama_token> tokenize_behind(const prompt_parts & parts, const llama_vocab * vocab);

// The texts of the model's control tokens, which a tokenizer that parses them turns into these tokens.
const std::vector<std::string> & control_texts(const llama_vocab * vocab);
