#include "schedule/step_plan.h"

void step_plan::add(branch * cells, llama_token token, bool wants_row) {
    tokens.push_back({cells, token, cells->n_past(), wants_row});
    cells->tokens.push_back(token);
}

// "tokens 0-2: cells 1 from 5: 10 11 12*": the batch's tokens 0 to 2 are 10, 11 and 12, in the cells of sequence id 1
// from position 5 on; a row of logits is wanted of the last one.
static std::string tokens_line(const std::vector<planned_token> & tokens, size_t first, size_t last) {
    const std::string range =
        std::to_string(first) + (last > first ? "-" + std::to_string(last) : std::string());
    std::string line = "tokens " + range + ": cells " + std::to_string(tokens[first].cells->seq_id) +
                       " from " + std::to_string(tokens[first].position) + ":";
    for (size_t i = first; i <= last; i++) {
        line += " " + std::to_string(tokens[i].token) + (tokens[i].wants_row ? "*" : "");
    }
    return line + "\n";
}

static std::string row_name(int32_t i_row) {
    return i_row < 0 ? "its known row" : "row " + std::to_string(i_row);
}

std::string step_plan::to_string() const {
    std::string text;
    for (const request * r : begun) {
        text += r->id + ": begins, " + std::to_string(r->prompt.n_cached) + " tokens cached\n";
    }
    for (size_t first = 0; first < tokens.size();) {
        size_t last = first;
        while (last + 1 < tokens.size() && tokens[last + 1].cells == tokens[first].cells) {
            last++;
        }
        text += tokens_line(tokens, first, last);
        first = last + 1;
    }
    for (const sharing_sequence & s : sharing) {
        text +=
            "cells " + std::to_string(s.cells->seq_id) + " share token " + std::to_string(s.i_token) + "\n";
    }
    for (const planned_rows & p : rows) {
        text += p.r->id + "." + std::to_string(p.s->index) + ": " + row_name(p.i_row) +
                (p.n_rows > 1 ? " and " + std::to_string(p.n_rows - 1) + " more" : "") +
                (p.i_negative >= 0 ? ", negative " + row_name(p.i_negative) : "") +
                (p.i_drafts >= 0 ? ", guesses from row " + std::to_string(p.i_drafts) : "") + "\n";
    }
    for (const planned_prompt & p : prompts) {
        text += p.r->id + ": completes its prompt with " + row_name(p.i_row) + "\n";
    }
    for (const planned_echo & e : echoes) {
        text += e.r->id + ": echoes token " + std::to_string(e.i_token) + " with " + row_name(e.i_row) + "\n";
    }
    return text;
}
