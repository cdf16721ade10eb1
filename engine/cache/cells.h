// The cells of llama.cpp's KV cache, by sequence id: an interface, since tests have no model. Copying cells from one
// id to another changes only metadata, because the cache is unified.
#pragma once

#include "llama.h"

#include <cstddef>
#include <cstdint>

struct cell_facts {
    int32_t n_cells = 0;
    int32_t n_ids   = 0; // sequence ids; the last one belongs to no branch: snapshots are copied through it
    bool    exact   = false; // cells serve only as a whole, as a recurrent state does
};

class cell_memory {
  public:
    explicit cell_memory(const cell_facts & facts) : facts(facts) {}
    virtual ~cell_memory() = default;

    const cell_facts facts;

    // Positions from `begin` to before `end`; both -1: all.
    virtual void copy(llama_seq_id from, llama_seq_id to, llama_pos begin, llama_pos end) = 0;
    virtual void remove(llama_seq_id id, llama_pos begin)                                 = 0; // -1: all
    virtual void clear()                                                                  = 0;

    // Snapshots of all cells of an id.
    virtual size_t n_bytes(llama_seq_id id) const                            = 0;
    virtual size_t read(llama_seq_id id, uint8_t * data, size_t n_max) const = 0; // returns the bytes read
    virtual bool   write(llama_seq_id id, const uint8_t * data,
                         size_t n_all) = 0; // the id's own cells are lost
};

// Those of a context.
class llama_cells final : public cell_memory {
  public:
    explicit llama_cells(llama_context * ctx);

    void   copy(llama_seq_id from, llama_seq_id to, llama_pos begin, llama_pos end) override;
    void   remove(llama_seq_id id, llama_pos begin) override;
    void   clear() override;
    size_t n_bytes(llama_seq_id id) const override;
    size_t read(llama_seq_id id, uint8_t * data, size_t n_max) const override;
    bool   write(llama_seq_id id, const uint8_t * data, size_t n_all) override;

  private:
    llama_context * const ctx;
    const llama_memory_t  memory;
};
