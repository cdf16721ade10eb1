#include "model/self_test.h"

#include "ggml-backend.h"
#include "ggml-cpp.h"
#include "ggml.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

// The types of weights in files. It takes seconds to quantise to some types, so their bits are drawn at random, except the
// high byte of each block's scale, which is at the offset `scale`. (For IQ1_M, four bits of it.)
static const struct weight_type {
    ggml_type type;
    int       scale = -1; // -1: quantised from random numbers
} weight_types[] = {
    {GGML_TYPE_F32},       {GGML_TYPE_F16},      {GGML_TYPE_BF16},       {GGML_TYPE_Q4_0},
    {GGML_TYPE_Q4_1},      {GGML_TYPE_Q5_0},     {GGML_TYPE_Q5_1},       {GGML_TYPE_Q8_0},
    {GGML_TYPE_Q2_K},      {GGML_TYPE_Q3_K},     {GGML_TYPE_Q4_K},       {GGML_TYPE_Q5_K},
    {GGML_TYPE_Q6_K},      {GGML_TYPE_IQ1_S, 1}, {GGML_TYPE_IQ1_M, 55},  {GGML_TYPE_IQ2_XXS, 1},
    {GGML_TYPE_IQ2_XS, 1}, {GGML_TYPE_IQ2_S, 1}, {GGML_TYPE_IQ3_XXS, 1}, {GGML_TYPE_IQ3_S, 1},
    {GGML_TYPE_IQ4_NL},    {GGML_TYPE_IQ4_XS},   {GGML_TYPE_TQ1_0},      {GGML_TYPE_TQ2_0},
    {GGML_TYPE_MXFP4},
};

static const int    column_counts[] = {1, 2, 3, 4, 8, 32};
static const int    n_batched       = 8; // so many columns come as two batches
static const int    n_columns_max   = 32;
static const int    n_values        = 512; // of a row and of a column: two blocks of the largest kind
static const int    n_rows    = 96;   // a multiple of what all layouts need: 32 for AMX, 8 or 16 for others
static const int    n_used    = 2;    // experts of a column
static const double max_error = 5e-4; // mean square, normalised as in llama.cpp's test-backend-ops

static const int expert_counts[] = {1, 4}; // that the rows are divided among; 1: a product without experts

//
// signals
//

static char at_work[160]; // the name of the current test

