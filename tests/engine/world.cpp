#include "world.h"

#include "cases.h"

#include <cctype>
#include <cstring>
#include <set>

//
// letters
//

std::string letters::piece(llama_token token, bool) const {
    if (token == 0) {
        return "";
    }
    if (token == 27) {
        return " ";
    }
    const char letter = (char) ('a' + (token <= 26 ? token - 1 : token - 31));
    return token <= 26 ? std::string(1, letter) : std::string{letter, (char) (letter + 1)};
}

llama_token letters::token(char letter) {
    return letter == '$' ? 0 : letter == ' ' ? 27 : isupper(letter) ? 31 + letter - 'A' : 1 + letter - 'a';
}

std::vector<llama_token> letters::tokens(const std::string & text) {
    std::vector<llama_token> tokens(text.size());
    std::transform(text.begin(), text.end(), tokens.begin(), token);
    return tokens;
}

//
// cells
//

void test_cells::copy(llama_seq_id from, llama_seq_id to, llama_pos begin, llama_pos end) {
    for (const auto & [position, cell] : by_id[from]) {
        if (begin < 0 || (position >= begin && position < end)) {
            by_id[to][position] = cell;
        }
    }
}

void test_cells::remove(llama_seq_id id, llama_pos begin) {
    auto & own = by_id[id];
    own.erase(own.lower_bound(std::max(begin, 0)), own.end());
}

size_t test_cells::n_bytes(llama_seq_id id) const {
    return by_id.count(id) ? by_id.at(id).size() * 2 * sizeof(int32_t) : 0;
}

// A cell that no id has any more is read as zeros.
class test_reader final : public cell_reader {
  public:
    explicit test_reader(
        const std::map<llama_seq_id, std::map<llama_pos, std::shared_ptr<llama_token>>> & by_id)
        : by_id(by_id) {}

    bool add(llama_seq_id id, uint8_t * data, size_t) override {
        for (const auto & [position, cell] : by_id.at(id)) {
            left.push_back({position, cell, data});
            data += 2 * sizeof(int32_t);
        }
        return true;
    }
    size_t advance(size_t) override {
        if (left.empty()) {
            return 0;
        }
        const one_cell & next   = left.back();
        const int32_t    pair[] = {next.position, next.cell.expired() ? 0 : *next.cell.lock()};
        memcpy(next.to, pair, sizeof(pair));
        left.pop_back();
        return sizeof(pair);
    }

  private:
    struct one_cell {
        llama_pos                  position;
        std::weak_ptr<llama_token> cell;
        uint8_t *                  to;
    };
    const std::map<llama_seq_id, std::map<llama_pos, std::shared_ptr<llama_token>>> & by_id;
    std::vector<one_cell>                                                             left;
};

std::unique_ptr<cell_reader> test_cells::reader() {
    return std::make_unique<test_reader>(by_id);
}

bool test_cells::write(llama_seq_id id, const uint8_t * data, size_t n_all) {
    by_id[id].clear();
    for (size_t i = 0; i < n_all; i += 2 * sizeof(int32_t)) {
        int32_t pair[2];
        memcpy(pair, data + i, sizeof(pair));
        by_id[id][pair[0]] = std::make_shared<llama_token>(pair[1]);
    }
    expect(n_used() <= facts.n_cells, "restored cells exceed the KV cache");
    return true;
}

void test_cells::decode(const step_plan & plan) {
    std::vector<cell> made;
    for (const planned_token & t : plan.tokens) {
        made.push_back(std::make_shared<llama_token>(t.token));
        const bool is_new = by_id[t.cells->seq_id].emplace(t.position, made.back()).second;
        expect(is_new, "a cell is decoded twice");
    }
    for (const sharing_sequence & s : plan.sharing) {
        by_id[s.cells->seq_id][plan.tokens[(size_t) s.i_token].position] = made[(size_t) s.i_token];
    }
    expect(n_used() <= facts.n_cells, "the step needs more cells than there are");
}

int32_t test_cells::n_used() const {
    std::set<const llama_token *> used;
    for (const auto & [id, own] : by_id) {
        for (const auto & [position, cell] : own) {
            used.insert(cell.get());
        }
    }
    return (int32_t) used.size();
}

std::vector<llama_token> test_cells::tokens_of(llama_seq_id id) const {
    std::vector<llama_token> tokens;
    const auto               own = by_id.find(id);
    if (own != by_id.end()) {
        for (const auto & [position, cell] : own->second) {
            expect(position == (llama_pos) tokens.size(), "the cells of a sequence have a gap");
            tokens.push_back(*cell);
        }
    }
    return tokens;
}

//
// the world
//

static planner_params planning(const world_params & p) {
    return {p.n_parallel, p.n_batch, p.n_vocab, p.recurrent, p.drafts};
}

