#include "model/embedding.h"

#include <algorithm>
#include <cmath>
#include <utility>

static const int32_t n_max_tokens = 8192;      // of a text at most
static const size_t  n_row_bytes  = 64u << 20; // of logits; llama.cpp computes them along with the vectors
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
    e.only         = e.only || e.ranks();
    e.n_dimensions = e.ranks() ? (int32_t) llama_model_n_cls_out(model) : llama_model_n_embd_out(model);
    e.n_max        = std::min(llama_model_n_ctx_train(model), n_max_tokens);
    return e;
}

llama_context * make_embedding_context(const model_facts & facts, llama_context_params params) {
    const size_t row_bytes = (size_t) llama_vocab_n_tokens(facts.vocab) * sizeof(float);
    params.embeddings      = true;
    params.pooling_type    = facts.embedding.ranks() ? LLAMA_POOLING_TYPE_RANK : LLAMA_POOLING_TYPE_NONE;
    params.kv_unified      = true;
    params.n_seq_max       = text_queue::n_ids;
    params.n_batch = (uint32_t) std::clamp((int32_t) (n_row_bytes / row_bytes), text_queue::n_texts, n_chunk);
    params.n_ubatch     = params.n_batch;
    params.n_ctx        = (uint32_t) facts.embedding.n_max + 2 * params.n_batch; // as text_queue counts them
    llama_context * ctx = llama_init_from_model(const_cast<llama_model *>(facts.model), params);
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
        batch = llama_batch_init((int32_t) llama_n_batch(ctx), 0, text_queue::n_texts);
    }
    return ctx;
}

void embedder::reset_adapters() {
    if (ctx) {
        apply_adapters(ctx, {});
    }
}

void embedder::submit(const std::string & id, const std::string & client,
                      std::vector<std::vector<llama_token>> && texts, int32_t priority) {
    text_job j;
    j.id       = id;
    j.client   = client;
    j.texts    = std::move(texts);
    j.priority = priority;
    j.adapters = facts.adapters->defaults();
    if (facts.embedding.ranks() && llama_get_memory(ctx)) {
        j.share_beginning();
    }
    queue.submit(std::move(j));
}

embedding_results embedder::cancel(const std::string & id) {
    text_job * const j = queue.find(id);
    if (!j) {
        return {};
    }
    if (j->has_begun()) {
        llama_memory_seq_rm(llama_get_memory(ctx), j->seq_id, -1, -1);
    }
    embedding_results results = {{}, {{id, (int64_t) j->i_text, j->n_tokens, ""}}};
    queue.remove(*j);
    return results;
}

batch_limits embedder::limits(int32_t n_max) const {
    const int32_t n_batch   = (int32_t) llama_n_batch(ctx);
    const bool    in_pieces = llama_get_memory(ctx);
    return {in_pieces ? std::min(n_max, n_batch) : n_batch, n_batch, in_pieces};
}

void embedder::fill(const text_batch & b) {
    batch.n_tokens = 0;
    for (const text_piece & p : b.pieces) {
        for (int32_t k = p.n_before + p.n_shared; k < p.n_before + p.n_tokens; k++) {
            const int32_t row   = batch.n_tokens++;
            batch.token[row]    = b.job->texts[p.i_text][(size_t) k];
            batch.pos[row]      = k;
            batch.n_seq_id[row] = 0;
            for (const text_piece & other : b.pieces) {
                if (&other == &p || (p.n_before == 0 && k < other.n_shared)) {
                    batch.seq_id[row][batch.n_seq_id[row]++] = other.seq_id;
                }
            }
            batch.logits[row] = true;
        }
    }
}

embedding_results embedder::step(int32_t n_max) {
    if (!make_context()) {
        return fail(queue.first(), "there is no memory for a second context, which embeddings need");
    }
    const text_batch b = queue.next(limits(std::max(n_max, 1)));
    text_job &       j = *b.job;
    fill(b);
    apply_adapters(ctx, j.adapters);
    const int code = llama_decode(ctx, batch);
    if (code != 0) {
        return fail(j, "llama_decode failed with code " + std::to_string(code));
    }
    llama_synchronize(ctx);
    embedding_results results;
    int32_t           i_first = 0;
    for (const text_piece & p : b.pieces) {
        take(j, p, i_first, results);
        i_first += p.n_tokens - p.n_shared;
    }
    if (j.is_done()) {
        results.ended.push_back({j.id, (int64_t) j.texts.size(), j.n_tokens, ""});
        queue.remove(j);
    }
    return results;
}

// Adds a piece's token vectors to the sum of its text, as far as they count.
void embedder::add(text_job & j, const text_piece & p, int32_t i_first) const {
    const auto    pooling = facts.embedding.pooling;
    const int32_t last    = (int32_t) j.texts[p.i_text].size() - 1;
    j.sum.resize(facts.embedding.n_dimensions, 0.0);
    for (int32_t k = 0; k < p.n_tokens; k++) {
        const int32_t place = p.n_before + k;
        const bool    counts =
            pooling == LLAMA_POOLING_TYPE_MEAN || place == (pooling == LLAMA_POOLING_TYPE_CLS ? 0 : last);
        const float * vector = counts ? llama_get_embeddings_ith(ctx, i_first + k) : nullptr;
        for (size_t i = 0; vector && i < j.sum.size(); i++) {
            j.sum[i] += vector[i];
        }
    }
}

// Of a complete text: the normalized sum, or what the head has made of its last piece.
std::vector<double> embedder::vector_of(text_job & j, const text_piece & p) const {
    if (facts.embedding.ranks()) {
        const float * const made = llama_get_embeddings_seq(ctx, p.seq_id);
        return {made, made + facts.embedding.n_dimensions};
    }
    double square = 0.0;
    for (const double x : j.sum) {
        square += x * x;
    }
    for (double & x : j.sum) {
        x = square > 0 && std::isfinite(square) ? x / std::sqrt(square) : 0.0;
    }
    return std::exchange(j.sum, {});
}

void embedder::take(text_job & j, const text_piece & p, int32_t i_first, embedding_results & results) {
    const int32_t n_text = (int32_t) j.texts[p.i_text].size();
    if (!facts.embedding.ranks()) {
        add(j, p, i_first);
    }
    if (!j.take(p)) {
        return;
    }
    results.vectors.push_back({j.id, (int64_t) p.i_text, n_text, vector_of(j, p)});
    if (llama_get_memory(ctx)) {
        llama_memory_seq_rm(llama_get_memory(ctx), p.seq_id, -1, -1);
    }
}

// The content of the cells is unknown now.
embedding_results embedder::fail(text_job & j, const std::string & message) {
    embedding_results results = {{}, {{j.id, 0, 0, message}}};
    queue.remove(j);
    queue.restart();
    if (ctx && llama_get_memory(ctx)) {
        llama_memory_clear(llama_get_memory(ctx), false);
    }
    return results;
}
