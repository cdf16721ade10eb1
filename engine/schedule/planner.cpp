#include "schedule/planner.h"

#include "schedule/prompt_planner.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>

static const int64_t t_prefill_us = 100000;  // of prefill in a step in which sequences decode, too
static const size_t  n_indexed    = 1 << 13; // tokens of a request, in a step, for its guesses: some 0.1 ms
static const size_t  n_row_bytes  = 128u << 20; // of logits, of the texts that are scored in one step

// The youngest sequence that waits, at a prune point or for a row, gives up its slot; its cells stay as an idle branch while
// there is room. False: none waits.
static bool park_waiting(request_lists & requests, prefix_tree & tree, int32_t last_priority) {
    for (auto it = requests.active.rbegin(); it != requests.active.rend(); ++it) {
        request & r = **it;
        if (r.priority() > last_priority || r.pruning.n_at_points + r.n_outside == r.n_parked) {
            continue;
        }
        const auto s = std::find_if(r.sequences.rbegin(), r.sequences.rend(),
                                    [](const sequence & s) { return s.cells && s.waits(); });
        free_sequence(tree, r, *s, true);
        return true;
    }
    return false;
}

bool make_slot(request_lists & requests, prefix_tree & tree, const request & r, int32_t n_parallel) {
    while (!may_start(tree, requests.n_slots(r.priority()), r.n_sets(), n_parallel)) {
        if (!park_waiting(requests, tree, r.priority())) {
            return false;
        }
    }
    return true;
}

namespace {

using row_group = std::vector<planned_rows *>;

// At what comes next in the texts of a group, which are equal.
struct guesses {
    row_group                rows;
    int32_t                  n_room = 0; // tokens at most
    std::vector<llama_token> tokens;     // of which the offer's n_most may be taken
    draft_offer              offer;

    void take() { offer.n_most = std::max(std::min((int32_t) tokens.size(), n_room), 0); }
    // How many are right, on average.
    double expected() const { return offer.rates->expected(offer.why, offer.n_most); }
};

// Plans sequences, of the requests that the plan serves.
class sequence_planner {
  public:
    sequence_planner(const planner_params & params, request_lists & requests, prefix_tree & tree,
                     planner_turns & turns, const vocabulary & vocab, step_plan & plan)
        : params(params), requests(requests), tree(tree), turns(turns), vocab(vocab), plan(plan) {}

    void plan_late_starts();
    void plan_running();
    void plan_background();
    void plan_drafts(const step_curve & curve, guess_rates & rates);
    void guess_by_model(std::vector<guesses> & all, const step_curve & curve);
    void add_drafts(const guesses & found, int32_t n);

  private:
    // One of the two sets of cells of a sequence: those of its prompt, or of the negative prompt; and the row of it.
    struct half {
        branch * sequence::* cells;
        int32_t planned_rows::* i_row;
    };

    bool                   share_row(request & r, sequence & s, size_t i_first);
    int32_t                find_row(const sequence & s, half which, llama_token next, size_t i_first);
    void                   add_tokens(request & r, sequence & s, int32_t n_max);
    void                   add_guided(request & r, sequence & s, int32_t n_max, size_t i_first);
    int32_t                n_missing(const request & r, const sequence & s) const;
    int32_t                n_missing_negative(const request & r, const sequence & s) const;
    int32_t                n_needed() const;
    std::vector<row_group> may_guess();
    bool                   open_late(const request & r, sequence & s);
    branch *               open_like(const request & r, const sequence & s, branch * prompt,
                                     const std::vector<llama_token> & tokens);

    request *              next_to_start() const;
    std::vector<request *> in_background() const;

