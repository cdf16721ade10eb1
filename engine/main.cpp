// llama-batched: n continuations of one prompt, many prompts at once, as JSON lines on stdin and stdout.
//
//   echo '{"op":"generate","id":"1","prompt":"Once","n":4}' | llama-batched -m model.gguf
//
// Each folder includes only those before it: util (JSON, text, the sandbox), grammar (what a text may be), model (what
// its files say), cache (cells and snapshots), sampling, chat, protocol (the lines), schedule (the loop).
#include "model/self_test.h"
#include "protocol/events.h"
#include "schedule/scheduler.h"
#include "util/backend.h"

#include "arg.h"
#include "build-info.h"
#include "hash/xxhash/xxhash.h" // vendored by llama.cpp
#include "llama.h"
#include "log.h"

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <unistd.h>

#if defined(__GLIBC__)
#include <malloc.h>
#endif
#if defined(__linux__) && defined(_OPENMP)
#include <omp.h>
#include <sched.h>
#endif

static const int32_t  n_default_parallel = 32;
static const int32_t  n_default_cells    = 65536; // more would cost start-up time and memory that few use
static const int32_t  n_max_sequence_ids = 256;   // llama.cpp's LLAMA_MAX_SEQ
static const int32_t  n_prefix_ids       = 32;    // for idle prefixes, beyond what live branches need
static const uint64_t n_waiting_bytes_min =
    64u << 20; // of prefixes that may wait for the disk, whatever --cache-ram says

//
// settings
//

// Our own options stand beside llama.cpp's; they are taken out of argv before llama.cpp reads it.
struct own_params {
    std::string cache_cells;               // idle prefixes in the KV cache; empty: a quarter of it
    std::string cache_ram = "4G";          // beyond, in host memory
    std::string prefix_cache;              // beyond, in this folder; empty: not on disk
    std::string prefix_cache_size = "16G"; // what all files there may take together
    bool        self_test         = false;
};

static const struct {
    const char * name;
    std::string own_params::* where;
} own_options[] = {
    {"--cache-cells", &own_params::cache_cells},
    {"--cache-ram", &own_params::cache_ram},
    {"--prefix-cache", &own_params::prefix_cache},
    {"--prefix-cache-size", &own_params::prefix_cache_size},
};

static void take_own_params(int & argc, char ** argv, own_params & own) {
    int n_kept = 1;
    for (int i = 1; i < argc; i++) {
        const auto option = std::find_if(std::begin(own_options), std::end(own_options),
                                         [&](const auto & o) { return strcmp(argv[i], o.name) == 0; });
        if (option != std::end(own_options) && i + 1 < argc) {
            own.*option->where = argv[++i];
        } else if (strcmp(argv[i], "--self-test") == 0) {
            own.self_test = true;
        } else {
            argv[n_kept++] = argv[i];
        }
    }
    argc = n_kept;
}

// "4G", "512M", "16384": bytes, or a plain number.
static bool parse_size(const char * name, const std::string & text, uint64_t & value) {
    char * end = nullptr;
    value      = strtoull(text.c_str(), &end, 10);
    for (const char * unit = "KMG"; *unit && *end; unit++) {
        if (toupper(*end) == *unit) {
            value <<= 10 * (strchr("KMG", *unit) - "KMG" + 1);
            end++;
            break;
        }
    }
    if (text.empty() || !isdigit(text[0]) || *end) {
        fprintf(stderr, "llama-batched: %s is %s; it must be a number, or one with K, M or G\n", name,
                text.c_str());
        return false;
    }
    return true;
}

// Models with two sets of rope's factors take the other one for contexts that are longer than a length of
// theirs.
static bool has_long_rope(const llama_context * ctx) {
    const llama_model * model    = llama_get_model(ctx);
    char                text[64] = "";
    llama_model_meta_val_str(model, "general.architecture", text, sizeof(text));
    const std::string key = std::string(text) + ".rope.scaling.original_context_length";
    return llama_model_meta_val_str(model, key.c_str(), text, sizeof(text)) > 0 &&
           llama_n_ctx_seq(ctx) > strtoull(text, nullptr, 10);
}

