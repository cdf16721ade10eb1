#include "schedule/decoder.h"

#include "model/adapters.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

// LLAMA_BATCHED_FAIL_STEP=20 or =20:1: the 20th decode fails, with -3 or that code of llama_decode's.
decoder::step_fault decoder::fault_for_tests() {
    step_fault   fault;
    const char * text = getenv("LLAMA_BATCHED_FAIL_STEP");
    if (text) {
        sscanf(text, "%" SCNd64 ":%d", &fault.step, &fault.code);
    }
    return fault;
}

decoder::decoder(llama_context * ctx, int32_t n_batch, int32_t n_parallel)
    : ctx(ctx), fault(fault_for_tests()), batch(llama_batch_init(n_batch, 0, n_parallel)) {}

decoder::~decoder() {
    llama_batch_free(batch);
}

void decoder::fill(const step_plan & plan) {
    batch.n_tokens = plan.n_tokens();
    for (int32_t i = 0; i < batch.n_tokens; i++) {
        const planned_token & t = plan.tokens[(size_t) i];
        batch.token[i]          = t.token;
        batch.pos[i]            = t.position;
        batch.n_seq_id[i]       = 1;
        batch.seq_id[i][0]      = t.cells->seq_id;
        batch.logits[i]         = t.wants_row;
    }
    for (const sharing_sequence & s : plan.sharing) {
        batch.seq_id[s.i_token][batch.n_seq_id[s.i_token]++] = s.cells->seq_id;
    }
}

int32_t decoder::decode(const step_plan & plan) {
    const int64_t t_begin = ggml_time_us();
    apply_adapters(ctx, *plan.whose.adapters);
    fill(plan);
    const int32_t code = ++n_decodes == fault.step ? fail_step() : llama_decode(ctx, batch);
    if (code == 0) {
        llama_synchronize(ctx);
        t_last = ggml_time_us() - t_begin;
        t_all += t_last;
    }
    return code;
}

// For tests: unless the code is 1, the step fills the cells with other tokens.
int32_t decoder::fail_step() {
    if (fault.code != 1) {
        std::fill_n(batch.token, batch.n_tokens, 0);
        llama_decode(ctx, batch);
    }
    return fault.code;
}
