#include "schedule/draft_model.h"

#include "cache/cells.h"
#include "model/fit.h"
#include "rows/row_scan.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>

static const int32_t n_batch         = 512;   // tokens of its prompts that a step computes, at most
static const int32_t n_default_ctx   = 16384; // cells, where the command line says nothing
static const double  least_chance    = 0.2; // of all guesses of a text; a less likely one is not worth a row
static const size_t  n_worth_waiting = 16;  // tokens that another text computes in this call
static const size_t  n_near          = 32;  // tokens that are always computed
static const int32_t n_first         = 64;  // tokens of a prompt that are computed before their time is known
static const double  part_of_step    = 0.5; // that computing a prompt may take
static const double  part_of_gain    = 0.5; // and of what its guesses may save
static const int64_t n_rest_calls    = 200;
static const int32_t n_vocab_apart   = 128; // tokens that one of both vocabularies may have more: padding
static const int32_t n_special = 5; // first tokens that may have other names (as llama.cpp compares them)

std::unique_ptr<draft_model> draft_model::load(const common_params & params) {
    common_params                         own   = params;
    const common_params_speculative_draft draft = params.speculative.draft;
    own.model                                   = draft.mparams;
    own.devices                                 = draft.devices.empty() ? params.devices : draft.devices;
    own.n_gpu_layers                            = draft.n_gpu_layers;
    own.tensor_buft_overrides                   = draft.tensor_buft_overrides;
    own.cache_type_k                            = draft.cache_type_k;
    own.cache_type_v                            = draft.cache_type_v;
    own.kv_overrides.clear(); // those of the large model
    own.load_progress_callback = nullptr;
    own.n_parallel             = std::min(params.n_parallel, n_batch);

    const std::string & path  = own.model.path;
    llama_model * const model = llama_model_load_from_file(path.c_str(), common_model_params_to_llama(own));
    const auto          fail  = [&](const char * why) {
        fprintf(stderr, "llama-batched: %s (--spec-draft-model) %s\n", path.c_str(), why);
        llama_model_free(model);
        return nullptr;
    };
    if (!model) {
        return fail("cannot be loaded");
    }
    llama_context_params cparams = common_context_params_to_llama(own);
    cparams.n_ctx =
        (uint32_t) (params.n_ctx > 0 ? params.n_ctx : std::min(default_n_ctx(model, own), n_default_ctx));
    cparams.n_batch = cparams.n_ubatch = n_batch;
    cparams.n_seq_max                  = (uint32_t) own.n_parallel;
    cparams.n_outputs_max_per_seq      = 0;
    cparams.pooling_type               = LLAMA_POOLING_TYPE_UNSPECIFIED;
    llama_context * const ctx          = llama_init_from_model(model, cparams);
    const bool            has_cells    = ctx && llama_get_memory(ctx);
    if (!has_cells || serve_as_a_whole(ctx)) {
        llama_free(ctx);
        return fail(has_cells ? "cannot guess: its cells cannot be truncated behind a wrong guess"
                              : "gets no context that generates");
    }
    return std::unique_ptr<draft_model>(new draft_model(path, model, ctx, own.n_parallel));
}

draft_model::draft_model(std::string path, llama_model * model, llama_context * ctx, int32_t n_tracks)
    : path(std::move(path)), model(model), ctx(ctx), batch(llama_batch_init(n_batch, 0, 1)),
      tracks((size_t) n_tracks) {}

draft_model::~draft_model() {
    llama_batch_free(batch);
    llama_free(ctx);
    llama_model_free(model);
}

bool draft_model::fits(const llama_model * large, const std::string & large_path) const {
    const llama_vocab *const own = llama_model_get_vocab(model), *theirs = llama_model_get_vocab(large);
    const int32_t            n = llama_vocab_n_tokens(own), n_theirs = llama_vocab_n_tokens(theirs);
    const auto               differs = [&](const std::string & what) {
        fprintf(
            stderr,
            "llama-batched: %s cannot guess for %s: %s; --spec-draft-model must name a model with the same "
            "tokens\n",
            path.c_str(), large_path.c_str(), what.c_str());
        return false;
    };
    if (llama_vocab_type(own) != llama_vocab_type(theirs)) {
        return differs("their tokenizers are of two kinds");
    }
    if (std::abs(n - n_theirs) > n_vocab_apart) {
        return differs("they have " + std::to_string(n) + " and " + std::to_string(n_theirs) + " tokens");
    }
    if (llama_vocab_get_add_bos(own) != llama_vocab_get_add_bos(theirs) ||
        (llama_vocab_get_add_bos(own) && llama_vocab_bos(own) != llama_vocab_bos(theirs))) {
        return differs("their texts begin with other tokens");
    }
    for (llama_token token = n_special; token < std::min(n, n_theirs); token++) {
        const std::string name  = llama_vocab_get_text(own, token),
                          other = llama_vocab_get_text(theirs, token);
        if (name != other) {
            return differs("token " + std::to_string(token) + " is \"" + name + "\" and \"" + other + "\"");
        }
    }
    return true;
}