    const planner_params & params;
    request_lists &        requests;
    prefix_tree &          tree;
    planner_turns &        turns;
    const vocabulary &     vocab;
    step_plan &            plan;
};

// Sequences whose texts are still equal are decoded once: one token with several sequence ids, one row.
bool sequence_planner::share_row(request & r, sequence & s, size_t i_first) {
    if (n_missing(r, s) != 1) {
        return false;
    }
    const llama_token next  = r.token_at(s, s.cells->n_past());
    const int32_t     i_row = find_row(s, {&sequence::cells, &planned_rows::i_row}, next, i_first);
    if (i_row >= 0) {
        plan.rows.push_back({&r, &s, i_row, 1});
    }
    return i_row >= 0;
}

// The row of another sequence of this request, from i_first on, with the same cells and the same next token, which this
// one now shares; -1: there is none.
int32_t sequence_planner::find_row(const sequence & s, half which, llama_token next, size_t i_first) {
    branch * const own = s.*which.cells;
    if (params.stops_short || own->n_own() > 0) {
        return -1;
    }
    for (size_t i = i_first; i < plan.rows.size(); i++) {
        branch * const leader = plan.rows[i].s->*which.cells;
        if (leader && leader->tokens.back() == next && tree.follows(*own, *leader)) {
            const int32_t i_row = plan.rows[i].*which.i_row;
            plan.sharing.push_back({i_row, own});
            tree.share_last(own, leader);
            return i_row;
        }
    }
    return -1;
}

int32_t sequence_planner::n_missing(const request & r, const sequence & s) const {
    return r.n_wanted(s) - s.cells->n_past();
}

int32_t sequence_planner::n_missing_negative(const request & r, const sequence & s) const {
    return s.negative ? r.n_wanted(s) - r.n_prompt() + r.n_negative() - s.negative->n_past() : 0;
}

// The tokens of a running sequence that have no cells yet: one, or more when it is resumed or scored. Rows are wanted
// from the last token on that was sampled or scored.
void sequence_planner::add_tokens(request & r, sequence & s, int32_t n_max) {
    const int32_t n_known = r.n_prompt() + (int32_t) s.generated.size();
    const int32_t n       = std::min(n_missing(r, s), n_max);
    planned_rows  own     = {&r, &s, -1, 0};
    for (int32_t k = 0; k < n && plan.n_tokens() < params.n_batch; k++) {
        const int32_t i   = s.cells->n_past();
        const bool    row = i + 1 >= n_known;
        if (row && own.n_rows++ == 0) {
            own.i_row = plan.n_tokens();
        }
        plan.add(s.cells, r.token_at(s, i), row);
    }
    if (own.n_rows > 0) {
        plan.rows.push_back(own);
    }
}

// The same of a guided sequence, in both of its sets of cells. It is sampled from two rows of one step, so in neither set
// is the last token computed before the other one's may be.
void sequence_planner::add_guided(request & r, sequence & s, int32_t n_max, size_t i_first) {
    const int32_t n_batch  = params.n_batch - plan.n_tokens();
    const int32_t n[]      = {n_missing(r, s), n_missing_negative(r, s)};
    const bool    whole    = std::max(n[0], n[1]) <= n_chunk && n[0] + n[1] <= std::min(n_max, n_batch);
    const half    halves[] = {{&sequence::cells, &planned_rows::i_row},
                              {&sequence::negative, &planned_rows::i_negative}};
    planned_rows  own      = {&r, &s, -1, 1};
    const size_t  n_before = plan.tokens.size();
    for (size_t h = 0; h < 2; h++) {
        branch * const cells  = s.*halves[h].cells;
        const int32_t  n_left = n_max - (int32_t) (plan.tokens.size() - n_before);
        const int32_t  n_now  = whole ? n[h] : std::min({n[h] - 1, n_chunk, n_left});
        for (int32_t k = n_now; k > 0 && plan.n_tokens() < params.n_batch; k--) {
            const llama_token next =
                h == 0 ? r.token_at(s, cells->n_past()) : r.negative_at(s, cells->n_past());
            const bool last  = whole && k == 1;
            int32_t &  i_row = own.*halves[h].i_row;
            i_row            = n_now == 1 && last ? find_row(s, halves[h], next, i_first) : -1;
            if (i_row < 0) {
                i_row = plan.n_tokens();
                plan.add(cells, next, last);
            }
        }
    }
    if (whole) {
        plan.rows.push_back(own);
    }
}

// The cells that running sequences, and the oldest request's prompt, need in this step.
int32_t sequence_planner::n_needed() const {
    int32_t n = 0;
    for (const auto & r : requests.active) {
        for (const sequence & s : r->sequences) {
            const bool runs = s.cells && !s.pruning.waits && !s.outside && plan.whose.serves(*r);
            n += runs ? std::min(n_missing(*r, s), s.kind->n_urgent()) +
                            std::min(n_missing_negative(*r, s), s.kind->n_urgent())
                      : 0;
        }
    }
    if (!requests.active.empty()) {
        const request & oldest = *requests.active.front();
        n += oldest.prompt.cells && !oldest.prompt.ready && plan.whose.serves(oldest)
                 ? std::min(oldest.n_prompt_missing(), n_chunk)
                 : 0;
    }
    return std::min(n, params.n_batch);
}

// Running sequences come first, with cells for all of them and for the oldest request's prompt; the youngest are
// preempted if there are too few cells.
void sequence_planner::plan_running() {
    while (n_needed() > tree.counts().n_room() &&
           (park_waiting(requests, tree, INT32_MAX) || preempt_youngest(requests, tree))) {
    }
    // Beside pins the last sequence may have fewer cells than it needs (end_stuck).
    const int32_t n_wanted = n_needed(), n_room = tree.make_room(n_wanted);
    for (auto & r : requests.active) {
        const size_t i_first = plan.rows.size();
        for (sequence & s : r->sequences) {
            const bool    runs   = s.cells && !s.pruning.waits && !s.outside && !s.kind->is_background() &&
                                   plan.whose.serves(*r);
            const int32_t n_most = n_room < n_wanted ? n_room - plan.n_tokens() : 2 * n_chunk;
            if (runs && s.negative) {
                add_guided(*r, s, n_most, i_first);
            } else if (runs && !share_row(*r, s, i_first)) {
                add_tokens(*r, s, std::min(n_chunk, n_most));
            }
        }
    }
}

// Rows that may have guesses: of sampled sequences. Those that share one are a group; the first one has the cell.
std::vector<row_group> sequence_planner::may_guess() {
    std::map<int32_t, row_group> groups;
    std::set<int32_t>            not_plain;
    for (planned_rows & p : plan.rows) {
        const sequence & s  = *p.s;
        const bool is_plain = p.n_rows == 1 && !s.negative && !s.kind->is_background() &&
                              p.r->command->n_draft > 0 && s.sampling.n_forced == 0 && !s.generated.empty() &&
                              !s.plan.settings->processor;
        if (p.i_row >= 0 && is_plain) {
            groups[p.i_row].push_back(&p);
        } else {
            not_plain.insert(p.i_row);
        }
    }
    std::vector<row_group> found;
    for (auto & [i_row, group] : groups) {
        const bool leads = plan.tokens[(size_t) i_row].cells == group[0]->s->cells;
        if (leads && not_plain.count(i_row) == 0) {
            found.push_back(std::move(group));
        }
    }
    return found;
}

// The prompt, earlier answers, then the sequences' tokens, as the request's index has them.
static std::vector<const std::vector<llama_token> *> texts_of(request & r) {
    std::vector<const std::vector<llama_token> *> texts = {&r.command->prompt};
    for (const auto & answer : r.drafts.earlier) {
        texts.push_back(&answer);
    }
    for (const sequence & s : r.sequences) {
        texts.push_back(&s.generated);
    }
    size_t n_left = n_indexed;
    for (size_t i = 0; i < texts.size(); i++) {
        n_left -= r.drafts.index.add((uint32_t) i, *texts[i], n_left);
    }
    return texts;
}

// The tokens of what a sequence's grammar allows only. The last one is not sure if more follows: it may be a longer one.
static void guess_by_grammar(guesses & found, const vocabulary & vocab) {
    token_sampler * const sampler = found.rows[0]->s->sampling.sampler.get();
    const auto            text    = sampler ? sampler->certain() : grammar::certain_text();
    if (!text.bytes.empty()) {
        found.tokens           = vocab.tokenize(text.bytes);
        found.offer.why.n_sure = (int32_t) found.tokens.size() - (text.is_whole ? 0 : 1);
    }
}

// What stood behind the same tokens before.
static void guess_by_texts(guesses & found, const std::vector<const std::vector<llama_token> *> & texts) {
    const request &   r     = *found.rows[0]->r;
    const uint32_t    first = 1 + (uint32_t) r.drafts.earlier.size(); // of the sequences
    const uint32_t    own   = first + (uint32_t) found.rows[0]->s->index;
    const draft_place place = r.drafts.index.find(own, texts);
    if (place.n_equal > 0) {
        const auto begin = texts[place.text]->begin() + place.end;
        found.tokens.assign(begin,
                            begin + std::min<int64_t>(texts[place.text]->end() - begin, r.command->n_draft));
        found.offer.why = {place.text == 0      ? draft_source::prompt
                           : place.text < first ? draft_source::earlier
                           : place.text == own  ? draft_source::own
                                                : draft_source::siblings,
                           place.n_equal, 0};
    }
}

// The better of both guesses for each of the groups; all are of one request.
static std::vector<guesses> guesses_of(const std::vector<row_group> & groups, const vocabulary & vocab) {
    request &            r     = *groups[0][0]->r;
    const auto           texts = texts_of(r);
    std::vector<guesses> found;
    r.drafts.rates->fade();
    for (const row_group & rows : groups) {
        const int32_t n_left   = r.prompt.n_ctx - r.n_prompt() - (int32_t) rows[0]->s->generated.size() - 1;
        guesses       sure     = {rows, std::min(n_left, r.command->n_draft), {}, {}}, said;
        sure.offer.rates       = &*r.drafts.rates;
        sure.offer.n_sequences = (int32_t) rows.size();
        said                   = sure;
        guess_by_grammar(sure, vocab);
        guess_by_texts(said, texts);
        sure.take();
        said.take();
        found.push_back(std::move(sure.expected() >= said.expected() ? sure : said));
    }
    return found;
}

static const double n_of_texts = 0.5; // right ones, on average: with fewer a draft model is asked, too

// Of what texts and grammars say little about a draft model is asked, if its time is worth it.
void sequence_planner::guess_by_model(std::vector<guesses> & all, const step_curve & curve) {
    std::vector<guesses *>  open;
    std::vector<draft_text> texts;
    int32_t                 n_most = 0;
    for (guesses & one : all) {
        if (one.n_room > 0 && one.expected() < n_of_texts) {
            const planned_rows & p = *one.rows[0];
            open.push_back(&one);
            texts.push_back({{p.r->number, p.s->index}, &p.r->command->prompt, &p.s->generated, 0});
            n_most = std::max(n_most, one.n_room);
        }
    }
    if (open.empty()) {
        return;
    }
    const int64_t t_begin = ggml_time_us();
    const auto    n_rows  = (int32_t) plan.rows.size();
    const double  t_step  = curve.at(plan.n_tokens());
    const auto    worth   = choose_rounds(*open[0]->offer.rates, curve, plan.n_tokens(), n_rows,
                                          (int32_t) open.size(), params.drafts->t_round_us(), n_most);
    if (worth.n > 0) {
        for (size_t i = 0; i < open.size(); i++) {
            const planned_rows & p = *open[i]->rows[0];
            texts[i].t_worth       = worth.t_gain * (double) n_left_of(*p.r, *p.s) / (double) open.size();
        }
        auto made = params.drafts->guess(texts, worth.n, t_step);
        for (size_t i = 0; i < open.size(); i++) {
            const auto is_none = [&](llama_token token) { return token >= params.n_vocab; };
            made[i].erase(std::find_if(made[i].begin(), made[i].end(), is_none), made[i].end());
            if (!made[i].empty()) {
                open[i]->tokens    = std::move(made[i]);
                open[i]->offer.why = {draft_source::model, 0, 0};
                open[i]->take();
            }
        }
    }
    plan.t_guessing = ggml_time_us() - t_begin;
}

// Guesses come last, in cells and places of the batch that nobody else wants. Other requests of the step may wait for them
// a twentieth of its time.
void sequence_planner::plan_drafts(const step_curve & curve, guess_rates & rates) {
    const int32_t n_tokens = plan.n_tokens();
    const auto    wants    = [](const planned_rows & p) { return p.r->command->n_draft > 0; };
    if (params.stops_short || n_tokens >= step_curve::n_max || plan.n_prefill > 0 || !plan.prompts.empty() ||
        std::none_of(plan.rows.begin(), plan.rows.end(), wants)) {
        return;
    }
    std::map<request *, std::vector<row_group>> by_request;
    for (row_group & rows : may_guess()) {
        by_request[rows[0]->r].push_back(std::move(rows));
    }
    std::vector<guesses> all;
    rates.fade();
    for (const auto & [r, groups] : by_request) {
        if (!r->drafts.rates) {
            r->drafts.rates = rates.few();
        }
        for (guesses & one : guesses_of(groups, vocab)) {
            all.push_back(std::move(one));
        }
    }
    const bool is_alone = std::all_of(plan.rows.begin(), plan.rows.end(),
                                      [&](const planned_rows & p) { return p.r == plan.rows[0].r; });
    if (params.drafts && is_alone) { // its time is that of all
        guess_by_model(all, curve);
    }
    std::vector<draft_offer> offers;
    for (const guesses & one : all) {
        offers.push_back(one.offer);
    }
    const int32_t n_room = std::min(params.n_batch - n_tokens, tree.counts().n_free());
    const auto    n_rows = (int32_t) plan.rows.size();
    const auto    taken  = choose_drafts(offers, curve, n_tokens, n_rows, n_room, is_alone ? HUGE_VAL : 1.05);
    for (size_t i = 0; i < all.size(); i++) {
        if (all[i].offer.n_most > 0) {
            add_drafts(all[i], taken[i]);
        }
    }
}

// The first sequence of a group has the cells, and the others share them.
void sequence_planner::add_drafts(const guesses & found, int32_t n) {
    const std::vector<llama_token> tokens(found.tokens.begin(), found.tokens.begin() + n);
    for (planned_rows * const p : found.rows) {
        p->s->draft = {{tokens.begin(), tokens.end()}, n, 0, found.offer.why};
        p->i_drafts = n > 0 ? plan.n_tokens() : -1;
    }
    branch * const leader = found.rows[0]->s->cells;
    for (const llama_token token : tokens) {
        plan.add(leader, token, true);
        for (size_t i = 1; i < found.rows.size(); i++) {
            branch * const own = found.rows[i]->s->cells;
            plan.sharing.push_back({plan.n_tokens() - 1, own});
            tree.share_last(own, leader);
        }
    }
}

// The requests with texts that are scored: clients take turns at being the first of a step, and each one's are in the
// order of their age.
std::vector<request *> sequence_planner::in_background() const {
    std::vector<request *> found;
    for (auto & r : requests.active) {
        if (plan.whose.serves(*r) && !r->command->texts.empty()) {
            found.push_back(r.get());
        }
    }
    std::stable_sort(found.begin(), found.end(), [this](const request * a, const request * b) {
        return turns.background.last_of(a->command->client) < turns.background.last_of(b->command->client);
    });
    return found;
}

// Texts that are scored are computed in chunks as prompts are.
void sequence_planner::plan_background() {
    const size_t  row_bytes = (size_t) params.n_vocab * sizeof(float);
    const int32_t n_rows    = (int32_t) std::max(n_row_bytes / row_bytes, (size_t) 1);
    int32_t       n_budget  = std::min(n_rows, plan.n_tokens() > 0 ? n_chunk : params.n_batch);
    for (request * r : in_background()) {
        const int32_t n_first = n_budget;
        for (sequence & s : r->sequences) {
            if (s.cells && n_budget > 0) {
                const int32_t n_before = plan.n_tokens();
                add_tokens(*r, s, tree.make_room(std::min(n_missing(*r, s), n_budget)));
                n_budget -= plan.n_tokens() - n_before;
            }
        }
        if (n_budget < n_first) {
            turns.background.take(r->command->client);
        }
    }
}

// Of the client with the fewest running sequences, and among such clients of the one whose last start is the longest ago,
// the request with the fewest running ones: neither a large n nor many requests keep others out.
request * sequence_planner::next_to_start() const {
    std::map<std::string, int32_t> n_live;
    for (const auto & r : requests.active) {
        n_live[r->command->client] += r->priority() == plan.whose.priority ? r->n_live * r->n_sets() : 0;
    }
    const auto place = [&](const request & r) {
        const std::string & client = r.command->client;
        return std::make_tuple(n_live[client], turns.starts.last_of(client), r.n_live);
    };
    request * next = nullptr;
    for (auto & r : requests.active) {
        if (r->priority() == plan.whose.priority && r->prompt.cells && r->prompt.ready &&
            r->n_waiting() > 0 && (!next || place(*r) < place(*next))) {
            next = r.get();
        }
    }
    return next;
}

// Sequences that could not start with their prompt: n exceeds the free slots, they were preempted, or the model is
// recurrent. They share the prompt but for its last token, decode that token again, and have a row of logits of their
// own.
void sequence_planner::plan_late_starts() {
    request * next = nullptr;
    while ((next = next_to_start()) && make_slot(requests, tree, *next, params.n_parallel)) {
        const auto s = std::find_if(next->sequences.begin(), next->sequences.end(),
                                    [](const sequence & s) { return !s.over && !s.cells && !s.waits(); });
        if (!open_late(*next, *s)) {
            return;
        }
        s->cells->copying.n_rivals = (int32_t) next->sequences.size();
        next->n_live++;
        turns.starts.take(next->command->client);
        if (next->n_waiting() == 0) {
            drop_prompt(tree, *next);
        }
    }
}

// False: live branches have all ids.
bool sequence_planner::open_late(const request & r, sequence & s) {
    s.cells = open_like(r, s, r.prompt.cells, r.command->prompt);
    if (s.cells && s.is_guided()) {
        s.negative = open_like(r, s, r.prompt.negative, r.command->negative);
        if (!s.negative) {
            tree.remove(s.cells);
            s.cells = nullptr;
        }
    }
    return s.cells;
}

// A sequence with tokens shares the cells that it had before it was preempted, or those of the sequence that it is
// forked from, or the prompt's. prompt: its cells; tokens: of it.
branch * sequence_planner::open_like(const request & r, const sequence & s, branch * prompt,
                                     const std::vector<llama_token> & tokens) {
    const uint64_t           key = r.cells_key();
    std::vector<llama_token> all = tokens;
    all.insert(all.end(), s.generated.begin(), s.generated.end());
    const int32_t n  = (int32_t) all.size() - 1;
    const auto match = s.generated.empty() ? branch_match{{n, n}, prompt} : tree.find(all, n, by_tokens, key);
    branch * const opened = tree.open(key, match.from, match.length);
    if (opened) {
        opened->hidden = !r.command->cache;
    }
    return opened;
}

// The first priority comes first; of one priority, the set of adapters that follows the last step's.
std::vector<turn> turns_in_order(const request_lists & requests, uint64_t last_adapters) {
    std::vector<turn> turns;
    for (const auto & r : requests.active) {
        if (std::none_of(turns.begin(), turns.end(), [&](const turn & t) { return t.serves(*r); })) {
            turns.push_back({r->priority(), &r->command->adapters});
        }
    }
    for (auto first = turns.begin(); first != turns.end();) {
        const auto is_other = [&](const turn & t) { return t.priority != first->priority; };
        const auto is_last  = [&](const turn & t) { return t.adapters->key == last_adapters; };
        const auto end      = std::find_if(first, turns.end(), is_other);
        const auto last     = std::find_if(first, end, is_last);
        if (last != end) {
            std::rotate(first, last + 1, end);
        }
        first = end;
    }
    return turns;
}

} // namespace

