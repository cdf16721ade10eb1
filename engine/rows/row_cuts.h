// What llama.cpp's samplers do, computed on a whole row: each leaves the tokens that llama.cpp's would leave, with the same
// probabilities. Where few tokens are left, the row may become a list. Each of these needs a summarized row.
#pragma once

#include "rows/whole_row.h"

void keep_likeliest(whole_row & row);                          // temperature 0
void keep_from(whole_row & row, float share);                  // min-p: of the largest probability
void keep_sigmas(whole_row & row, float n);                    // top-n-sigma
void keep_mass(whole_row & row, float mass, float next_share); // top-p; if min-p is next, its share, else 0
void keep_typical(whole_row & row, float mass);                // typical-p
void remove_top_choices(whole_row & row, float threshold);     // XTC, where it acts

void divide_by(whole_row & row, float temperature);
// By a temperature between base - range and base + range, which grows with the entropy.
void divide_by_moving(whole_row & row, float base, float range, float exponent);
