// What a text may be: rules over bytes, and the automaton that runs them.
//
// A place is an element of the rules and the place to go on from when its rule is over; places are kept once,
// so that stacks share what is below. A state is the set of places where a text may be. States and the steps
// between them are made when a text first needs them and looked up from then on; all sequences of a grammar
// share them, in any thread. What may grow without end is counted: a grammar that explodes is an error, never
// a standstill.
#pragma once

#include "llama.h"

#include <atomic>
#include <bitset>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

struct grammar_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

//
// rules
//

using byte_set         = std::bitset<256>;
using character_ranges = std::vector<std::pair<uint32_t, uint32_t>>; // of code points, both ends included

struct grammar_element {
    enum kind { end, bytes, token, other_token, rule };

    kind    what = end;
    int32_t value =
        0; // bytes: the set; token: its id, the one that matches or the only one that does not; rule
    int32_t low  = 1; // rule: so many times at least
    int32_t high = 1; // and at most; -1: without end
};

// Rules as parsers build them: rule 0 is the root; a rule is a list of alternatives.
class grammar_rules {
  public:
    using sequence = std::vector<grammar_element>;

    // where: of its definition in the source, in characters.
    int32_t add_rule(size_t where);
    void    set_where(int32_t rule, size_t where) { places_of_definition[rule] = where; }
    void    add_alternative(int32_t rule, const sequence & elements);

    void            append_text(sequence & out, std::string_view utf8);
    grammar_element one_of(character_ranges ranges, size_t where); // must hold a character
    grammar_element repeat(const sequence & item, int32_t low, int32_t high, size_t where);

    // A rule that comes to itself before it takes anything: it could not be followed; -1: none.
    int32_t find_left_recursion() const;
    size_t  where(int32_t rule) const { return places_of_definition[rule]; }

    static character_ranges merged(character_ranges ranges);
    static character_ranges complement(character_ranges ranges);

    std::vector<grammar_element>      elements; // of all alternatives, each ended by `end`
    std::vector<std::vector<int32_t>> starts;   // of each rule's alternatives in them
    std::vector<byte_set>             sets;

  private:
    int32_t set_id(const byte_set & set);
    void    add_encoded(int32_t rule, uint32_t low, uint32_t high);

    std::vector<size_t>                         places_of_definition;
    std::unordered_map<byte_set, int32_t>       set_ids;
    std::map<character_ranges, grammar_element> characters; // that were made before
};

//
// the vocabulary
//

// The tokens' texts as a tree, made when it is first needed.
class token_tree {
  public:
    struct node {
        uint8_t byte;
        int32_t depth;       // bytes before it
        int32_t next;        // the first node that is not below this one
        int32_t first_token; // in by_text
        int32_t n_tokens;    // whose text ends here
    };

    // shown: control tokens whose text a client sees.
    explicit token_tree(const llama_vocab * vocab, std::set<llama_token> shown = {})
        : vocab(vocab), shown(std::move(shown)) {}

    const std::vector<node> & nodes();
    std::string               text(llama_token token) const; // as a client sees it: empty for control tokens

    const llama_vocab * const   vocab;
    const std::set<llama_token> shown;
    std::vector<llama_token>    by_text, end_tokens;

  private:
    void make();

    std::once_flag    made;
    std::vector<node> tree;
};

//
// the automaton
//

class grammar {
  public:
    // Where one text is. It is found again by its tokens when the states have been thrown away meanwhile.
    struct position {
        int32_t                  state    = 0;
        int64_t                  n_resets = 0;
        std::string              text; // that came before the tokens
        std::vector<llama_token> tokens;
    };
    using token_set = std::vector<bool>;

    // These throw grammar_error where the grammar explodes, and this one when its beginning does.
    grammar(grammar_rules rules, std::shared_ptr<token_tree> vocabulary);

    bool allows(position & at, llama_token token);
    void accept(position & at, llama_token token); // after one that is not allowed nothing is
    // A place behind a text that is there already; where it does not fit, nothing is allowed.
    position behind(std::string_view text);
    // All tokens that are allowed, those that end a text among them.
    std::shared_ptr<const token_set> allowed(position & at);

    bool fits(position & at);           // the text so far may be the beginning of one
    bool complete(position & at);       // nothing may follow
    bool few_may_follow(position & at); // a random token would hardly fit

    std::string text(llama_token token) const { return vocabulary->text(token); }

    // Makes what the first draw needs, once; for a thread of its own.
    void prepare();

  private:
    using places = std::vector<int32_t>;

    struct place {
        int32_t element;
        int32_t count; // of the repetitions of a rule that are over
        int32_t parent;
        bool    operator<(const place & other) const {
            return std::tie(element, count, parent) < std::tie(other.element, other.count, other.parent);
        }
    };

    struct state {
        places                           all;
        places                           next; // by class of bytes
        bool                             may_end   = false;
        bool                             has_token = false;
        int32_t                          n_bytes   = 0; // that may follow
        std::shared_ptr<const token_set> allowed;
    };

    int32_t place_id(int32_t element, int32_t count, int32_t parent);
    int32_t state_of(places & todo);
    int32_t step(int32_t from, uint8_t byte);
    int32_t step_by_token(int32_t from, llama_token token);
    int32_t step_by_text(int32_t from, std::string_view text);
    void    add_token_targets(int32_t from, llama_token token, places & out);
    void    begin(position & at);
    void    reset();
    void    make_classes();

    const grammar_rules               rules;
    const std::shared_ptr<token_tree> vocabulary;
    std::atomic<bool>                 prepared{false};
    std::mutex                        mutex;
    std::vector<place>                known_places;
    std::map<place, int32_t>          place_ids;
    std::vector<int64_t>              visited; // by place: the last state that was made from it
    std::vector<state>                states;
    std::map<places, int32_t>         state_ids;
    int32_t                           class_of[256];
    int32_t                           n_classes = 0;
    int64_t                           n_made    = 0; // states looked for
    int64_t                           n_kept    = 0; // numbers in all these tables, roughly
    int64_t                           n_work    = 0; // places visited by this call
    int64_t                           n_resets  = 0;
};
