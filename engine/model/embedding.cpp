#include "model/embedding.h"

#include <algorithm>
#include <cmath>

static const int32_t n_max_tokens = 8192;      // of a text at most; the second context has cells for so many
static const size_t  n_row_bytes  = 64u << 20; // of logits; llama.cpp computes them along with the vectors
static const int32_t n_texts      = 16;        // in one batch
static const int32_t n_chunk      = 512;       // tokens in one batch

static int64_t read_metadata(const llama_model * model, const std::string & name, int64_t otherwise) {
    char arch[128], value[64];
    if (llama_model_meta_val_str(model, "general.architecture", arch, sizeof(arch)) < 0 ||
        llama_model_meta_val_str(model, (arch + ("." + name)).c_str(), value, sizeof(value)) < 0) {
        return otherwise;
    }
    return strtoll(value, nullptr, 10);
}

embedding_facts read_embedding_facts(const llama_model * model, enum llama_pooling_type wanted) {
    embedding_facts e;
    const auto      pooling = read_metadata(model, "pooling_type", LLAMA_POOLING_TYPE_NONE);
    e.only                  = pooling != LLAMA_POOLING_TYPE_NONE;
    e.pooling               = e.only ? (enum llama_pooling_type) pooling : LLAMA_POOLING_TYPE_MEAN;
    if (wanted != LLAMA_POOLING_TYPE_UNSPECIFIED) {
        e.pooling = wanted;
    }
    e.n_dimensions = llama_model_n_embd_out(model);
    e.n_max        = std::min(llama_model_n_ctx_train(model), n_max_tokens);
    return e;
}

llama_context * make_embedding_context(const model_facts & facts, llama_context_params params) {
    const size_t row_bytes = (size_t) llama_vocab_n_tokens(facts.vocab) * sizeof(float);
    params.embeddings      = true;
    params.pooling_type    = LLAMA_POOLING_TYPE_NONE;
    params.kv_unified      = true;
    params.n_seq_max       = n_texts;
    params.n_batch         = (uint32_t) std::clamp((int32_t) (n_row_bytes / row_bytes), n_texts, n_chunk);
    params.n_ubatch        = params.n_batch;
    params.n_ctx           = (uint32_t) facts.embedding.n_max + params.n_batch;
    llama_context * ctx    = llama_init_from_model(const_cast<llama_model *>(facts.model), params);
    if (ctx && !llama_get_memory(ctx)) { // an encoder computes a text at once
        llama_free(ctx);
        params.n_batch = params.n_ubatch = std::max((uint32_t) facts.embedding.n_max, params.n_batch);
        ctx = llama_init_from_model(const_cast<llama_model *>(facts.model), params);
    }
    return ctx;
}

embedder::embedder(const model_facts & facts, const llama_context_params & params, llama_context * ctx)
    : facts(facts), params(params), ctx(ctx) {}

embedder::~embedder() {
    if (batch.token) {
        llama_batch_free(batch);
    }
}

bool embedder::make_context() {
    ctx = ctx ? ctx : make_embedding_context(facts, params);
    if (ctx && !batch.token) {
        batch = llama_batch_init((int32_t) llama_n_batch(ctx), 0, 1);
    }
    return ctx;
}

void embedder::reset_adapters() {
    if (ctx) {
        apply_adapters(ctx, {});
    }
}

bool embedder::has(const std::string & id) const {
    return std::any_of(jobs.begin(), jobs.end(), [&](const job & j) { return j.id == id; });
}

void embedder::submit(const std::string & id, std::vector<std::vector<llama_token>> && texts,
                      int32_t priority) {
    const auto is_later = [&](const job & x) {
        return x.priority > priority && x.i_text == 0 && x.n_done == 0; // the context has a begun text
    };
    job & j    = *jobs.emplace(std::find_if(jobs.begin(), jobs.end(), is_later));
    j.priority = priority;
    j.id       = id;
    j.texts    = std::move(texts);
    j.adapters = facts.adapters->defaults();
}

embedding_results embedder::cancel(const std::string & id) {
    const auto j = std::find_if(jobs.begin(), jobs.end(), [&](const job & x) { return x.id == id; });
    if (j == jobs.end()) {
        return {};
    }
    embedding_results results = {{}, {{id, (int64_t) j->i_text, j->n_tokens, ""}}};
    if (j == jobs.begin() && ctx && llama_get_memory(ctx)) {
        llama_memory_clear(llama_get_memory(ctx), false);
    }
    jobs.erase(j);
    return results;
}

