// llama-batched: n continuations of one prompt, many prompts at once, as JSON lines on stdin and stdout.
//
//   echo '{"op":"generate","id":"1","prompt":"Once","n":4}' | llama-batched -m model.gguf
//
// Reading order: protocol (the lines), scheduler (the loop), prefix (the cells), store (what left
// them), sampling (the draws), structure and grammar (what a text may be), trigger (from where on), chat,
// text.
#include "protocol.h"
#include "scheduler.h"

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
#include <unistd.h>

#if defined(__linux__) && defined(_OPENMP)
#include <omp.h>
#include <sched.h>
#endif

static const int32_t n_default_parallel = 32;
static const int32_t n_default_cells    = 65536; // more would cost start-up time and memory that few use
static const int32_t n_max_sequence_ids = 256;   // llama.cpp's LLAMA_MAX_SEQ
static const int32_t n_prefix_ids       = 32;    // for idle prefixes, beyond what live branches need

//
// settings
//

// Our own options stand beside llama.cpp's; they are taken out of argv before llama.cpp reads it.
struct own_params {
    std::string cache_cells;               // idle prefixes in the KV cache; empty: a quarter of it
    std::string cache_ram = "4G";          // beyond, in host memory
    std::string prefix_cache;              // beyond, in this folder; empty: not on disk
    std::string prefix_cache_size = "16G"; // what all files there may take together
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

// Everything that the meaning of a snapshot depends on, the weights by the two ends of their file.
static uint64_t fingerprint_of(const common_params & params) {
    std::string facts = std::string(llama_commit()) + " " + std::to_string(params.cache_type_k) + " " +
                        std::to_string(params.cache_type_v) + " " + std::to_string(params.rope_freq_base) +
                        " " + std::to_string(params.rope_freq_scale) + " " +
                        std::to_string(params.yarn_ext_factor) + " " +
                        std::to_string((int) params.flash_attn_type);
    facts += " " + ends_of_file(params.model.path);
    return XXH64(facts.data(), facts.size(), 0);
}

static bool parse_params(int argc, char ** argv, common_params & params) {
    params.n_parallel = n_default_parallel;
    params.n_ctx      = 0;
    params.verbosity  = LOG_LEVEL_WARN;
    if (!common_params_parse(argc, argv, params, LLAMA_EXAMPLE_PARALLEL)) {
        return false;
    }
    if (params.model.path.empty()) {
        fprintf(stderr, "llama-batched: which model? give -m FILE.gguf\n");
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

static std::string backend_name() {
    std::string names;
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        names += (names.empty() ? "" : ", ") + std::string(ggml_backend_dev_name(ggml_backend_dev_get(i)));
    }
    return names;
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

int main(int argc, char ** argv) {
    start_again(argv);
    signal(SIGPIPE, SIG_IGN); // a closed pipe is told by write()
    const int fd_out = take_stdout();

    own_params    own;
    common_params params;
    common_init();
    uint64_t cache_cells = 0, cache_ram = 0, disk = 0;
    take_own_params(argc, argv, own);
    if (!parse_params(argc, argv, params) ||
        (!own.cache_cells.empty() && !parse_size("--cache-cells", own.cache_cells, cache_cells)) ||
        !parse_size("--cache-ram", own.cache_ram, cache_ram) ||
        !parse_size("--prefix-cache-size", own.prefix_cache_size, disk)) {
        return 2;
    }
    llama_backend_init();
    llama_numa_init(params.numa);

    loader l                                = {fd_out, -1.0};
    params.load_progress_callback           = report_loading;
    params.load_progress_callback_user_data = &l;
    llama_model * model =
        llama_model_load_from_file(params.model.path.c_str(), common_model_params_to_llama(params));
    model_facts facts;
    bool        loaded = model;
    for (const common_adapter_lora_info & lora : params.lora_adapters) { // before a context, says llama.h
        loaded = loaded && facts.adapters.load(model, lora.path, lora.scale);
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
        return 1;
    }

    facts.n_ctx_seq   = std::min((int32_t) llama_n_ctx(ctx), llama_model_n_ctx_train(model));
    facts.n_piece_max = longest_piece(facts.vocab);
    facts.structures  = std::make_shared<structure_cache>(facts.vocab);
    facts.chats       = std::make_shared<chat_templates>(model);

    scheduler_params sp;
    sp.n_parallel  = params.n_parallel;
    sp.n_ctx_seq   = facts.n_ctx_seq;
    sp.n_batch     = params.n_batch;
    sp.n_threads   = llama_n_threads(ctx);
    sp.cache_cells = own.cache_cells.empty() ? (int32_t) llama_n_ctx(ctx) / 4 : (int32_t) cache_cells;
    sp.fd_out      = fd_out;

    sp.store.directory   = own.prefix_cache;
    sp.store.ram_bytes   = cache_ram;
    sp.store.disk_bytes  = disk;
    sp.store.fingerprint = own.prefix_cache.empty() ? 0 : fingerprint_of(params);

    report_ready(fd_out, facts, ctx, params.n_parallel);
    {
        command_reader reader(STDIN_FILENO, fd_out, facts);
        embedder vectors(facts, common_context_params_to_llama(params), facts.embedding.only ? ctx : nullptr);
        {
            scheduler served(facts, ctx, sp, vectors);
            bind_threads(ctx); // the two have started their own
            served.run(reader);
        } // its end waits for the prefixes that are still to be written
        fflush(stderr);
        _exit(0); // the reader thread waits for input until the end, and there is
                  // nothing to save
    }
}
