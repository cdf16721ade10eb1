#include "grammar/grammar.h"

#include "common.h"

#include <algorithm>

static const size_t  n_max_elements = 1 << 20; // of all rules
static const int64_t n_max_places   = 1 << 14; // of one state: ways in which a text can be read
static const int64_t n_max_work     = 1 << 20; // places that one call may visit: some tenths of a second
static const int64_t n_max_kept     = 1 << 22; // numbers; beyond them a grammar begins its tables anew
static const int32_t n_few_bytes    = 16;
static const int32_t dead           = -1; // the state of a text that is not allowed
static const int32_t unknown        = -2;

//
// rules
//

int32_t grammar_rules::add_rule(size_t where) {
    starts.emplace_back();
    places_of_definition.push_back(where);
    return (int32_t) starts.size() - 1;
}

void grammar_rules::add_alternative(int32_t rule, const sequence & added) {
    if (elements.size() + added.size() >= n_max_elements) {
        throw grammar_error("it has more than " + std::to_string(n_max_elements) + " elements");
    }
    starts[rule].push_back((int32_t) elements.size());
    elements.insert(elements.end(), added.begin(), added.end());
    elements.emplace_back();
}

int32_t grammar_rules::set_id(const byte_set & set) {
    const auto [entry, added] = set_ids.emplace(set, (int32_t) sets.size());
    if (added) {
        sets.push_back(set);
    }
    return entry->second;
}

void grammar_rules::append_text(sequence & out, std::string_view utf8) {
    for (const char c : utf8) {
        out.push_back({grammar_element::bytes, set_id(byte_set().set((uint8_t) c))});
    }
}

character_ranges grammar_rules::merged(character_ranges ranges) {
    std::sort(ranges.begin(), ranges.end());
    character_ranges out;
    for (const auto & [low, high] : ranges) {
        if (!out.empty() && low <= out.back().second + 1) {
            out.back().second = std::max(out.back().second, high);
        } else {
            out.emplace_back(low, high);
        }
    }
    return out;
}

character_ranges grammar_rules::complement(character_ranges ranges) {
    character_ranges out;
    uint32_t         from = 0;
    for (const auto & [low, high] : merged(std::move(ranges))) {
        if (low > from) {
            out.emplace_back(from, low - 1);
        }
        from = high + 1;
    }
    if (from <= 0x10FFFF) {
        out.emplace_back(from, 0x10FFFF);
    }
    return out;
}

// Characters of one length in UTF-8 whose last bytes take all values, or all that one set holds: an
// alternative of one set a byte. Other ranges are cut until they are such.
void grammar_rules::add_encoded(int32_t rule, uint32_t low, uint32_t high) {
    const uint32_t cuts[] = {0x80,   0x800,   0xD800,
                             0xE000, 0x10000, 0x110000}; // 0xD800 to 0xDFFF are no characters
    for (const uint32_t cut : cuts) {
        if (low < cut && cut <= high) {
            add_encoded(rule, low, cut - 1);
            add_encoded(rule, cut, high);
            return;
        }
    }
    if ((low >= 0xD800 && low < 0xE000) || low > 0x10FFFF) {
        return;
    }
    const int n_more = low < 0x80 ? 0 : low < 0x800 ? 1 : low < 0x10000 ? 2 : 3;
    for (int i = 1; i <= n_more; i++) {
        const uint32_t mask = (1u << (6 * i)) - 1;
        if ((low & ~mask) == (high & ~mask)) {
            continue;
        }
        const uint32_t cut = (low & mask) != 0 ? (low | mask) + 1 : (high & ~mask);
        if ((low & mask) != 0 || (high & mask) != mask) {
            add_encoded(rule, low, cut - 1);
            add_encoded(rule, cut, high);
            return;
        }
    }
    sequence out;
    for (int i = n_more; i >= 0; i--) {
        const uint32_t lead = i == n_more ? (n_more == 0 ? 0 : (0xFF00u >> (n_more + 1)) & 0xFF) : 0x80;
        const uint32_t mask = i == n_more ? 0x7F : 0x3F;
        byte_set       set;
        for (uint32_t b = (low >> (6 * i)) & mask; b <= ((high >> (6 * i)) & mask); b++) {
            set.set(lead | b);
        }
        out.push_back({grammar_element::bytes, set_id(set)});
    }
    add_alternative(rule, out);
}