static store_params storing(const world_params & p) {
    store_params store;
    store.ram_bytes = p.ram_bytes;
    return store;
}

static model_facts facts_of(const world_params & p) {
    model_facts facts;
    facts.n_ctx_seq = p.n_ctx_seq;
    return facts;
}

world::world(const world_params & p)
    : cells({p.n_cells, p.n_ids, p.recurrent, p.on_device, 8}),
      prefixes(cells, vocab, p.n_idle, p.n_parallel, storing(p)), admits(p.n_parallel),
      plans(planning(p), vocab), updates{vocab, prefixes.tree, out}, facts(facts_of(p)),
      n_parallel(p.n_parallel) {}

static word_finder_ptr finder_of(const std::vector<std::string> & words) {
    return words.empty() ? nullptr : std::make_shared<const word_finder>(words);
}

request & world::ask(const asked & a) {
    auto settings                     = std::make_shared<sequence_settings>();
    settings->n_min                   = a.min_tokens;
    settings->ends.finder             = finder_of(a.stop);
    settings->ends.tokens             = a.stop_tokens;
    settings->ends.shown              = a.returns_stop;
    settings->banned.finder           = finder_of(a.banned);
    settings->loops                   = a.loops;
    settings->sampling.guidance_scale = a.guided ? 2.0f : 1.0f;
    if (!a.then.empty()) {
        auto second         = std::make_shared<sequence_settings>(*settings);
        second->n_predict   = 2;
        second->n_min       = 0;
        second->ends.finder = finder_of(a.then_stop);
        settings->second    = std::make_shared<const second_answer>(
            second_answer{second, letters::tokens(a.then), a.return_free});
    }
    command c;
    c.id      = a.id;
    c.request = std::make_unique<generate_command>();

    generate_command & g = *c.request;
    g.prompt             = letters::tokens(a.prompt);
    g.negative           = letters::tokens(a.negative);
    g.is_guided          = a.guided;
    g.n_draft            = a.draft;
    g.continue_from      = a.continues;
    g.common.settings    = settings;
    g.common.n_predict   = a.max_tokens;
    g.client             = a.client;
    g.cache              = a.cache;
    g.echo               = a.echo;
    g.return_ids         = a.return_ids;
    g.entropies          = a.entropies;
    g.sum_logprobs       = a.sum_logprobs;
    g.certainty          = a.certainty;
    g.finish             = {a.first > 0, a.first};
    g.prune              = {a.marks, a.keep, true};
    g.n_logprobs         = a.logprobs || !a.scored.empty() ? 0 : -1;
    g.mark_duplicates    = !a.dedupe.empty();
    g.retry_duplicates   = a.dedupe == "again";
    g.adapters.key       = a.adapters;
    g.adapters.cells_key = a.salt == 0 ? a.adapters : 1000 * a.salt + a.adapters;
    g.priority           = a.priority;
    for (const std::string & text : a.scored) {
        g.texts.push_back({letters::tokens(text), 0});
    }
    g.sequences.assign(a.scored.empty() ? (size_t) a.n : 0, g.common);
    requests.queue.push_back(make_request(std::move(c), requests, history, facts, vocab, prefixes.tree));
    return *requests.queue.back();
}

void world::extend(const std::string & id, int32_t n, int32_t fork, int32_t at) {
    command c;
    c.id              = id;
    c.extension.n_add = n;
    c.extension.fork  = {"", fork, at};
    extend_request(requests.find(id), c, vocab);
}

step_plan world::plan() {
    for (auto & r : requests.active) {
        end_full(*r, updates);
        pass_prune_points(*r, n_parallel, updates);
    }
    requests.active.remove_if([this](auto & r) { return finish_request(*r, history, updates); });
    admits.preempt_later(requests, prefixes);
    admits.admit(requests, prefixes.tree);
    step_plan plan = plans.plan(requests, prefixes, rows);
    for (const request * r : plan.begun) {
        begin_request(*r, updates);
    }
    return plan;
}

// The next letter; one that is followed by * serves any number of rows.
static llama_token next_token(const std::string & sampled, size_t & i) {
    expect(i < sampled.size(), "more rows are sampled than the test gives letters for");
    const char letter = sampled[i];
    i += sampled.compare(i + 1, 1, "*") != 0;
    return letters::token(letter);
}