// Everything that the meaning of a snapshot depends on, but for the weights. Numbers in full: to_string would
// round them.
static uint64_t settings_hash(const common_params & params, const llama_context * ctx) {
    const llama_context_params c    = common_context_params_to_llama(params);
    const auto                 real = [](double x) {
        char text[40];
        snprintf(text, sizeof(text), "%a ", x);
        return std::string(text);
    };
    std::string facts = std::string(llama_commit()) + " ";
    for (const int x : {(int) c.type_k, (int) c.type_v, (int) c.flash_attn_type, (int) c.attention_type,
                        (int) c.rope_scaling_type, (int) c.yarn_orig_ctx, (int) has_long_rope(ctx)}) {
        facts += std::to_string(x) + " ";
    }
    for (const float x : {c.rope_freq_base, c.rope_freq_scale, c.yarn_ext_factor, c.yarn_attn_factor,
                          c.yarn_beta_fast, c.yarn_beta_slow}) {
        facts += real(x);
    }
    for (const llama_model_kv_override & o : params.kv_overrides) {
        facts += std::string(o.key) + "=" + std::to_string((int) o.tag) + " ";
        switch (o.tag) {
            case LLAMA_KV_OVERRIDE_TYPE_INT:   facts += std::to_string(o.val_i64) + " "; break;
            case LLAMA_KV_OVERRIDE_TYPE_FLOAT: facts += real(o.val_f64); break;
            case LLAMA_KV_OVERRIDE_TYPE_BOOL:  facts += std::to_string(o.val_bool) + " "; break;
            case LLAMA_KV_OVERRIDE_TYPE_STR:   facts += std::string(o.val_str) + " "; break;
        }
    }
    return XXH64(facts.data(), facts.size(), 0);
}

static bool parse_params(int argc, char ** argv, common_params & params) {
    params.n_parallel = n_default_parallel;
    params.n_ctx      = 0;
    params.verbosity  = LOG_LEVEL_WARN;
    if (!common_params_parse(argc, argv, params, LLAMA_EXAMPLE_PARALLEL)) {
        return false;
    }
    params.n_parallel = std::clamp(params.n_parallel, 1, n_max_sequence_ids - n_prefix_ids - 1);
    params.kv_unified = true;  // the n sequences share the prompt's cells
    params.swa_full   = true;  // else shared cells are never reclaimed
    params.warmup     = false; // costs start-up time
    params.fit_params = false;
    params.no_perf    = true;
    return true;
}

// Bytes of KV cache that one token needs.
static double cell_bytes(const llama_model * model, const common_params & params) {
    const double n_row = (double) llama_model_n_embd(model) / std::max(llama_model_n_head(model), 1) *
                         std::max(llama_model_n_head_kv(model), 1);
    return n_row * llama_model_n_layer(model) *
           (ggml_type_size(params.cache_type_k) / (double) ggml_blck_size(params.cache_type_k) +
            ggml_type_size(params.cache_type_v) / (double) ggml_blck_size(params.cache_type_v));
}

static double free_bytes() {
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        size_t             free = 0, total = 0;
        ggml_backend_dev_t dev = ggml_backend_dev_get(i);
        if (ggml_backend_dev_type(dev) == GGML_BACKEND_DEVICE_TYPE_GPU) {
            ggml_backend_dev_memory(dev, &free, &total);
            return (double) free;
        }
    }
    const long n_pages = sysconf(
#ifdef _SC_AVPHYS_PAGES
        _SC_AVPHYS_PAGES
#else
        _SC_PHYS_PAGES
#endif
    );
    return (double) n_pages * (double) sysconf(_SC_PAGESIZE);
}

// Every sequence at its full length, unless that is more than a quarter of the free memory or than anyone
// needs.
static int32_t default_n_ctx(const llama_model * model, const common_params & params) {
    const double n_train = llama_model_n_ctx_train(model);
    const double n_wanted =
        std::min(n_train * params.n_parallel, std::max(n_train, (double) n_default_cells));
    const double n_memory = free_bytes() / 4 / std::max(cell_bytes(model, params), 1.0);
    return (int32_t) std::max(512.0, std::min(n_wanted, n_memory)) / 256 * 256;
}

