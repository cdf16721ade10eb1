#include "cache/cells.h"

#include <algorithm>

// A few architectures with windows have a cache of their own, which uses cells again that a window has passed.
bool serve_as_a_whole(const llama_context * ctx) {
    const llama_model * model = llama_get_model(ctx);
    const bool loses = llama_model_n_swa(model) > 0 && !llama_memory_keeps_window(llama_get_memory(ctx));
    return loses || llama_model_is_recurrent(model) || llama_model_is_hybrid(model);
}

static cell_facts facts_of(const llama_context * ctx) {
    const llama_memory_t memory = llama_get_memory(ctx);
    return {(int32_t) llama_n_ctx(ctx), (int32_t) llama_n_seq_max(ctx), serve_as_a_whole(ctx),
            llama_memory_n_bytes(memory, true) > 0,
            llama_memory_n_bytes(memory, false) / std::max(llama_n_ctx(ctx), 1u)};
}

namespace {

class state_reader final : public cell_reader {
  public:
    explicit state_reader(llama_context * ctx) : reader(llama_state_reader_init(ctx)) {}

    bool add(llama_seq_id id, uint8_t * data, size_t n_bytes) override {
        return n_bytes > 0 && llama_state_reader_add(reader.get(), data, n_bytes, id) == n_bytes;
    }
    size_t advance(size_t n_bytes) override { return llama_state_reader_advance(reader.get(), n_bytes); }

  private:
    struct deleter {
        void operator()(llama_state_reader * r) const { llama_state_reader_free(r); }
    };
    const std::unique_ptr<llama_state_reader, deleter> reader;
};

} // namespace

llama_cells::llama_cells(llama_context * ctx)
    : cell_memory(facts_of(ctx)), ctx(ctx), memory(llama_get_memory(ctx)) {}

void llama_cells::copy(llama_seq_id from, llama_seq_id to, llama_pos begin, llama_pos end) {
    llama_memory_seq_cp(memory, from, to, begin, end);
}

void llama_cells::remove(llama_seq_id id, llama_pos begin) {
    llama_memory_seq_rm(memory, id, begin, -1);
}

void llama_cells::clear() {
    llama_memory_clear(memory, false);
}

size_t llama_cells::n_bytes(llama_seq_id id) const {
    return llama_state_seq_get_size(ctx, id);
}

std::unique_ptr<cell_reader> llama_cells::reader() {
    return std::make_unique<state_reader>(ctx);
}

bool llama_cells::write(llama_seq_id id, const uint8_t * data, size_t n_all) {
    return llama_state_seq_set_data(ctx, data, n_all, id) != 0;
}