// That of the same sequence, a free one, or the one that was not needed for longest.
draft_model::track * draft_model::track_of(const draft_text & text) {
    const auto is_own = [&](const track & t) { return t.owner == text.owner; };
    const auto own    = std::find_if(tracks.begin(), tracks.end(), is_own);
    if (own != tracks.end()) {
        return &*own;
    }
    const auto is_older = [](const track & a, const track & b) { return a.last_call < b.last_call; };
    track &    oldest   = *std::min_element(tracks.begin(), tracks.end(), is_older);
    return oldest.last_call == n_calls ? nullptr : &oldest;
}

static size_t count_equal(const std::vector<llama_token> & tokens, const draft_text & text) {
    const size_t n = std::min(tokens.size(), text.size());
    size_t       i = 0;
    while (i < n && tokens[i] == text.at(i)) {
        i++;
    }
    return i;
}

// A text that is new here shares the cells of the one that begins most alike. False: that one gets them in this call.
bool draft_model::share_longest(track & own, const draft_text & text, size_t & n_equal) {
    const llama_memory_t memory = llama_get_memory(ctx);
    const track *        best   = nullptr;
    for (const track & other : tracks) {
        const size_t n = &other == &own ? 0 : count_equal(other.tokens, text);
        if (n > n_equal) {
            n_equal = n;
            best    = &other;
        }
    }
    if (!best) {
        return true;
    }
    if (best->last_call == n_calls) { // its last tokens may be in this batch
        const auto is_of  = [&](int32_t i) { return batch.seq_id[i][0] == id_of(*best); };
        size_t     n_made = best->tokens.size();
        for (int32_t i = 0; i < batch.n_tokens; i++) {
            n_made -= is_of(i) ? 1 : 0;
        }
        if (n_equal > n_made + n_worth_waiting) {
            return false;
        }
        n_equal = std::min(n_equal, n_made);
    }
    llama_memory_seq_rm(memory, id_of(own), -1, -1);
    llama_memory_seq_cp(memory, id_of(*best), id_of(own), 0, (llama_pos) n_equal);
    own.tokens.assign(best->tokens.begin(), best->tokens.begin() + (std::ptrdiff_t) n_equal);
    return true;
}

void draft_model::add(guessing & one, llama_token token, bool wants_row) {
    const int32_t i    = batch.n_tokens++;
    batch.token[i]     = token;
    batch.pos[i]       = (llama_pos) one.own->tokens.size();
    batch.n_seq_id[i]  = 1;
    batch.seq_id[i][0] = id_of(*one.own);
    batch.logits[i]    = wants_row;
    one.own->tokens.push_back(token);
    one.i_row = wants_row ? i : -1;
}

// Adds the tokens that the track does not have to the batch, at most n_room.
void draft_model::catch_up(guessing & one, const draft_text & text, int32_t n_room) {
    track *      own     = one.own;
    const size_t n       = text.size();
    size_t       n_equal = own->owner == text.owner ? std::min(count_equal(own->tokens, text), n - 1) : 0;
    if (own->owner != text.owner) {
        if (!share_longest(*own, text, n_equal)) {
            return;
        }
        own->owner = text.owner;
        n_equal    = std::min(n_equal, n - 1);
    }
    own->last_call = n_calls;
    llama_memory_seq_rm(llama_get_memory(ctx), id_of(*own), (llama_pos) n_equal, -1);
    own->tokens.resize(n_equal);
    const bool is_near =
        n - n_equal <= n_near || (double) (n - n_equal) * t_token < part_of_gain * text.t_worth;
    const size_t end = std::min(n, n_equal + (size_t) (is_near ? std::max(n_room, 0) : 0));
    for (size_t i = n_equal; i < end; i++) {
        add(one, text.at(i), i + 1 == n);
    }
}