//
// model and context
//

struct loader {
    int    fd;
    double reported;
};

static bool report_loading(float progress, void * user_data) {
    loader * l = (loader *) user_data;
    if (progress >= l->reported + 0.05 || progress >= 1.0f) {
        std::string line;
        event_line(line, "loading").real("progress", progress);
        write_lines(l->fd, line); // ends the process when the server is gone
        l->reported = progress;
    }
    return true;
}

static size_t longest_piece(const llama_vocab * vocab) {
    size_t n = 1;
    for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); token++) {
        n = std::max(n, strlen(llama_vocab_get_text(vocab, token)));
    }
    return n;
}

static llama_context * make_context(llama_model * model, common_params & params) {
    if (params.n_ctx == 0) {
        params.n_ctx = default_n_ctx(model, params);
    }
    // a live branch, an idle one beside it, prefixes, and the one with which parts of a snapshot are copied
    const int32_t n_seq_max = std::min(n_max_sequence_ids, 2 * params.n_parallel + n_prefix_ids + 1);
    params.n_ubatch         = std::max(params.n_ubatch, n_seq_max); // llama.cpp asserts it
    params.n_batch          = params.n_ubatch;                      // a step is one batch of one piece

    llama_context_params cparams  = common_context_params_to_llama(params);
    cparams.n_seq_max             = n_seq_max;
    cparams.n_outputs_max_per_seq = 0;
    return llama_init_from_model(model, cparams);
}

// How the model marks the parts of an infill prompt; empty when it cannot.
static std::string infill_tokens(const llama_vocab * vocab) {
    const std::pair<const char *, llama_token> tokens[] = {
        {"prefix", llama_vocab_fim_pre(vocab)},    {"suffix", llama_vocab_fim_suf(vocab)},
        {"middle", llama_vocab_fim_mid(vocab)},    {"repository", llama_vocab_fim_rep(vocab)},
        {"separator", llama_vocab_fim_sep(vocab)},
    };
    std::string object;
    for (const auto & [name, token] : tokens) {
        if (token != LLAMA_TOKEN_NULL) {
            object += std::string(object.empty() ? "\"" : ",\"") + name + "\":";
            append_json_string(object, common_token_to_piece(vocab, token, true));
        }
    }
    return "{" + object + "}";
}

static void report_ready(int fd, const model_facts & facts, llama_context * ctx, int32_t n_parallel) {
    char description[128];
    llama_model_desc(facts.model, description, sizeof(description));
    std::string model;
    model += "{\"description\":";
    append_json_string(model, description);
    model += ",\"n_params\":" + std::to_string(llama_model_n_params(facts.model));
    model += ",\"n_vocab\":" + std::to_string(llama_vocab_n_tokens(facts.vocab));
    model += ",\"n_ctx_train\":" + std::to_string(llama_model_n_ctx_train(facts.model));
    model += ",\"infill\":" + infill_tokens(facts.vocab) + "}";

    std::string embedding = std::string("{\"only\":") + (facts.embedding.only ? "true" : "false");
    embedding += std::string(",\"pooling\":\"") + facts.embedding.pooling_name() + "\"";
    embedding += ",\"dimensions\":" + std::to_string(facts.embedding.n_dimensions);
    embedding += ",\"max_tokens\":" + std::to_string(facts.embedding.n_max) + "}";

    std::string line;
    event_line(line, "ready")
        .whole("protocol", protocol_version)
        .raw("model", model)
        .whole("n_ctx", llama_n_ctx(ctx))
        .whole("n_ctx_sequence", facts.n_ctx_seq)
        .whole("max_sequences", n_parallel)
        .raw("adapters", facts.adapters.to_json())
        .raw("embedding", embedding)
        .text("backend", backend_name())
        .text("cpu", cpu_variant())
        .text("commit", llama_commit());
    write_lines(fd, line);
}