// Fills the batch with complete texts and pieces of the first and the last text. The sequence id of a text is its
// number modulo n_texts.
std::vector<embedder::piece> embedder::fill(const job & j, int32_t n_max) {
    const bool    is_encoder = !llama_get_memory(ctx);
    const int32_t n_room =
        is_encoder ? (int32_t) llama_n_batch(ctx) : std::min(n_max, (int32_t) llama_n_batch(ctx));
    std::vector<piece> pieces;
    batch.n_tokens = 0;
    for (size_t i = j.i_text; i < j.texts.size() && pieces.size() < (size_t) n_texts; i++) {
        const auto &  text    = j.texts[i];
        const int32_t n_begin = i == j.i_text ? j.n_done : 0;
        const int32_t n_rest  = (int32_t) text.size() - n_begin;
        const int32_t n       = std::min(n_rest, n_room - batch.n_tokens);
        if (n == 0 || (is_encoder && n < n_rest)) {
            break;
        }
        pieces.push_back({i, batch.n_tokens, n});
        for (int32_t k = 0; k < n; k++) {
            const int32_t row    = batch.n_tokens++;
            batch.token[row]     = text[n_begin + k];
            batch.pos[row]       = n_begin + k;
            batch.n_seq_id[row]  = 1;
            batch.seq_id[row][0] = (llama_seq_id) (i % n_texts);
            batch.logits[row]    = true;
        }
    }
    return pieces;
}

embedding_results embedder::step(int32_t n_max) {
    if (!make_context()) {
        return fail("there is no memory for a second context, which embeddings need");
    }
    job &      j      = jobs.front();
    const auto pieces = fill(j, std::max(n_max, 1));
    apply_adapters(ctx, j.adapters);
    const int code = llama_decode(ctx, batch);
    if (code != 0) {
        return fail("llama_decode failed with code " + std::to_string(code));
    }
    llama_synchronize(ctx);
    embedding_results results;
    for (const piece & p : pieces) {
        take(j, p, results);
    }
    if (j.i_text == j.texts.size()) {
        results.ended.push_back({j.id, (int64_t) j.texts.size(), j.n_tokens, ""});
        jobs.pop_front();
    }
    return results;
}

// Adds a piece's token vectors to the sum of its text. The normalized sum of a complete text is a result.
void embedder::take(job & j, const piece & p, embedding_results & results) {
    const int32_t n_text = (int32_t) j.texts[p.i_text].size();
    j.sum.resize(facts.embedding.n_dimensions, 0.0);
    for (int32_t k = 0; k < p.n_tokens; k++) {
        const int32_t place  = j.n_done + k;
        const bool    counts = facts.embedding.pooling == LLAMA_POOLING_TYPE_MEAN ||
                               place == (facts.embedding.pooling == LLAMA_POOLING_TYPE_CLS ? 0 : n_text - 1);
        const float * vector = counts ? llama_get_embeddings_ith(ctx, p.i_first + k) : nullptr;
        for (size_t i = 0; vector && i < j.sum.size(); i++) {
            j.sum[i] += vector[i];
        }
    }
    j.n_done += p.n_tokens;
    if (j.n_done < n_text) {
        return;
    }
    double square = 0.0;
    for (const double x : j.sum) {
        square += x * x;
    }
    for (double & x : j.sum) {
        x = square > 0 && std::isfinite(square) ? x / std::sqrt(square) : 0.0;
    }
    results.vectors.push_back({j.id, (int64_t) p.i_text, n_text, std::move(j.sum)});
    if (llama_get_memory(ctx)) {
        llama_memory_seq_rm(llama_get_memory(ctx), (llama_seq_id) (p.i_text % n_texts), -1, -1);
    }
    j.n_tokens += n_text;
    j.i_text++;
    j.n_done = 0;
    j.sum.clear();
}

embedding_results embedder::fail(const std::string & message) {
    embedding_results results = {{}, {{jobs.front().id, 0, 0, message}}};
    jobs.pop_front();
    if (ctx && llama_get_memory(ctx)) {
        llama_memory_clear(llama_get_memory(ctx), false);
    }
    return results;
}
