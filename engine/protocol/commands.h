// The lines that the engine reads (protocol 1), as checked commands. docs/engine-protocol.md describes every line.
#pragma once

#include "chat/chat.h"
#include "grammar/structure.h"
#include "model/facts.h"
#include "sampling/healing.h"
#include "sampling/prune_points.h"
#include "sampling/settings.h"
#include "util/json.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

const int64_t n_max_sequences = 100000; // of one request

// The first `at` tokens of a sequence that runs or has ended; at = -1: all of them.
struct sequence_name {
    std::string id;
    int32_t     index = -1; // -1: none is named
    int32_t     at    = -1;
    bool        exact = false; // as its tokens were drawn, not as the client has its text
};

// A text whose log probability is computed; none of its tokens is drawn.
struct scored_text {
    std::vector<llama_token> tokens;
    int32_t                  n_given = 0; // the first ones belong to the prompt and are not scored
};

// How much of a prompt is kept.
struct prompt_limit {
    int32_t n_tokens = 0; // 0: all; -1: as many as fit beside the answer
    bool    first =
        false; // the first ones; else the last ones, behind those that the tokenizer has put in front
};

// A generate command. A prefix or pin command is one without sequences; a score command has texts in place of sequences.
struct generate_command {
    std::vector<llama_token>    prompt;   // with `continue_from`: the tokens behind that sequence
    std::vector<llama_token>    negative; // the negative prompt; intake completes it; empty: none is guided
    sequence_name               continue_from;
    int32_t                     continue_room = INT32_MAX; // tokens to which the whole is cut
    prompt_limit                limit;                     // of the whole
    std::vector<llama_token>    continue_head; // the prompt's first tokens stay as far as they are these
    std::vector<sequence_plan>  sequences;     // one for each of the n
    sequence_plan               common;        // a sequence without settings of its own
    std::vector<scored_text>    texts;         // of a score command
    adapter_set                 adapters;
    finish_settings             finish;
    prune_settings              prune;
    std::shared_ptr<healed_end> healed; // what is dropped from the prompt's end; nullptr: nothing is
    std::string                 client;
    int32_t                     priority = 0; // the lower, the earlier
    std::string                 pin;          // the name under which the prompt is pinned; empty: it is not
    int32_t n_logprobs        = -1;    // -1: none; 0: of the drawn token; k: of the k likeliest tokens too
    int32_t n_prompt_logprobs = -1;    // the same for tokens of the prompt, each with its rank
    bool    raw               = true;  // logprobs are computed before the samplers
    bool    processed         = false; // logprobs are computed after the samplers; with both there are two
    bool    return_ids        = false; // the client gets the ids of all tokens
    int32_t n_draft           = 0;     // guesses that a sequence may have in a step
    bool    entropies         = false; // the client gets the entropy of each token's row
    bool    cache             = true;
    bool    exact             = false; // the prompt was given as token ids
    bool    echo              = false; // report the prompt, with its logprobs if there are any
    bool    sum_logprobs      = false; // the stop event of each sequence has the sum
    bool    certainty         = false; // the stop or score event of each has the mean of its rows'
    bool    retry_duplicates  = false; // duplicates are retried
    bool    mark_duplicates   = false; // the stop event of a duplicate names the other sequence
    bool    is_guided         = false; // a sequence is, or a later one would be
    int32_t n_first           = 0;     // of the prompt: those in place of which `negative` stands; 0: all
    int32_t n_bos             = 0;     // tokens before the client's own text
    bool    front_space       = false; // the tokenizer has put one before the client's text
    int32_t n_cut             = 0;     // tokens that were cut from the prompt, or from what is continued

    std::vector<std::string> warnings; // about schemas: what of them is left out, or not known
    std::string              text;     // the client's prompt, for echo; empty: that of the tokens

    std::shared_ptr<const chat_format> chat; // how an answer is parsed; nullptr: it is plain text
    std::vector<llama_token> thought_end;    // of a chat: what ends thoughts that have used up their tokens
    bool                     scores_prompt() const {
        return (echo && n_logprobs >= 0) || n_prompt_logprobs >= 0;
    } // each token of the prompt needs its row of logits
    std::string healed_bytes() const { return healed ? healed->bytes : ""; }
    // What is known of each drawn token.
    bool has_logprob() const { return sum_logprobs || (prune.keep > 0 && !prune.by_certainty); }
    bool has_certainty() const { return certainty || (prune.keep > 0 && prune.by_certainty); }
    bool has_scores() const { return sum_logprobs || certainty || prune.keep > 0; }
};

struct extend_command {
    int32_t       n_add     = 1;
    int32_t       n_predict = -2; // -2: unchanged
    sequence_name fork;           // the new sequences begin with these tokens
};

struct cancel_command {
    int32_t index   = -1;    // this sequence; -1: all
    bool    surplus = false; // what was wanted is there already
};

struct command {
    enum kind { generate, embed, cancel, extend, status, limits, load_adapter, unpin, answer, end_of_input };

    kind                                  what   = answer;
    int64_t                               number = 0; // of its line; the first line is 1
    std::string                           id;
    std::string                           client;
    int32_t                               priority = 0;
    cancel_command                        cancelled;
    std::unique_ptr<generate_command>     request;       // generate, prefix, pin
    extend_command                        extension;     // extend
    std::vector<std::vector<llama_token>> texts;         // embed
    std::unique_ptr<wanted_adapter>       adapter;       // load_adapter
    std::string                           pin;           // unpin: its name
    uint64_t                              cache_ram = 0; // limits: bytes of host memory for prefixes
    std::string line; // answer, limits, unpin: the line to be written, with its newline
};

// The facts that readers of commands need.
struct command_facts : model_facts {
    std::shared_ptr<structure_cache> structures;
    std::shared_ptr<chat_templates>  chats;
    bool                             has_processor = false; // of logits
};

// The first fields of a line, which are known even if the rest of the line is wrong. A missing one is empty.
struct command_head {
    std::string op, id, client;
};

command_head read_head(const std::string & line);

// Whether it may take milliseconds to read the command: for many tokens, a grammar, a template.
bool takes_long(const command_head & head, const std::string & line);

// Reads a line from stdin. Never throws: an error becomes an answer. Any thread may call it.
command parse_command(const std::string & line, int64_t number, const command_facts & facts);

// The answer to an invalid command.
command refusal(const command_head & head, int64_t number, const command_error & e);

// A command that only writes a line, after the answers to earlier commands.
command answer_of(std::string line);