// What libraries read from the environment before main(), so it takes another start.
// - libgomp's turns before a thread sleeps: its default (milliseconds) wastes a core's time slice at every
//   barrier as soon as anything else wants to run; with too few turns they sleep at barriers that are nearly
//   there, and wake late.
// - malloc asks for huge pages: a step reads all weights and cells, and looks up fewer pages.
// benchmarks/README.md has the figures behind both.
static void start_again(char ** argv) {
#if defined(__linux__)
    const bool spins = getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY");
    const bool pages = getenv("GLIBC_TUNABLES");
    if (spins && pages) {
        return;
    }
    if (!spins) {
        setenv("GOMP_SPINCOUNT", "6000", 1);
    }
    if (!pages) {
        setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1", 1);
    }
    execv("/proc/self/exe", argv); // where that fails we go on as we are
#else
    (void) argv;
#endif
}

// A core for each thread that decodes, where they have all cores: else the system puts two of them on one
// whenever something runs for a moment on the other, such as the reader of our events, and each barrier waits
// for both until it notices, milliseconds later. Threads that are started later inherit this one's core.
static void bind_threads(llama_context * ctx) {
#if defined(__linux__) && defined(_OPENMP)
    cpu_set_t all;
    if (sched_getaffinity(0, sizeof(all), &all) != 0 || llama_n_threads(ctx) != CPU_COUNT(&all) ||
        llama_n_threads_batch(ctx) != CPU_COUNT(&all)) {
        return;
    }
    std::vector<int> cores;
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, &all)) {
            cores.push_back(core);
        }
    }
#pragma omp parallel num_threads((int) cores.size()) // llama.cpp's own team: libgomp keeps it
    {
        cpu_set_t own;
        CPU_ZERO(&own);
        CPU_SET(cores[(size_t) omp_get_thread_num()], &own);
        sched_setaffinity(0, sizeof(own), &own); // where that fails the thread stays free
    }
#else
    (void) ctx;
#endif
}

//
// serving
//

// llama.cpp warns when the context is longer than what the model was trained on. Here sequences share the
// context, and each of them ends at the trained length.
static void log_line(enum ggml_log_level level, const char * text, void * user_data) {
    if (!strstr(text, "possible training context overflow")) {
        common_log_default_callback(level, text, user_data);
    }
}

// Our own options, read.
struct own_sizes {
    uint64_t cache_cells = 0;
    uint64_t cache_ram   = 0;
    uint64_t disk        = 0;
};

static bool read_sizes(const own_params & own, own_sizes & sizes) {
    return (own.cache_cells.empty() || parse_size("--cache-cells", own.cache_cells, sizes.cache_cells)) &&
           parse_size("--cache-ram", own.cache_ram, sizes.cache_ram) &&
           parse_size("--prefix-cache-size", own.prefix_cache_size, sizes.disk);
}

// The model, its adapters and its context; nullptr, after a line on stderr, where one cannot be had.
static llama_context * load(common_params & params, const own_params & own, command_facts & facts,
                            int fd_out) {
    loader l                                = {fd_out, -1.0};
    params.load_progress_callback           = report_loading;
    params.load_progress_callback_user_data = &l;
    llama_model * model =
        llama_model_load_from_file(params.model.path.c_str(), common_model_params_to_llama(params));
    bool loaded = model;
    for (const common_adapter_lora_info & lora : params.lora_adapters) { // before a context, says llama.h
        loaded = loaded && facts.adapters.load(model, lora.path, lora.scale, own.prefix_cache);
    }
    if (loaded) {
        facts.model     = model;
        facts.vocab     = llama_model_get_vocab(model);
        facts.embedding = read_embedding_facts(model);
    }
    llama_context * ctx = loaded && !facts.embedding.only ? make_context(model, params) : nullptr;
    facts.embedding.only |=
        ctx && !llama_get_memory(ctx); // an encoder of whose pooling its file says nothing
    if (loaded && facts.embedding.only) {
        llama_free(ctx);
        ctx = make_embedding_context(facts, common_context_params_to_llama(params));
    }
    if (!ctx) {
        fprintf(stderr, "llama-batched: %s cannot be loaded\n", params.model.path.c_str());
        return nullptr;
    }
    facts.n_ctx_seq   = std::min((int32_t) llama_n_ctx(ctx), llama_model_n_ctx_train(model));
    facts.n_piece_max = longest_piece(facts.vocab);
    facts.structures  = std::make_shared<structure_cache>(facts.vocab);
    facts.chats       = std::make_shared<chat_templates>(model);
    return ctx;
}