grammar_element grammar_rules::one_of(character_ranges ranges, size_t where) {
    ranges                    = merged(std::move(ranges));
    const auto [entry, added] = characters.emplace(ranges, grammar_element());
    if (!added) {
        return entry->second;
    }
    byte_set ascii;
    for (const auto & [low, high] : ranges) {
        for (uint32_t c = low; c <= std::min(high, 0x7Fu); c++) {
            ascii.set(c);
        }
    }
    grammar_element & made = entry->second;
    made                   = {grammar_element::bytes, set_id(ascii)};
    if (ranges.back().second >= 0x80) {
        made = {grammar_element::rule, add_rule(where)};
        if (ascii.any()) {
            add_alternative(made.value, {{grammar_element::bytes, set_id(ascii)}});
        }
        for (const auto & [low, high] : ranges) {
            if (high >= 0x80) {
                add_encoded(made.value, std::max(low, 0x80u), high);
            }
        }
    }
    return made;
}

grammar_element grammar_rules::repeat(const sequence & item, int32_t low, int32_t high, size_t where) {
    const bool is_rule =
        item.size() == 1 && item[0].what == grammar_element::rule && item[0].low == 1 && item[0].high == 1;
    const int32_t rule = is_rule ? item[0].value : add_rule(where);
    if (!is_rule) {
        add_alternative(rule, item);
    }
    return {grammar_element::rule, rule, low, high};
}

int32_t grammar_rules::find_left_recursion() const {
    std::vector<bool> may_be_empty(starts.size());
    const auto        passable = [&](const grammar_element & e) {
        return e.what == grammar_element::rule && (e.low == 0 || may_be_empty[e.value]);
    };
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t r = 0; r < starts.size(); r++) {
            for (size_t a = 0; a < starts[r].size() && !may_be_empty[r]; a++) {
                int32_t i = starts[r][a];
                while (passable(elements[i])) {
                    i++;
                }
                may_be_empty[r] = elements[i].what == grammar_element::end;
                changed         = changed || may_be_empty[r];
            }
        }
    }
    // from each rule along what it can begin with; a rule that is met on its own way is one
    enum { fresh, on_the_way, done };
    std::vector<char>                        seen(starts.size(), fresh);
    std::vector<std::pair<int32_t, int32_t>> way; // (rule, element: those of all alternatives in a row)
    std::vector<std::vector<int32_t>>        begins(starts.size());
    for (size_t r = 0; r < starts.size(); r++) {
        for (int32_t i : starts[r]) {
            for (bool more = true; more && elements[i].what == grammar_element::rule; i++) {
                begins[r].push_back(elements[i].value);
                more = passable(elements[i]);
            }
        }
    }
    for (size_t first = 0; first < starts.size(); first++) {
        if (seen[first] == fresh) {
            way.emplace_back((int32_t) first, 0);
            seen[first] = on_the_way;
        }
        while (!way.empty()) {
            auto & [rule, i] = way.back();
            if (i == (int32_t) begins[rule].size()) {
                seen[rule] = done;
                way.pop_back();
                continue;
            }
            const int32_t next = begins[rule][i++];
            if (seen[next] == on_the_way) {
                return next;
            }
            if (seen[next] == fresh) {
                seen[next] = on_the_way;
                way.emplace_back(next, 0);
            }
        }
    }
    return -1;
}

//
// the vocabulary
//

std::string token_tree::text(llama_token token) const {
    return llama_vocab_is_eog(vocab, token) ? ""
                                            : common_token_to_piece(vocab, token, shown.count(token) > 0);
}

const std::vector<token_tree::node> & token_tree::nodes() {
    std::call_once(made, [this] { make(); });
    return tree;
}

void token_tree::make() {
    std::vector<std::pair<std::string, llama_token>> texts;
    for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); token++) {
        if (llama_vocab_is_eog(vocab, token)) {
            end_tokens.push_back(token);
        } else if (std::string bytes = text(token); !bytes.empty()) {
            texts.emplace_back(std::move(bytes), token);
        }
    }
    std::sort(texts.begin(), texts.end());
    std::vector<int32_t> open; // the nodes of the text before
    const auto           close = [&](size_t depth) {
        for (; open.size() > depth; open.pop_back()) {
            tree[open.back()].next = (int32_t) tree.size();
        }
    };
    for (const auto & [bytes, token] : texts) {
        size_t n = 0;
        while (n < open.size() && n < bytes.size() && tree[open[n]].byte == (uint8_t) bytes[n]) {
            n++;
        }
        close(n);
        for (; n < bytes.size(); n++) {
            open.push_back((int32_t) tree.size());
            tree.push_back({(uint8_t) bytes[n], (int32_t) n, 0, (int32_t) by_text.size(), 0});
        }
        tree[open.back()].n_tokens++;
        by_text.push_back(token);
    }
    close(0);
}