// A context has one set of adapters at a time, so all requests of a step have the same set; the sets alternate.
step_plan planner::plan(request_lists & requests, prefix_cache & cache, row_list & rows) {
    step_plan made;
    if (requests.active.empty()) {
        turns = {};
    }
    for (const turn & t : turns_in_order(requests, last_adapters)) {
        if (!made.empty()) {
            break;
        }
        made.whose    = t;
        last_adapters = t.adapters->key;
        sequence_planner sequences(params, requests, cache.tree, turns, vocab, made);
        sequences.plan_late_starts();
        sequences.plan_running();
        prompt_planner(params, requests, cache, rows, turns.prompts, made).plan_prompts(n_prefill_budget);
        sequences.plan_background();
        sequences.plan_drafts(curve, rates);
    }
    return made;
}

void planner::measured(const step_plan & plan, int64_t t_us) {
    if (plan.n_tokens() > 0) {
        curve.add(plan.n_prefill == 0 ? plan.n_tokens() : 0, t_us);
    }
}

void planner::count_guesses(const step_plan & plan) {
    for (const planned_rows & p : plan.rows) {
        if (p.i_drafts >= 0) {
            const draft_state & draft = p.s->draft;
            rates.add(draft.why, draft.n_guessed, draft.n_drawn);
            p.r->drafts.rates->add(draft.why, draft.n_guessed, draft.n_drawn);
            p.r->drafts.n_guessed += draft.n_guessed;
            p.r->drafts.n_right += draft.n_drawn;
            guessed[draft.why.source].n++;
            guessed[draft.why.source].n_guessed += draft.n_guessed;
            guessed[draft.why.source].n_right += draft.n_drawn;
        }
    }
}

