#include "schedule/step_plan.h"

std::string step_plan::to_string() const {
    std::string text;
    for (const planned_token & t : tokens) {
        text += "token " + std::to_string(t.token) + " at " + std::to_string(t.position) + " of cells " +
                std::to_string(t.cells->seq_id) + (t.wants_row ? " with a row\n" : "\n");
    }
    for (const sharing_sequence & s : sharing) {
        text +=
            "cells " + std::to_string(s.cells->seq_id) + " share token " + std::to_string(s.i_token) + "\n";
    }
    for (const planned_rows & p : rows) {
        text += p.r->id + " " + std::to_string(p.s->index) + " from row " + std::to_string(p.i_row) +
                " on, " + std::to_string(p.n_rows) + "\n";
    }
    for (const planned_prompt & p : prompts) {
        text += p.r->id + " completes its prompt with row " + std::to_string(p.i_row) + "\n";
    }
    for (const planned_echo & e : echoes) {
        text += e.r->id + " shows token " + std::to_string(e.i_token) + " with row " +
                std::to_string(e.i_row) + "\n";
    }
    return text;
}
