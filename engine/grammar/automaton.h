// The rules of a grammar as an automaton over bytes. One thread at a time.
//
// A position in the rules is an element and the position to return to when its rule ends. Each position is stored
// once, so that stacks share their lower part. A state is the set of positions that a text may have. States and
// transitions are computed when they are first needed and then looked up, so that a text's state is a number. Every
// table and every step is counted: a grammar that explodes is a grammar_error.
#pragma once

#include "grammar/rules.h"
#include "grammar/token_set.h"

#include "llama.h"

#include <cstdint>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

// Bytes that no set distinguishes are one class: they lead from any state to the same one.
struct byte_classes {
    explicit byte_classes(const std::vector<byte_set> & sets);

    int32_t               of[256] = {};
    int32_t               n       = 1;
    std::vector<byte_set> sets; // the same sets, of classes
};

struct hash_of_numbers {
    size_t operator()(const std::vector<int32_t> & numbers) const;
};

// The positions in the rules that texts have had, each with its number.
class position_table {
  public:
    struct position {
        int32_t element;
        int32_t count; // completed repetitions of the element's rule
        int32_t parent;
        bool    operator==(const position & other) const {
            return std::tie(element, count, parent) == std::tie(other.element, other.count, other.parent);
        }
    };

    // added: it is new.
    int32_t  find_or_add(const position & p, bool & added);
    position operator[](int32_t id) const { return positions[id]; }
    // Whether this is the first visit with this stamp; stamps are never negative.
    bool visit(int32_t id, int64_t stamp);
    void clear();

  private:
    int32_t & slot_of(const position & p);
    void      grow();

    std::vector<position> positions;
    std::vector<int32_t>  slots;   // ids, each at its hash or behind it; -1: none; half of them are free
    std::vector<int64_t>  visited; // by position: the last stamp
};

class automaton {
  public:
    using position_ids = std::vector<int32_t>; // sorted

    struct state {
        position_ids positions;
        bool         may_end   = false;
        bool         has_token = false; // some position names a token
        int32_t      n_bytes   = 0;     // that may follow
        int32_t      n_plain   = 0;     // so many plain characters may follow, whichever they are
    };

    static constexpr int32_t dead  = -1; // the state of a text that is not allowed
    static constexpr int32_t first = 0;  // the state of the empty text

    // All functions that compute states throw grammar_error where the grammar explodes.
    explicit automaton(grammar_rules rules);

    const state & operator[](int32_t id) const { return states[id]; }

    int32_t n_states() const { return (int32_t) states.size(); }
    // Bytes of one class lead from any state to the same one.
    int32_t class_of(uint8_t byte) const { return classes.of[byte]; }

    // The work since the last call of begin_step is bounded.
    int64_t work() const { return n_work; }
    void    begin_step() { n_work = 0; }
    int32_t step(int32_t from, uint8_t byte) {
        const int32_t known = next[(size_t) from * classes.n + classes.of[byte]];
        return known != unknown ? known : compute_step(from, byte);
    }
    // Each byte is a step of its own.
    int32_t step_by_text(int32_t from, std::string_view text);
    // A token is taken by its bytes, or as a whole by the elements that name tokens.
    int32_t step_by_token(int32_t from, llama_token token, std::string_view bytes);
    // The byte that leads on from a state from which only one does.
    uint8_t only_byte(int32_t from);
    // Adds the tokens that the elements take which name tokens.
    void add_tokens(int32_t from, token_set & set) const;

    int64_t n_stored() const { return n_numbers; } // numbers in all tables, roughly
    void    add_stored(int64_t n) { n_numbers += n; }
    // Removes all positions and states, and computes the first state again.
    void reset();

  private:
    static constexpr int32_t unknown = -2;

    int32_t position_id(int32_t element, int32_t count, int32_t parent);
    int32_t state_of(position_ids & todo);
    void    enter_rule(position_table::position p, position_ids & todo);
    int32_t count_plain(const grammar_element & e, int32_t count) const;
    int32_t add_state(state && made, const byte_set & bytes);
    int32_t compute_step(int32_t from, uint8_t byte);
    bool    takes(const grammar_element & e, llama_token token) const;

    using ids_of_states = std::unordered_map<position_ids, int32_t, hash_of_numbers>;

    const grammar_rules  rules;
    const byte_classes   classes;
    position_table       positions;
    std::vector<state>   states;
    std::vector<int32_t> next; // by state and class of bytes
    ids_of_states        state_ids;
    int64_t              n_lookups = 0; // calls of state_of, as stamps of visits
    int64_t              n_numbers = 0;
    int64_t              n_work    = 0; // positions visited since begin_step
};