// False: what the cells have is unknown, so it is forgotten; asked too often for more than there are, it rests.
bool draft_model::decode() {
    if (llama_decode(ctx, batch) == 0) {
        return true;
    }
    llama_memory_clear(llama_get_memory(ctx), false);
    std::fill(tracks.begin(), tracks.end(), track());
    n_rest = n_calls + n_rest_calls;
    return false;
}

// Takes the likeliest token of the text's row, if all guesses together are likely enough.
void draft_model::extend(guessing & one) const {
    candidate_buffer &  buffer  = buffer_of_thread();
    const float * const logits  = llama_get_logits_ith(ctx, one.i_row);
    const int32_t       n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    one.i_row                   = -1;
    choose_likeliest(buffer, logits, n_vocab, 1);
    if (buffer.chosen.empty()) { // a row may hold NaN
        return;
    }
    sort_chosen(buffer, 1);
    const llama_token_data best = buffer.chosen[0];
    one.chance *= std::exp(best.logit - log_sum_exp(buffer, logits, n_vocab));
    if (one.chance >= least_chance) {
        one.guesses.push_back(best.id);
    }
}

static void follow(double & mean, double t) {
    mean += mean == 0.0 ? t : 0.1 * (std::min(t, 2.0 * mean) - mean);
}

// Forgets texts that were not asked for last, the oldest first, until there is room even if the others share nothing.
void draft_model::make_room() {
    const auto n_cells  = [](size_t sum, const track & t) { return sum + t.tokens.size(); };
    const auto is_older = [](const track & a, const track & b) {
        return (a.tokens.empty() ? INT64_MAX : a.last_call) < (b.tokens.empty() ? INT64_MAX : b.last_call);
    };
    while (std::accumulate(tracks.begin(), tracks.end(), (size_t) n_batch, n_cells) > llama_n_ctx(ctx)) {
        track & oldest = *std::min_element(tracks.begin(), tracks.end(), is_older);
        if (oldest.tokens.empty() || oldest.last_call + 1 >= n_calls) {
            break;
        }
        llama_memory_seq_rm(llama_get_memory(ctx), id_of(oldest), -1, -1);
        oldest = track();
    }
}

std::vector<std::vector<llama_token>> draft_model::guess(const std::vector<draft_text> & texts,
                                                         int32_t n_most, double t_step) {
    std::vector<std::vector<llama_token>> made(texts.size());
    std::vector<guessing>                 all(texts.size());
    if (++n_calls < n_rest) {
        return made;
    }
    make_room();
    batch.n_tokens       = 0;
    const int32_t n_room = t_token == 0.0 ? n_first
                                          : (int32_t) std::clamp(part_of_step * t_step / t_token,
                                                                 (double) n_near, (double) n_batch);
    for (size_t i = 0; i < texts.size(); i++) {
        guessing & one      = all[i];
        const bool has_room = texts[i].size() + (size_t) n_most < llama_n_ctx(ctx);
        one.own             = has_room && texts[i].size() > 0 ? track_of(texts[i]) : nullptr;
        if (one.own && batch.n_tokens < n_room) {
            catch_up(one, texts[i], n_room - batch.n_tokens);
        }
    }
    for (int32_t n = 0; n < n_most && batch.n_tokens > 0; n++) {
        const int64_t t_begin  = ggml_time_us();
        const int32_t n_tokens = batch.n_tokens;
        const bool    is_round = n_tokens <= 3 * (int32_t) texts.size(); // no prompt
        if (!decode()) {
            return made;
        }
        batch.n_tokens = 0;
        for (guessing & one : all) {
            const size_t n_before = one.guesses.size();
            if (one.i_row >= 0) {
                extend(one);
            }
            if (one.guesses.size() > n_before && n + 1 < n_most) {
                add(one, one.guesses.back(), true);
            }
        }
        const double t = (double) (ggml_time_us() - t_begin);
        if (is_round) {
            follow(t_round, t);
        } else if (n_tokens >= (int32_t) n_near) {
            follow(t_token, t / n_tokens);
        }
    }
    for (size_t i = 0; i < texts.size(); i++) {
        made[i] = std::move(all[i].guesses);
    }
    return made;
}

const char * drafts_from(const llama_context * ctx, const draft_model * model) {
    return !llama_get_memory(ctx) || serve_as_a_whole(ctx) ? "none" : model ? "model" : "texts";
}