//
// the automaton
//

grammar::grammar(grammar_rules rules, std::shared_ptr<token_tree> vocabulary)
    : rules(std::move(rules)), vocabulary(std::move(vocabulary)) {
    make_classes();
    reset();
}

// Bytes that no set tells apart lead from any state to the same one.
void grammar::make_classes() {
    std::map<std::pair<int32_t, bool>, int32_t> parts;
    std::fill(std::begin(class_of), std::end(class_of), 0);
    n_classes = 1;
    for (const byte_set & set : rules.sets) {
        parts.clear();
        for (int b = 0; b < 256; b++) {
            class_of[b] =
                parts.emplace(std::make_pair(class_of[b], set[b]), (int32_t) parts.size()).first->second;
        }
        n_classes = (int32_t) parts.size();
        if (n_classes == 256) {
            return;
        }
    }
}

// Forgets all places and states, and makes the first state.
void grammar::reset() {
    known_places.clear();
    place_ids.clear();
    visited.clear();
    states.clear();
    state_ids.clear();
    n_kept = 0;
    n_resets++;
    places todo;
    for (int32_t element : rules.starts[0]) {
        todo.push_back(place_id(element, 0, dead));
    }
    state_of(todo);
}

// Where a rule is over, its parent is the place: what is last in a rule leaves nothing on the stack.
int32_t grammar::place_id(int32_t element, int32_t count, int32_t parent) {
    if (parent != dead && rules.elements[element].what == grammar_element::end) {
        return parent;
    }
    const auto [entry, added] =
        place_ids.emplace(place{element, count, parent}, (int32_t) known_places.size());
    if (added) {
        known_places.push_back(entry->first);
        visited.push_back(-1);
        n_kept += 16;
    }
    return entry->second;
}

// The state that holds these places and all that they lead to before anything is taken.
int32_t grammar::state_of(places & todo) {
    state   made;
    int64_t n_visited = 0;
    n_made++;
    byte_set bytes;
    while (!todo.empty()) {
        const int32_t id = todo.back();
        todo.pop_back();
        if (std::exchange(visited[id], n_made) == n_made) {
            continue;
        }
        n_work++;
        if (++n_visited > n_max_places) {
            throw grammar_error("it is too ambiguous: at one place the text can be read in more than " +
                                std::to_string(n_max_places) + " ways");
        }
        const place           p = known_places[id];
        const grammar_element e = rules.elements[p.element];
        if (e.what != grammar_element::rule) {
            made.all.push_back(id);
            made.may_end = made.may_end || e.what == grammar_element::end;
            made.has_token =
                made.has_token || e.what == grammar_element::token || e.what == grammar_element::other_token;
            bytes |= e.what == grammar_element::bytes ? rules.sets[e.value] : byte_set();
            continue;
        }
        if (p.count >= e.low) {
            todo.push_back(place_id(p.element + 1, 0, p.parent));
        }
        if (e.high >= 0 && p.count >= e.high) {
            continue;
        }
        const bool    endless = e.high < 0 && p.count >= e.low; // then the count says nothing any more
        const int32_t count   = p.count + (endless ? 0 : 1);
        const int32_t back =
            count == e.high ? place_id(p.element + 1, 0, p.parent) : place_id(p.element, count, p.parent);
        for (int32_t element : rules.starts[e.value]) {
            todo.push_back(place_id(element, 0, back));
        }
    }
    if (made.all.empty()) {
        return dead;
    }
    std::sort(made.all.begin(), made.all.end());
    const auto [entry, added] = state_ids.emplace(made.all, (int32_t) states.size());
    if (added) {
        made.n_bytes = (int32_t) bytes.count();
        made.next.assign(n_classes, unknown);
        n_kept += n_classes + 2 * (int64_t) made.all.size() + 32;
        states.push_back(std::move(made));
    }
    return entry->second;
}

int32_t grammar::step(int32_t from, uint8_t byte) {
    const int32_t known = states[from].next[class_of[byte]];
    if (known != unknown) {
        return known;
    }
    places todo;
    for (int32_t id : states[from].all) {
        const place           p = known_places[id];
        const grammar_element e = rules.elements[p.element];
        if (e.what == grammar_element::bytes && rules.sets[e.value][byte]) {
            todo.push_back(place_id(p.element + 1, 0, p.parent));
        }
    }
    n_work += (int64_t) states[from].all.size();
    if (n_work > n_max_work) {
        throw grammar_error("it is too ambiguous: it takes too long to find what may come next");
    }
    const int32_t to                  = state_of(todo);
    states[from].next[class_of[byte]] = to;
    return to;
}