static void name_fault(int signal_number) {
    char      line[256];
    const int n =
        snprintf(line, sizeof(line), "llama-batched: self-test: %s: signal %d\n", at_work, signal_number);
    if (write(STDERR_FILENO, line, (size_t) n) < 0) {
        _exit(1);
    }
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void name_faults() {
    for (const int number : {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGABRT}) {
        signal(number, name_fault);
    }
}

//
// weights as in a file, and their values
//

struct weights {
    ggml_type            type;
    std::vector<uint8_t> data;
    std::vector<float>   values;
};

static std::vector<float> random_values(int n, unsigned seed) {
    std::mt19937                    generator(seed);
    std::normal_distribution<float> normal;
    std::vector<float>              values((size_t) n);
    for (float & x : values) {
        x = normal(generator);
    }
    return values;
}

static std::vector<uint8_t> random_blocks(ggml_type type, int scale) {
    const size_t         n_block = ggml_type_size(type);
    std::mt19937         generator(1);
    std::vector<uint8_t> blocks(n_rows * ggml_row_size(type, n_values));
    for (size_t i = 0; i < blocks.size(); i++) {
        blocks[i] = (uint8_t) generator();
        if (i % n_block == (size_t) scale) {
            blocks[i] = 0x24 | (blocks[i] & 0x03); // 2^-6 to 2^-5 as F16
        }
    }
    return blocks;
}

static weights make_weights(const weight_type & kind) {
    const ggml_type type = kind.type;
    weights         made = {type, {}, random_values(n_rows * n_values, 1)};
    if (kind.scale < 0) {
        made.data.resize(n_rows * ggml_row_size(type, n_values));
        ggml_quantize_chunk(type, made.values.data(), made.data.data(), 0, n_rows, n_values, nullptr);
    } else {
        made.data = random_blocks(type, kind.scale);
    }
    if (type != GGML_TYPE_F32) {
        ggml_get_type_traits(type)->to_float(made.data.data(), made.values.data(), n_rows * n_values);
    }
    return made;
}

static double exact_product(const weights & w, int row, const float * column) {
    double sum = 0.0;
    for (int i = 0; i < n_values; i++) {
        sum += (double) w.values[(size_t) (row * n_values + i)] * column[i];
    }
    return sum;
}

// The experts that each column chooses, n_used of them or one: some get no column, one or several.
static std::vector<int32_t> chosen_experts(int n_experts, int n_columns) {
    if (n_experts == 1) {
        return std::vector<int32_t>((size_t) n_columns, 0);
    }
    std::vector<int32_t> chosen;
    for (int i = 0; i < n_columns; i++) {
        const int first = i * i % n_experts; // 0 or 1 of four
        chosen.push_back(first);
        chosen.push_back(i % 3 == 0 ? n_experts - 1 : 1 - first);
    }
    return chosen;
}

// out: for each column and each expert that it chooses, the products with the expert's rows.
static double error_of(const weights & w, int n_experts, const std::vector<float> & columns,
                       const std::vector<int32_t> & chosen, const std::vector<float> & out) {
    const int n_own       = n_rows / n_experts; // rows of an expert
    const int n_of_column = (int) chosen.size() * n_values / (int) columns.size();
    double    wrong = 0.0, all = 0.0;
    for (int i = 0; i < (int) out.size(); i++) {
        const int     row    = chosen[(size_t) (i / n_own)] * n_own + i % n_own;
        const float * column = columns.data() + i / n_own / n_of_column * n_values;
        const double  exact  = exact_product(w, row, column);
        wrong += (out[(size_t) i] - exact) * (out[(size_t) i] - exact);
        all += exact * exact;
    }
    return wrong / all; // it may be NaN, so callers check that it is below a bound, not that it is above
}

//
// products
//

namespace {

ggml_context_ptr make_context() {
    return ggml_context_ptr(ggml_init({16 * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true}));
}

struct product {
    ggml_context_ptr context = make_context();
    ggml_tensor *    columns;
    ggml_tensor *    chosen = nullptr; // with experts
    ggml_tensor *    result;

    product(ggml_tensor * w, int n_columns) {
        ggml_context * c = context.get();
        if (w->ne[2] == 1) {
            const int n_batches = n_columns == n_batched ? 2 : 1;
            columns = ggml_new_tensor_3d(c, GGML_TYPE_F32, n_values, n_columns / n_batches, n_batches);
            result  = ggml_mul_mat(c, w, columns);
        } else {
            columns = ggml_new_tensor_3d(c, GGML_TYPE_F32, n_values, 1, n_columns);
            chosen  = ggml_new_tensor_2d(c, GGML_TYPE_I32, n_used, n_columns);
            result  = ggml_mul_mat_id(c, w, columns, chosen);
        }
    }
};

// Weights in a buffer as a model loads them; each type of buffer may have its own layout.
struct loaded_weights {
    ggml_context_ptr        context = make_context();
    ggml_tensor *           tensor;
    ggml_backend_buffer_ptr buffer;

    // The buffer is empty if this type of buffer does not take these weights.
    loaded_weights(const weights & w, int n_experts, ggml_backend_dev_t device,
                   ggml_backend_buffer_type_t type) {
        tensor = ggml_new_tensor_3d(context.get(), w.type, n_values, n_rows / n_experts, n_experts);
        if (takes(device, type)) {
            buffer.reset(ggml_backend_alloc_ctx_tensors_from_buft(context.get(), type));
            ggml_backend_tensor_set(tensor, w.data.data(), 0, w.data.size());
        }
    }

  private:
    // The same check as weight_buft_supported in llama-model-loader.cpp.
    bool takes(ggml_backend_dev_t device, ggml_backend_buffer_type_t type) {
        ggml_backend_buffer_ptr empty(ggml_backend_buft_alloc_buffer(type, 0));
        tensor->buffer     = empty.get();
        const bool is_done = ggml_backend_dev_supports_op(device, product(tensor, n_columns_max).result);
        tensor->buffer     = nullptr;
        return is_done;
    }
};

} // namespace

static std::vector<ggml_backend_buffer_type_t> buffer_types(ggml_backend_dev_t cpu) {
    std::vector<ggml_backend_buffer_type_t> types = {ggml_backend_dev_buffer_type(cpu)};
    const auto extra = (ggml_backend_dev_get_extra_bufts_t) ggml_backend_reg_get_proc_address(
        ggml_backend_dev_backend_reg(cpu), "ggml_backend_dev_get_extra_bufts");
    for (ggml_backend_buffer_type_t * type = extra ? extra(cpu) : nullptr; type && *type; type++) {
        types.push_back(*type);
    }
    return types;
}

static ggml_backend_ptr start_cpu(ggml_backend_dev_t cpu) {
    ggml_backend_ptr backend(ggml_backend_dev_init(cpu, nullptr));
    const auto       set_n_threads = (ggml_backend_set_n_threads_t) ggml_backend_reg_get_proc_address(
        ggml_backend_dev_backend_reg(cpu), "ggml_backend_set_n_threads");
    set_n_threads(backend.get(), (int) std::clamp(std::thread::hardware_concurrency(), 1u, 4u));
    return backend;
}

static double measure(ggml_backend_t backend, const weights & w, ggml_tensor * tensor, int n_columns) {
    const int                  n_experts = (int) tensor->ne[2];
    const std::vector<float>   columns   = random_values(n_columns * n_values, 2);
    const std::vector<int32_t> chosen    = chosen_experts(n_experts, n_columns);
    product                    p(tensor, n_columns);
    std::vector<float>      out((size_t) ggml_nelements(p.result), NAN); // values that are not written fail
    ggml_backend_buffer_ptr buffer(ggml_backend_alloc_ctx_tensors(p.context.get(), backend));
    ggml_cgraph *           graph = ggml_new_graph(p.context.get());
    ggml_build_forward_expand(graph, p.result);
    ggml_backend_tensor_set(p.columns, columns.data(), 0, columns.size() * sizeof(float));
    if (p.chosen) {
        ggml_backend_tensor_set(p.chosen, chosen.data(), 0, chosen.size() * sizeof(int32_t));
    }
    ggml_backend_tensor_set(p.result, out.data(), 0, out.size() * sizeof(float));
    ggml_backend_graph_compute(backend, graph);
    ggml_backend_tensor_get(p.result, out.data(), 0, out.size() * sizeof(float));
    return error_of(w, n_experts, columns, chosen, out);
}

// Tests the products of weights in one type of buffer; returns the numbers of right and of wrong ones.
static std::pair<int, int> test_buffer(ggml_backend_t backend, ggml_backend_dev_t cpu, const weights & w,
                                       int n_experts, ggml_backend_buffer_type_t buffer_type) {
    const char *      type  = ggml_type_name(w.type);
    const char *      where = ggml_backend_buft_name(buffer_type);
    const std::string among = n_experts > 1 ? ", of " + std::to_string(n_experts) + " experts" : "";
    snprintf(at_work, sizeof(at_work), "%s weights%s into a buffer %s", type, among.c_str(), where);
    const loaded_weights loaded(w, n_experts, cpu, buffer_type);
    int                  n_right = 0, n_wrong = 0;
    for (const int n_columns : column_counts) {
        if (!loaded.buffer) {
            continue;
        }
        snprintf(at_work, sizeof(at_work), "%s weights%s in a buffer %s, %d columns", type, among.c_str(),
                 where, n_columns);
        const double error    = measure(backend, w, loaded.tensor, n_columns);
        const bool   is_right = error <= max_error;
        n_right += is_right;
        n_wrong += !is_right;
        if (!is_right) {
            fprintf(stderr, "llama-batched: self-test: %s: the error is %g; it must be at most %g\n", at_work,
                    error, max_error);
        }
    }
    return {n_right, n_wrong};
}

int test_products() {
    name_faults();
    ggml_backend_dev_t cpu     = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    int                n_right = 0, n_wrong = 0;
    if (!cpu) {
        fprintf(stderr, "llama-batched: self-test: no CPU backend; are its modules beside the program?\n");
        return -1;
    }
    const ggml_backend_ptr backend = start_cpu(cpu);
    for (const weight_type & kind : weight_types) {
        const weights w = make_weights(kind);
        for (ggml_backend_buffer_type_t buffer_type : buffer_types(cpu)) {
            for (const int n_experts : expert_counts) {
                const auto counts = test_buffer(backend.get(), cpu, w, n_experts, buffer_type);
                n_right += counts.first;
                n_wrong += counts.second;
            }
        }
    }
    snprintf(at_work, sizeof(at_work), "a request");
    return n_wrong > 0 ? -1 : n_right;
}

//
// a request
//

static const int n_sequences = 8;

request_test::request_test() {
    const std::string command =
        "{\"op\":\"generate\",\"id\":\"self-test\",\"prompt\":\"Once upon a time,\",\"n\":" +
        std::to_string(n_sequences) + ",\"max_tokens\":8,\"sampling\":{\"seed\":1},\"logprobs\":1}\n";
    if (pipe(in) != 0 || pipe(out) != 0 || write(in[1], command.data(), command.size()) < 0) {
        perror("llama-batched: self-test: pipe");
        _exit(1);
    }
    close(in[1]);
}

bool request_test::passed() {
    fcntl(out[0], F_SETFL, O_NONBLOCK); // all events are written, but the engine still has the other end open
    std::string text;
    char        chunk[4096];
    for (ssize_t n; (n = read(out[0], chunk, sizeof(chunk))) > 0;) {
        text.append(chunk, (size_t) n);
    }
    int                n_stops = 0, n_done = 0;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const auto event = nlohmann::json::parse(line, nullptr, false); // a line with NaN is not JSON
        const auto name  = event.is_object() ? event.value("event", "") : "";
        if (name.empty() || name == "error") {
            fprintf(stderr, "llama-batched: self-test: the answer to a request of %d sequences was %s\n",
                    n_sequences, line.c_str());
            return false;
        }
        n_stops += name == "stop";
        n_done += name == "done";
    }
    if (n_stops != n_sequences || n_done != 1) {
        fprintf(stderr,
                "llama-batched: self-test: %d of the request's %d sequences ended, with %d done events\n",
                n_stops, n_sequences, n_done);
        return false;
    }
    return true;
}
