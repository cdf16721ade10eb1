// llama-batched: n continuations of one prompt, many prompts at once, as JSON lines on stdin and stdout.
//
//   echo '{"op":"generate","id":"1","prompt":"Once","n":4}' | llama-batched -m model.gguf
//
// Each folder includes only those before it: util (JSON, text, the sandbox), grammar, weights (their files), model
// (what is loaded, its facts), store (snapshots), cache (cells), sampling, chat, protocol (the lines), schedule (the loop).
#include "flags.h"
#include "model/loading.h"
#include "model/self_test.h"
#include "model/settings_hash.h"
#include "options.h"
#include "protocol/event_line.h"
#include "protocol/operations.h"
#include "protocol/ready.h"
#include "schedule/draft_model.h"
#include "schedule/outside_processor.h"
#include "schedule/scheduler.h"
#include "store/folder.h"
#include "util/backend.h"
#include "util/process.h"
#include "weights/adapter_file.h"
#include "weights/packed_weights.h"

#include <llama.h>
#include <log.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <unistd.h>

static const uint64_t n_waiting_bytes_min =
    64u << 20; // of prefixes that may wait for the disk, however small the RAM

// Drops one warning of llama.cpp: that the context is longer than the model's training length. Here sequences share the
// context, and sequence_limit() says how long each of them may be.
static void log_line(enum ggml_log_level level, const char * text, void * user_data) {
    note_adapter_error(level, text);
    if (!strstr(text, "possible training context overflow")) {
        common_log_default_callback(level, text, user_data);
    }
}

static scheduler_params params_of_scheduler(const options & o, const loaded_model & loaded,
                                            prefix_folder * folder, outside_processor * processor,
                                            draft_maker * drafts, int fd_out) {
    scheduler_params params;
    params.n_parallel      = o.llama.n_parallel;
    params.n_batch         = o.llama.n_batch;
    params.n_threads       = llama_n_threads(loaded.ctx);
    params.cache_cells     = (int32_t) o.cache_cells.value_or(llama_n_ctx(loaded.ctx) / 4);
    params.fd_out          = fd_out;
    params.store.ram_bytes = o.cache_ram;
    params.store.folder    = folder;
    params.processor       = processor;
    params.drafts          = drafts;
    return params;
}

// nullptr: there is none, or it does not start; then after a line on stderr.
static std::unique_ptr<outside_processor> start_processor(const options & o, const loaded_model & loaded) {
    if (o.logits_processor.empty()) {
        return nullptr;
    }
    outside_params params;
    params.command = o.logits_processor;
    params.seconds = o.processor_seconds;
    params.n_vocab = llama_vocab_n_tokens(loaded.facts.vocab);
    params.n_ctx   = loaded.facts.n_ctx_seq;
    params.n_rows  = o.llama.n_parallel;
    try {
        return std::make_unique<outside_processor>(params, model_vocabulary(loaded.facts.vocab));
    } catch (const std::exception & e) {
        fprintf(stderr, "llama-batched: the logits processor does not start: %s\n", e.what());
        return nullptr;
    }
}

// Reads commands and writes events until fd_in ends. The process then ends with the status that at_end returns.
static int serve(options & o, int fd_in, int fd_out, const std::function<int()> & at_end) {
    llama_numa_init(o.llama.numa);
    set_process_priority(o.llama.cpuparams.priority);
    std::optional<prefix_folder> folder;
    if (!o.prefix_cache.empty()) { // its thread hashes the model while it loads
        folder.emplace(folder_params{o.prefix_cache, o.llama.model.path, o.prefix_cache_size,
                                     std::max(o.cache_ram / 4, n_waiting_bytes_min)});
    }
    std::unique_ptr<draft_model> drafts; // before the large one, which takes what memory is left
    if (o.llama.speculative.has_dft() && !(drafts = draft_model::load(o.llama))) {
        return 1;
    }
    packed_weights packed(o.packed_weights, o.llama.model.path);
    const auto     on_progress = [fd_out](float progress) { report_loading(fd_out, progress); };
    const auto     loaded      = load_model(o.llama, o.prefix_cache, o.adapters, on_progress);
    if (!loaded || (drafts && !drafts->fits(loaded->facts.model, o.llama.model.path))) {
        return 1;
    }
    packed.keep();
    llama_context * const ctx   = loaded->ctx;
    const command_facts   facts = {loaded->facts, std::make_shared<structure_cache>(loaded->facts.vocab),
                                   std::make_shared<chat_templates>(loaded->facts.model, o.llama),
                                   !o.logits_processor.empty()};
    if (folder) {
        folder->open(settings_hash(o.llama, ctx));
    }
    const std::unique_ptr<outside_processor> processor = start_processor(o, *loaded);
    if (facts.has_processor && !processor) {
        return 1;
    }
    const scheduler_params params =
        params_of_scheduler(o, *loaded, folder ? &*folder : nullptr, processor.get(), drafts.get(), fd_out);
    report_ready(fd_out, facts, ctx, o.llama.n_parallel, drafts_from(ctx, drafts.get()));
    {
        command_reader reader(fd_in, fd_out, facts);
        embedder       vectors(facts, common_context_params_to_llama(o.llama),
                               facts.embedding.only ? ctx : nullptr);
        {
            scheduler scheduler(facts, ctx, params, vectors);
            bind_threads(llama_n_threads(ctx),
                         llama_n_threads_batch(ctx)); // reader and vectors have started theirs
            scheduler.run(reader);
        }
        if (folder) {
            folder->finish();
        }
        packed.finish();
        const int status = at_end();
        fflush(nullptr);
        _exit(status); // the reader's thread waits for input until the end, and nothing is left to be saved
    }
}

// Writes one line to `fd_report` if all tests pass.
static int self_test(options & o, int fd_report) {
    const int n_products = test_products();
    if (n_products < 0) {
        return 1;
    }
    const std::string products = "self-test: " + std::to_string(n_products) + " products on " +
                                 backend_name() + " (" + cpu_variant() + ")";
    if (o.llama.model.path.empty()) {
        dprintf(fd_report, "%s\n", products.c_str());
        return 0;
    }
    request_test request;
    return serve(o, request.fd_in(), request.fd_out(), [&] {
        const bool passed = request.passed();
        if (passed) {
            dprintf(fd_report, "%s; one request of 8 sequences\n", products.c_str());
        }
        return passed ? 0 : 1;
    });
}

int main(int argc, char ** argv) {
    restart_with_environment(argv);
    limit_arenas();
    signal(SIGPIPE, SIG_IGN); // write() reports a closed pipe
    signal(SIGXFSZ, SIG_IGN); // and a limit of file sizes
    const int fd_out = take_stdout();
    common_init();
    llama_log_set(log_line, nullptr);

    std::optional<options> o = read_options(argc, argv);
    if (!o) {
        return 2;
    }
    if (o->fields) {
        std::string text = fields_of_all_operations();
        write_lines(fd_out, text);
        return 0;
    }
    if (o->list_flags) {
        std::string text = list_flags(o->llama);
        write_lines(fd_out, text);
        return 0;
    }
    llama_backend_init();
    if (o->self_test) {
        return self_test(*o, fd_out);
    }
    const int status = serve(*o, STDIN_FILENO, fd_out, [] { return 0; });
    common_log_flush(common_log_main()); // it says why; its thread would lose that
    return status;
}
