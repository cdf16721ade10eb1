#include "sampling/guidance.h"

#include "rows/row_scan.h"
#include "rows/row_sums.h"

#include <vector>

static float log_sum(const float * logits, int32_t n_vocab) {
    candidate_buffer & buffer = buffer_of_thread();
    find_maxima(buffer, logits, n_vocab);
    return log_sum_exp(buffer, logits, n_vocab);
}

const float * guided_row(const guided_rows & rows) {
    static thread_local std::vector<float> made;

    if (!rows.negative) {
        return rows.prompt;
    }
    made.resize((size_t) rows.n_vocab);
    const float sum = log_sum(rows.prompt, rows.n_vocab), negative_sum = log_sum(rows.negative, rows.n_vocab);
    mix_rows(made.data(), {rows.prompt, sum}, {rows.negative, negative_sum}, rows.n_vocab, rows.scale);
    return made.data();
}
