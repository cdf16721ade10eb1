// The cells of llama.cpp's KV cache, by sequence id: an interface, since tests have no model. Copying cells from one
// id to another changes only metadata, because the cache is unified.
#pragma once

#include "llama.h"

#include <cstddef>
#include <cstdint>
#include <memory>

struct cell_facts {
    int32_t n_cells   = 0;
    int32_t n_ids     = 0; // sequence ids; the last one belongs to no branch: snapshots are copied through it
    bool    exact     = false; // cells serve only as a whole, as a recurrent state does
    bool    on_device = false; // cells, or some layers of them, are not in host memory
    size_t  n_cell_bytes = 0;  // bytes of one cell
};

// Whether the cells of a context serve only as a whole (cell_facts::exact). It must have a memory.
bool serve_as_a_whole(const llama_context * ctx);

// Copies the cells of one or several ids to host memory, in pieces.
class cell_reader {
  public:
    virtual ~cell_reader() = default;

    // All cells of the id are at `data` when advance() has nothing left. The cells must stay until then; the id may lose
    // them if another one keeps them. All ids are added before the first advance(). False: refused, drop the reader.
    virtual bool add(llama_seq_id id, uint8_t * data, size_t n_bytes) = 0;
    // Makes one copy, of about n_bytes at most; returns the bytes copied; 0: nothing is left.
    virtual size_t advance(size_t n_bytes) = 0;
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
    virtual size_t                       n_bytes(llama_seq_id id) const = 0;
    virtual std::unique_ptr<cell_reader> reader()                       = 0;
    virtual bool                         write(llama_seq_id id, const uint8_t * data,
                                               size_t n_all)            = 0; // the id's own cells are lost
};

// Those of a context.
class llama_cells final : public cell_memory {
  public:
    explicit llama_cells(llama_context * ctx);

    void   copy(llama_seq_id from, llama_seq_id to, llama_pos begin, llama_pos end) override;
    void   remove(llama_seq_id id, llama_pos begin) override;
    void   clear() override;
    size_t n_bytes(llama_seq_id id) const override;
    bool   write(llama_seq_id id, const uint8_t * data, size_t n_all) override;

    std::unique_ptr<cell_reader> reader() override;

  private:
    llama_context * const ctx;
    const llama_memory_t  memory;
};
