#include "model/text_queue.h"

#include <algorithm>

bool text_job::take(const text_piece & p) {
    n_done += p.n_tokens;
    seq_id = p.seq_id;
    if (n_done < (int32_t) texts[p.i_text].size()) {
        return false;
    }
    n_tokens += n_done;
    n_done = 0;
    i_text++;
    return true;
}

void text_job::share_beginning() {
    const auto & first = texts.front();
    size_t       n     = texts.size() > 1 ? first.size() : 0;
    for (const auto & text : texts) {
        const size_t n_most = std::min(n, text.size());
        n = (size_t) (std::mismatch(text.begin(), text.begin() + (ptrdiff_t) n_most, first.begin()).first -
                      text.begin());
        n = std::min(n, text.empty() ? 0 : text.size() - 1);
    }
    n_shared = (int32_t) n;
}

text_job * text_queue::find(const std::string & id) {
    const auto j = std::find_if(jobs.begin(), jobs.end(), [&](const text_job & x) { return x.id == id; });
    return j == jobs.end() ? nullptr : &*j;
}

void text_queue::submit(text_job && job) {
    const auto is_later = [&](const text_job & x) { return x.priority > job.priority && !x.has_begun(); };
    jobs.insert(std::find_if(jobs.begin(), jobs.end(), is_later), std::move(job));
}

void text_queue::remove(const text_job & job) {
    jobs.remove_if([&](const text_job & x) { return &x == &job; });
    if (jobs.empty()) {
        turns.forget();
    }
}

void text_queue::restart() {
    for (text_job & job : jobs) {
        job.n_done = 0;
        job.sum.clear();
    }
}

int32_t text_queue::priority() const {
    const auto before = [](const text_job & a, const text_job & b) { return a.priority < b.priority; };
    return std::min_element(jobs.begin(), jobs.end(), before)->priority;
}

// The first job of each client, of the first priority; a text that has begun ends whatever its priority, since others may
// wait for its cells.
std::vector<text_job *> text_queue::in_turn() {
    const int32_t           first = priority();
    std::vector<text_job *> next;
    for (text_job & job : jobs) {
        const auto is_same = [&](const text_job * other) { return other->client == job.client; };
        if ((job.priority == first || job.has_begun()) && std::none_of(next.begin(), next.end(), is_same)) {
            next.push_back(&job);
        }
    }
    std::stable_sort(next.begin(), next.end(), [this](const text_job * a, const text_job * b) {
        return turns.last_of(a->client) < turns.last_of(b->client);
    });
    return next;
}

// Whether this text may be begun and not completed: there are cells for one that is longer than a batch, and for one that
// is not.
bool text_queue::may_begin(const text_job & job, const batch_limits & limits, size_t i) const {
    const auto is_long = [&](const text_job & x, size_t i_text) {
        return x.texts[i_text].size() > (size_t) limits.n_batch;
    };
    const auto holds = [&](const text_job & x) {
        return &x != &job && x.has_begun() && is_long(x, x.i_text) == is_long(job, i);
    };
    return limits.in_pieces && std::none_of(jobs.begin(), jobs.end(), holds);
}

bool text_queue::others_wait(const text_job & job) const {
    return std::any_of(jobs.begin(), jobs.end(), [&](const text_job & x) {
        return x.client != job.client || x.priority < job.priority;
    });
}

llama_seq_id text_queue::free_id(const std::vector<text_piece> & pieces) const {
    llama_seq_id id   = 0;
    const auto   used = [&] {
        return std::any_of(pieces.begin(), pieces.end(), [&](const auto & p) { return p.seq_id == id; }) ||
               std::any_of(jobs.begin(), jobs.end(),
                           [&](const auto & x) { return x.has_begun() && x.seq_id == id; });
    };
    while (used()) {
        id++;
    }
    return id;
}

// Complete texts, and pieces of the first and the last one. While others wait no piece of the last one is begun: it would
// keep the cells that they may wait for.
std::vector<text_piece> text_queue::pieces_of(const text_job & job, const batch_limits & limits) const {
    int32_t n_all     = 0;
    bool    is_shared = false; // a text is begun in this batch, so that others find the rows there
    std::vector<text_piece> pieces;
    for (size_t i = job.i_text; i < job.texts.size() && pieces.size() < (size_t) n_texts; i++) {
        const bool    goes_on  = i == job.i_text && job.has_begun();
        const int32_t n_before = goes_on ? job.n_done : 0;
        const int32_t n_shared = is_shared ? job.n_shared : 0;
        const int32_t n_rest   = (int32_t) job.texts[i].size() - n_before - n_shared;
        const int32_t n        = std::min(n_rest, limits.n_max - n_all);
        const bool    stays    = n < n_rest && !goes_on;
        if (n == 0 || (stays && ((!pieces.empty() && others_wait(job)) || !may_begin(job, limits, i)))) {
            break;
        }
        pieces.push_back({i, n_before, n_shared + n, goes_on ? job.seq_id : free_id(pieces), n_shared});
        n_all += n;
        is_shared = !goes_on;
    }
    return pieces;
}

text_batch text_queue::next(const batch_limits & limits) {
    for (text_job * job : in_turn()) {
        std::vector<text_piece> pieces = pieces_of(*job, limits);
        if (!pieces.empty()) {
            turns.take(job->client);
            return {job, std::move(pieces)};
        }
    }
    return {};
}