void planner::decoded(const step_plan & plan, int64_t t_us) {
    if (plan.n_prefill >= n_prefill_min) {
        n_prefill_budget = (int32_t) (t_prefill_us * plan.n_tokens() / (t_us + 1));
        t_token_us       = (double) t_us / plan.n_tokens();
    }
    for (const planned_token & t : plan.tokens) {
        t.cells->n_decoded = t.cells->n_past();
    }
    for (const sharing_sequence & s : plan.sharing) {
        s.cells->n_decoded = s.cells->n_past();
    }
}

void planner::undo(const step_plan & plan, request_lists & requests, prefix_tree & tree) const {
    for (const planned_token & t : plan.tokens) {
        tree.undo_last(t.cells);
    }
    for (const sharing_sequence & s : plan.sharing) {
        tree.undo_last(s.cells);
    }
    for (const planned_rows & p : plan.rows) {
        p.s->draft = {};
    }
    for (auto & r : requests.active) {
        prompt_state & prompt = r->prompt;
        const auto     has    = [](const branch * b, int32_t n) { return b && b->n_past() >= n - 1; };
        const bool     ready  = prompt.ready && has(prompt.cells, r->n_prompt()) &&
                                (!r->is_guided() || has(prompt.negative, r->n_negative()));
        if (prompt.ready && prompt.cells && !ready) { // this step would have completed it
            prompt.computed = false;
        }
        prompt.ready = ready;
    }
}

