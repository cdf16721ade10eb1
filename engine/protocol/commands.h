// The lines that the engine reads (protocol 1), as commands that have been checked. docs/engine-protocol.md describes
// every line.
#pragma once

#include "chat/chat.h"
#include "grammar/structure.h"
#include "model/facts.h"
#include "sampling/sampling.h"
#include "util/json.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

const int64_t n_max_sequences = 100000; // of one request

// A sequence, running or over; at: only its first tokens, so many; -1: all.
struct sequence_name {
    std::string id;
    int32_t     index = -1; // -1: none is named
    int32_t     at    = -1;
};

// A text that is scored: nothing of it is drawn.
struct scored_text {
    std::vector<llama_token> tokens;
    int32_t                  n_given = 0; // the first ones only stand before what is scored
};

// A generate command whose every field has been checked; a prefix command is one without sequences, a score
// command has a text for each.
struct generate_command {
    std::vector<llama_token>   prompt; // what follows `continue_from` if that is given
    sequence_name              continue_from;
    std::vector<sequence_plan> sequences; // one for each of the n
    sequence_plan              common;    // of a sequence without settings of its own
    std::vector<scored_text>   texts;     // what follows the prompt is not drawn but scored
    adapter_set                adapters;
    std::string                client;          // whose it is, where several wait
    int32_t                    n_logprobs = -1; // -1: none; 0: of the token itself; k: of the k likeliest too
    bool                       processed  = false; // logprobs are those of what the samplers left
    bool                       cache      = true;
    bool                       exact      = false;   // the prompt was given as token ids
    bool                       echo       = false;   // report the prompt, with its logprobs if there are any
    bool                       sum_logprobs = false; // report that of each sequence when it stops
    bool    retry_duplicates                = false; // a sequence with another one's text is generated anew
    bool    mark_duplicates                 = false; // and its stop says so when it still has that text
    int32_t n_bos                           = 0;     // tokens at the beginning that the client did not write

    std::shared_ptr<const chat_format> chat; // how the answers read; nullptr: they are text
    bool scores_prompt() const { return echo && n_logprobs >= 0; } // every row of the prompt is wanted
};

struct extend_command {
    int32_t       n_add     = 1;
    int32_t       n_predict = -2; // -2: as before
    sequence_name fork;           // the new sequences begin as this one
};

struct command {
    enum kind { generate, embed, cancel, extend, status, answer, end_of_input };

    kind                                  what   = answer;
    int64_t                               number = 0; // of its line, from 1 on
    std::string                           id;
    std::string                           client;     // whose it is, where several wait
    int32_t                               index = -1; // cancel: this sequence; -1: all
    std::unique_ptr<generate_command>     request;    // generate, prefix
    extend_command                        extension;  // extend
    std::vector<std::vector<llama_token>> texts;      // embed
    std::string                           line; // answer: what is to be written, complete with its newline
};

// What reading a command needs.
struct command_facts : model_facts {
    std::shared_ptr<structure_cache> structures;
    std::shared_ptr<chat_templates>  chats;
};

// Whose a line is and what it wants, whatever is wrong with the rest of it. Empty where it does not say.
struct command_head {
    std::string op, id, client;
};

command_head read_head(const std::string & line);

// Whether reading the rest is long work: many tokens, a grammar, a template.
bool takes_long(const command_head & head, const std::string & line);

// One line from stdin, by its number. Never throws: what is wrong with it becomes an answer. Any thread may.
command parse_command(const std::string & line, int64_t number, const command_facts & facts);

// The answer to a command that cannot be.
command refusal(const command_head & head, int64_t number, const command_error & e);

// A line that is only to be written, in its turn.
command answer_of(std::string line);
