#include "cache/copy_policy.h"

static const double share_of_new = 0.25;  // of the last copies in the measured speed
static const double after_a_no   = 0.999; // of the speed
static const size_t n_telling    = 65536; // bytes; the time of a smaller copy tells nothing of the speed

void copy_costs::note_copy(size_t n_bytes, int64_t t_us) {
    if (n_bytes >= n_telling) {
        byte_us += share_of_new * ((double) t_us / (double) n_bytes - byte_us);
    }
}

bool copy_costs::is_worth_copying(int32_t n_rivals) {
    if (!on_device || token_us == 0 || token_us / n_rivals > (double) n_cell_bytes * byte_us) {
        return true;
    }
    byte_us *= after_a_no;
    return false;
}
