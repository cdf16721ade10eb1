// The field `then`: a text that follows each sequence's free answer, and the second answer behind it.
#pragma once

#include "protocol/commands.h"

const field_row & then_field();

// What is read of it.
struct then_fields {
    std::vector<llama_token>          text;
    std::shared_ptr<grammar>          structure; // nullptr: none
    std::vector<std::string>          warnings;  // about its schema
    std::vector<std::string>          stop;
    int32_t                           n_predict   = 128;
    bool                              return_free = false;
    static std::optional<then_fields> read(const nlohmann::json & body, const command_facts & facts);
};

// The second answer of sequences with these settings.
std::shared_ptr<const second_answer> make_second(const sequence_settings & free, const then_fields & then);

// Throws command_error if the context has no room for a token behind the prompt and the text.
void check_room(const generate_command & request, const then_fields & then, const command_facts & facts);
