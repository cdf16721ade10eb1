// The prompts of commands: a text, parts of a text, or token ids.
#pragma once

#include "protocol/commands.h"

// A text, or a list of parts: {"text", "special"}.
value_type text_or_parts();
// Text or tokens, one of which a command has.
const std::vector<field_row> & prompt_fields();

// A value that text_or_parts() allows.
prompt_parts read_parts(const nlohmann::json & value);

// Texts that must not appear in plain input.
class private_texts {
  public:
    // body: a command with or without private_tokens.
    private_texts(const nlohmann::json & body, const command_facts & facts);

    // Throws command_error if one is in the plain parts of a field, or in messages.
    void check(const std::string & field, const prompt_parts & parts) const;
    void check_messages(const nlohmann::json & body) const;

    std::vector<std::string> texts;
    std::vector<llama_token> tokens; // those of the texts that are one token

  private:
    word_finder finder;
};

// truncate_prompt_tokens and truncation_side; side: if the body has none.
const std::vector<field_row> & limit_fields();
prompt_limit                   read_limit(const nlohmann::json & body, const char * side = "left");
// Cuts a text to its limit, which -1 says is n_fitting, but for the tokens that the tokenizer has put around it; returns
// how many it has cut.
int32_t cut_to(const prompt_limit & limit, std::vector<llama_token> & tokens, int32_t n_fitting,
               int32_t n_front, int32_t n_back = 0);

// The prompt, or the text behind a continued sequence, which may be empty. made: what a chat's template has made of
// messages; nullptr: the command has the prompt.
void read_prompt(generate_command & request, const nlohmann::json & body, const prompt_parts * made,
                 const command_facts & facts);
