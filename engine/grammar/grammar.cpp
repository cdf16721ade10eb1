#include "grammar/grammar.h"

#include <utility>

static const int64_t n_max_stored = 1 << 22; // numbers in all tables; above that the automaton is reset
static const int32_t n_few_bytes  = 16;

grammar::grammar(grammar_rules rules, std::shared_ptr<token_tree> vocabulary)
    : vocabulary(std::move(vocabulary)), machine(std::move(rules)) {}

// Every call begins here. Tables that have grown too large are cleared; then the state of each text is computed
// again.
void grammar::begin(position & at) {
    machine.begin_step();
    if (machine.n_stored() > n_max_stored) {
        machine.reset();
        allowed_tokens.clear();
        n_resets++;
    }
    if (std::exchange(at.n_resets, n_resets) != n_resets) {
        at.state = machine.step_by_text(automaton::first, at.text);
        for (llama_token token : at.tokens) {
            machine.begin_step(); // each token has its own bound, as when it came
            at.state = step_by_token(at.state, token);
        }
    }
}

int32_t grammar::step_by_token(int32_t from, llama_token token) {
    if (from == automaton::dead) {
        return automaton::dead;
    }
    if (llama_vocab_is_eog(vocabulary->vocab, token) && machine[from].may_end) {
        return from;
    }
    return machine.step_by_token(from, token, vocabulary->text(token));
}

bool grammar::allows(position & at, llama_token token) {
    const std::lock_guard<std::mutex> lock(mutex);
    begin(at);
    return step_by_token(at.state, token) != automaton::dead;
}

void grammar::accept(position & at, llama_token token) {
    const std::lock_guard<std::mutex> lock(mutex);
    begin(at);
    at.state = step_by_token(at.state, token);
    at.tokens.push_back(token);
}

grammar::position grammar::behind(std::string_view text) {
    const std::lock_guard<std::mutex> lock(mutex);
    position                          at;
    at.text = text;
    begin(at);
    return at;
}

grammar::certain_text grammar::certain(position & at, size_t n_max) {
    const std::lock_guard<std::mutex> lock(mutex);
    begin(at);
    certain_text text;
    int32_t      state        = at.state;
    const auto   goes_one_way = [this](int32_t id) {
        return id != automaton::dead && machine[id].n_bytes == 1 && !machine[id].may_end &&
               !machine[id].has_token;
    };
    while (text.bytes.size() < n_max && goes_one_way(state)) {
        const uint8_t byte = machine.only_byte(state);
        text.bytes += (char) byte;
        state = machine.step(state, byte);
    }
    text.is_whole = state != automaton::dead && machine[state].n_bytes == 0 && !machine[state].has_token;
    return text;
}

bool grammar::fits(position & at) {
    const std::lock_guard<std::mutex> lock(mutex);
    begin(at);
    return at.state != automaton::dead;
}

bool grammar::complete(position & at) {
    const std::lock_guard<std::mutex> lock(mutex);
    begin(at);
    return at.state != automaton::dead && machine[at.state].n_bytes == 0 && !machine[at.state].has_token;
}

bool grammar::few_may_follow(position & at) {
    const std::lock_guard<std::mutex> lock(mutex);
    begin(at);
    return at.state == automaton::dead ||
           (machine[at.state].n_bytes <= n_few_bytes && !machine[at.state].has_token);
}

std::shared_ptr<const token_set> grammar::allowed(position & at) {
    vocabulary->part_with(0); // the first call takes a while, so it is made before the lock
    const std::lock_guard<std::mutex> lock(mutex);
    begin(at);
    if (at.state == automaton::dead) {
        return std::make_shared<token_set>(llama_vocab_n_tokens(vocabulary->vocab));
    }
    if ((size_t) at.state < allowed_tokens.size() && allowed_tokens[at.state]) {
        return allowed_tokens[at.state];
    }
    auto set = compute_allowed(at.state);
    machine.add_stored((int64_t) set->size() / 32);
    if (allowed_tokens.size() <= (size_t) at.state) {
        allowed_tokens.resize((size_t) at.state + 1);
    }
    allowed_tokens[at.state] = set;
    return set;
}

// One walk over the tree of the tokens that are not known at once.
std::shared_ptr<const token_set> grammar::compute_allowed(int32_t state) {
    const auto &         part = vocabulary->part_with(machine[state].n_plain);
    const auto           set  = std::make_shared<token_set>(part.known);
    std::vector<int32_t> path(part.n_bytes + 1, state); // the state before each byte of the current node
    for (int32_t i = 0; i < (int32_t) part.nodes.size();) {
        const auto &  node   = part.nodes[i];
        const int32_t to     = machine.step(path[node.depth], node.byte);
        path[node.depth + 1] = to;
        for (int32_t k = 0; k < node.n_tokens && to != automaton::dead; k++) {
            set->add(part.by_text[node.first_token + k]);
        }
        i = to == automaton::dead ? node.next : i + 1;
    }
    for (llama_token token : vocabulary->end_tokens) {
        if (machine[state].may_end) {
            set->add(token);
        }
    }
    if (machine[state].has_token) {
        machine.add_tokens(state, *set);
    }
    return set;
}

void grammar::prepare() {
    if (prepared.exchange(true)) {
        return; // the draws of a second caller would wait for no new result
    }
    position at;
    try {
        allowed(at);
    } catch (const grammar_error &) { // it is thrown again where it becomes the error of a request
    }
}