// The oldest request keeps one sequence, or its prompt, so that something progresses.
bool preempt_youngest(request_lists & requests, prefix_tree & tree, std::optional<int32_t> later_than) {
    for (auto it = requests.active.rbegin(); it != requests.active.rend(); ++it) {
        request &  r      = **it;
        const bool oldest = !later_than && &r == requests.active.front().get();
        if (later_than && r.priority() <= *later_than) {
            return false;
        }
        for (auto s = r.sequences.rbegin(); s != r.sequences.rend(); ++s) {
            if (s->cells && !(oldest && r.n_live == 1)) {
                free_sequence(tree, r, *s, true);
                return true;
            }
        }
        if (r.prompt.cells && (!oldest || r.n_live == 1)) {
            drop_prompt(tree, r);
            return true;
        }
    }
    return false;
}

std::vector<planned_rows> planner::start_sequences(const planned_prompt & prompt,
                                                   const request_lists & requests, prefix_tree & tree) {
    request &                 r = *prompt.r;
    std::vector<planned_rows> started;
    r.prompt.ready = r.prompt.computed = true;
    for (sequence & s : r.sequences) {
        if (s.over || s.cells || s.outside || !s.generated.empty() || r.is_full(s)) {
            continue;
        }
        if (!may_start(tree, requests.n_slots(r.priority()), 1, params.n_parallel) ||
            !(s.cells = tree.open(r.cells_key(), r.prompt.cells, r.n_prompt()))) {
            continue;
        }
        s.cells->copying.n_rivals = (int32_t) r.sequences.size();
        started.push_back({&r, &s, prompt.i_row, 1});
        r.n_live++;
        turns.starts.take(r.command->client);
    }
    if (r.n_waiting() == 0 && r.prompt.cells && !r.is_pin()) {
        drop_prompt(tree, r);
    }
    return started;
}
