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

// The prompt, or the text behind a continued sequence, which may be empty. made: what a chat's template has made of
// messages; nullptr: the command has the prompt.
void read_prompt(generate_command & request, const nlohmann::json & body, const prompt_parts * made,
                 const command_facts & facts);