// Elements that name a token take it whole, whatever its text.
void grammar::add_token_targets(int32_t from, llama_token token, places & out) {
    if (!states[from].has_token) {
        return;
    }
    for (int32_t id : states[from].all) {
        const place           p = known_places[id];
        const grammar_element e = rules.elements[p.element];
        if ((e.what == grammar_element::token && e.value == token) ||
            (e.what == grammar_element::other_token && e.value != token)) {
            out.push_back(place_id(p.element + 1, 0, p.parent));
        }
    }
}

int32_t grammar::step_by_text(int32_t from, std::string_view text) {
    for (size_t i = 0; i < text.size() && from != dead; i++) {
        n_work = 0;
        from   = step(from, (uint8_t) text[i]);
    }
    return from;
}

int32_t grammar::step_by_token(int32_t from, llama_token token) {
    if (from == dead) {
        return dead;
    }
    if (llama_vocab_is_eog(vocabulary->vocab, token) && states[from].may_end) {
        return from;
    }
    const std::string bytes = vocabulary->text(token);
    int32_t           to    = bytes.empty() ? dead : from;
    for (size_t i = 0; i < bytes.size() && to != dead; i++) {
        to = step(to, (uint8_t) bytes[i]);
    }
    places todo;
    add_token_targets(from, token, todo);
    if (todo.empty()) {
        return to;
    }
    if (to != dead) {
        todo.insert(todo.end(), states[to].all.begin(), states[to].all.end());
    }
    return state_of(todo);
}

// Every call begins here: tables that have grown too large go, and a text that was in them finds its place
// anew.
void grammar::begin(position & at) {
    n_work = 0;
    if (n_kept > n_max_kept) {
        reset();
    }
    if (std::exchange(at.n_resets, n_resets) != n_resets) {
        at.state = step_by_text(0, at.text);
        for (llama_token token : at.tokens) {
            n_work   = 0; // it was counted when the token came
            at.state = step_by_token(at.state, token);
        }
    }
}

bool grammar::allows(position & at, llama_token token) {
    const std::lock_guard<std::mutex> lock(mutex);
    begin(at);
    return step_by_token(at.state, token) != dead;
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

bool grammar::fits(position & at) {
    const std::lock_guard<std::mutex> lock(mutex);
    begin(at);
    return at.state != dead;
}

bool grammar::complete(position & at) {
    const std::lock_guard<std::mutex> lock(mutex);
    begin(at);
    return at.state != dead && states[at.state].n_bytes == 0 && !states[at.state].has_token;
}

bool grammar::few_may_follow(position & at) {
    const std::lock_guard<std::mutex> lock(mutex);
    begin(at);
    return at.state == dead || (states[at.state].n_bytes <= n_few_bytes && !states[at.state].has_token);
}

std::shared_ptr<const grammar::token_set> grammar::allowed(position & at) {
    const auto & tree = vocabulary->nodes(); // before the lock: the first time takes a while
    const std::lock_guard<std::mutex> lock(mutex);
    begin(at);
    const size_t n_tokens = (size_t) llama_vocab_n_tokens(vocabulary->vocab);
    if (at.state == dead) {
        return std::make_shared<token_set>(n_tokens);
    }
    if (states[at.state].allowed) {
        return states[at.state].allowed;
    }
    auto   set = std::make_shared<token_set>(n_tokens);
    places way = {at.state}; // the state before each byte of the node at hand
    for (int32_t i = 0; i < (int32_t) tree.size();) {
        const auto & node = tree[i];
        way.resize(node.depth + 1);
        const int32_t to = step(way.back(), node.byte);
        way.push_back(to);
        for (int32_t k = 0; k < node.n_tokens && to != dead; k++) {
            (*set)[vocabulary->by_text[node.first_token + k]] = true;
        }
        i = to == dead ? node.next : i + 1;
    }
    for (llama_token token : vocabulary->end_tokens) {
        (*set)[token] = states[at.state].may_end;
    }
    for (size_t token = 0; states[at.state].has_token && token < n_tokens; token++) {
        places targets;
        add_token_targets(at.state, (llama_token) token, targets);
        (*set)[token] = (*set)[token] || !targets.empty();
    }
    n_kept += (int64_t) n_tokens / 32;
    states[at.state].allowed = set;
    return set;
}

void grammar::prepare() {
    if (prepared.exchange(true)) {
        return; // whoever draws by it would wait for no new result
    }
    position at;
    try {
        allowed(at);
    } catch (const grammar_error &) { // it comes again, where a request can be told
    }
}