// Each sequence has a row behind its prompt and its tokens, and a guided one a second one behind the negative prompt.
void world::check_rows(const std::vector<planned_rows> & rows) const {
    for (const planned_rows & p : rows) {
        const sequence & s    = *p.s;
        const auto       with = [&](const std::vector<llama_token> & prompt, size_t n) {
            std::vector<llama_token> tokens = prompt;
            for (size_t i = 0; i < n; i++) {
                tokens.push_back(s.kind->token_at(s, i));
            }
            return tokens;
        };
        const size_t n_guessed = s.draft.left.size();
        const size_t n         = (size_t) (s.cells->n_past() - p.r->n_prompt()) - n_guessed;
        auto         expected  = with(p.r->command->prompt, n);
        expected.insert(expected.end(), s.draft.left.begin(), s.draft.left.end());
        expect(cells.tokens_of(s.cells->seq_id) == expected, "a row is behind other tokens");
        expect(n_guessed == 0 || p.i_drafts >= 0, "guesses are of an earlier step");
        expect(s.is_guided() == (s.negative != nullptr),
               "a sequence lacks a set of cells, or has one too many");
        if (s.negative) {
            expect(n == s.generated.size() && p.i_negative >= 0, "a row is not the next one, or is alone");
            expect(cells.tokens_of(s.negative->seq_id) == with(p.r->command->negative, n),
                   "a negative row is behind other tokens");
        }
    }
}

void world::finish(const step_plan & plan, const std::string & sampled, int64_t t_us) {
    cells.decode(plan);
    plans.decoded(plan, t_us);
    std::vector<planned_rows> all = plan.rows;
    for (const planned_prompt & p : plan.prompts) {
        const float no_logits = 0.0f;
        rows.add(p.r->command->prompt, p.r->cells_key(), &no_logits, 1);
        for (const planned_rows & started : plans.start_sequences(p, requests, prefixes.tree)) {
            all.push_back(started);
        }
    }
    check_rows(all);
    size_t     i      = 0;
    const auto sample = [&](std::vector<::sample> & samples, const planned_rows & p, int32_t k) {
        const auto given = p.s->kind->given_token(*p.s, (size_t) k);
        ::sample & d     = samples.emplace_back();
        d.r              = p.r;
        d.s              = p.s;
        d.known          = given.has_value();
        d.token          = given ? *given : draws ? draws(*p.r, *p.s) : next_token(sampled, i);
        d.greedy         = d.known && d.token != letters::token('z');
        d.score          = {-0.5f, (float) d.token};
        d.entropy        = (float) d.token;
        d.logprobs       = "\"" + vocab.piece(d.token, true) + "\"";
    };
    std::vector<::sample> samples;
    for (const planned_rows & p : all) {
        for (int32_t k = 0; k < p.n_rows; k++) {
            sample(samples, p, k);
        }
    }
    take_samples(samples, updates);
    for (int32_t k = 1; !samples.empty(); k++) {
        samples.clear();
        for (const planned_rows & p : plan.rows) {
            if (has_row_of_guess(p, k)) {
                check_rows({p});
                sample(samples, p, 0);
            }
        }
        take_samples(samples, updates);
    }
    plans.count_guesses(plan);
    expect(i == sampled.size() || sampled.back() == '*', "the test gives more letters than rows are sampled");
    plans.measured(plan, t_us);
    requests.active.remove_if([this](auto & r) { return finish_request(*r, history, updates); });
    expect_equal(std::to_string(cells.n_used()), std::to_string(prefixes.tree.counts().n_used),
                 "cells in use, as the memory has them and as the tree counts them");
}

std::string world::step(const std::string & sampled, int64_t t_us) {
    const step_plan   made = plan();
    const std::string text = made.to_string();
    finish(made, sampled, t_us);
    return text;
}

std::string world::take_events() {
    std::string text;
    size_t      begin = 0;
    for (size_t end; (end = out.find('\n', begin)) != std::string::npos; begin = end + 1) {
        const auto event = nlohmann::ordered_json::parse(out.substr(begin, end - begin));
        text += event["id"].get<std::string>() + " " + event["event"].get<std::string>();
        for (const auto & [name, value] : event.items()) {
            if (name != "event" && name != "id" && name != "timings" && name != "seed") {
                text += " " + name + "=" + (value.is_string() ? value.get<std::string>() : value.dump());
            }
        }
        if (event.contains("timings") && event["timings"].contains("saved_tokens")) {
            text += " saved_tokens=" + event["timings"]["saved_tokens"].dump();
        }
        text += "\n";
    }
    out.clear();
    return text;
}

std::string world::running() const {
    std::string text;
    for (const auto & r : requests.active) {
        for (const sequence & s : r->sequences) {
            if (s.cells) {
                text += (text.empty() ? "" : " ") + r->id + "." + std::to_string(s.index);
            }
        }
    }
    return text;
}

std::string world::lists() const {
    std::string text;
    for (const auto & r : requests.active) {
        text += r->id + " ";
    }
    text += "|";
    for (const auto & r : requests.queue) {
        text += " " + r->id;
    }
    return text;
}

void sampled_row::run() const {
    world w;
    w.ask(request);
    for (const char * letters : sampled) {
        w.step(letters);
    }
    expect_equal(expected, w.take_events());
    expect(w.requests.empty(), "the request has not ended");
}