// Reads commands and writes events until fd_in ends; then the process ends with the status that at_end says.
static int serve(common_params & params, const own_params & own, const own_sizes & sizes, int fd_in,
                 int fd_out, const std::function<int()> & at_end) {
    llama_numa_init(params.numa);
    std::optional<prefix_folder> folder;
    if (!own.prefix_cache.empty()) { // hashes the model beside its loading
        folder.emplace(folder_params{own.prefix_cache, params.model.path, sizes.disk,
                                     std::max(sizes.cache_ram / 4, n_waiting_bytes_min)});
    }
    command_facts   facts;
    llama_context * ctx = load(params, own, facts, fd_out);
    if (!ctx) {
        return 1;
    }
    if (folder) {
        folder->open(settings_hash(params, ctx));
    }

    scheduler_params sp;
    sp.n_parallel  = params.n_parallel;
    sp.n_ctx_seq   = facts.n_ctx_seq;
    sp.n_batch     = params.n_batch;
    sp.n_threads   = llama_n_threads(ctx);
    sp.cache_cells = own.cache_cells.empty() ? (int32_t) llama_n_ctx(ctx) / 4 : (int32_t) sizes.cache_cells;
    sp.fd_out      = fd_out;

    sp.store.ram_bytes = sizes.cache_ram;
    sp.store.folder    = folder ? &*folder : nullptr;

    report_ready(fd_out, facts, ctx, params.n_parallel);
    {
        command_reader reader(fd_in, fd_out, facts);
        embedder vectors(facts, common_context_params_to_llama(params), facts.embedding.only ? ctx : nullptr);
        {
            scheduler served(facts, ctx, sp, vectors);
            bind_threads(ctx); // the two have started their own
            served.run(reader);
        }
        if (folder) {
            folder->finish();
        }
        const int status = at_end();
        fflush(nullptr);
        _exit(status); // the reader thread waits for input until the end, and there is nothing to save
    }
}

// One line on `fd_report` when all is right.
static int self_test(common_params & params, const own_params & own, const own_sizes & sizes, int fd_report) {
    const int n_products = test_products();
    if (n_products < 0) {
        return 1;
    }
    const std::string products = "self-test: " + std::to_string(n_products) + " products on " +
                                 backend_name() + " (" + cpu_variant() + ")";
    if (params.model.path.empty()) {
        dprintf(fd_report, "%s\n", products.c_str());
        return 0;
    }
    request_test request;
    return serve(params, own, sizes, request.fd_in(), request.fd_out(), [&] {
        const bool passed = request.passed();
        if (passed) {
            dprintf(fd_report, "%s; one request of 8 sequences\n", products.c_str());
        }
        return passed ? 0 : 1;
    });
}

// One arena for all threads but the main one. Each keeps what its threads once had, and commands are made in one
// thread and freed in another.
static void bound_arenas() {
#if defined(__GLIBC__)
    mallopt(M_ARENA_MAX, 2);
#endif
}

int main(int argc, char ** argv) {
    start_again(argv);
    bound_arenas();
    signal(SIGPIPE, SIG_IGN); // a closed pipe is told by write()
    signal(SIGXFSZ, SIG_IGN); // and so is a limit of files' sizes
    const int fd_out = take_stdout();

    own_params    own;
    own_sizes     sizes;
    common_params params;
    common_init();
    llama_log_set(log_line, nullptr);
    take_own_params(argc, argv, own);
    const bool needs_model = !own.self_test || argc > 1; // llama.cpp's parser asks for one
    if ((needs_model && !parse_params(argc, argv, params)) || !read_sizes(own, sizes)) {
        return 2;
    }
    llama_backend_init();
    if (own.self_test) {
        return self_test(params, own, sizes, fd_out);
    }
    return serve(params, own, sizes, STDIN_FILENO, fd_out, [] { return 0; });
}
