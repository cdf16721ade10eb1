#include "options.h"

#include "flags.h"
#include "model/loading.h"

#include <arg.h> // llama.cpp's common/arg.h
#include <log.h>

#include <algorithm>
#include <cctype>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

static const int32_t n_default_parallel = 32;

namespace {

// The options that llama.cpp does not have, as text; they are removed from argv before llama.cpp reads it.
struct own_texts {
    std::string              cache_cells;
    std::string              cache_ram = "4G";
    std::string              prefix_cache;
    std::string              prefix_cache_size = "16G";
    std::string              packed_weights;
    std::string              processor_seconds = "10";
    std::vector<std::string> adapters;
    std::vector<std::string> logits_processor;
    bool                     self_test  = false;
    bool                     fields     = false;
    bool                     list_flags = false;
};

const struct {
    const char * name;
    std::string own_texts::* where;
} own_options[] = {
    {"--cache-cells", &own_texts::cache_cells},
    {"--cache-ram", &own_texts::cache_ram},
    {"--prefix-cache", &own_texts::prefix_cache},
    {"--prefix-cache-size", &own_texts::prefix_cache_size},
    {"--packed-weights", &own_texts::packed_weights},
    {"--logits-processor-timeout", &own_texts::processor_seconds},
};

const struct {
    const char *             name;
    std::vector<std::string> own_texts::* where;
} own_lists[] = {
    // an option for each of their texts
    {"--adapter", &own_texts::adapters},
    {"--logits-processor", &own_texts::logits_processor},
};

const struct {
    const char * name;
    bool own_texts::* where;
} own_flags[] = {
    {"--self-test", &own_texts::self_test},
    {"--fields", &own_texts::fields},
    {"--list-flags", &own_texts::list_flags},
};

} // namespace

static own_texts take_own_options(int & argc, char ** argv) {
    own_texts own;
    int       n_kept = 1;
    for (int i = 1; i < argc; i++) {
        const auto is_this = [&](const auto & o) { return strcmp(argv[i], o.name) == 0; };
        const auto option  = std::find_if(std::begin(own_options), std::end(own_options), is_this);
        const auto flag    = std::find_if(std::begin(own_flags), std::end(own_flags), is_this);
        const auto list    = std::find_if(std::begin(own_lists), std::end(own_lists), is_this);
        if (option != std::end(own_options) && i + 1 < argc) {
            own.*option->where = argv[++i];
        } else if (list != std::end(own_lists) && i + 1 < argc) {
            (own.*list->where).push_back(argv[++i]);
        } else if (flag != std::end(own_flags)) {
            own.*flag->where = true;
        } else {
            argv[n_kept++] = argv[i];
        }
    }
    argc = n_kept;
    return own;
}

// A plain number, or one with a unit: "16384", "512M", "4G". nullopt after a line on stderr.
static std::optional<uint64_t> parse_size(const char * name, const std::string & text) {
    char *   end   = nullptr;
    uint64_t value = strtoull(text.c_str(), &end, 10);
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
        return std::nullopt;
    }
    return value;
}

static bool parse_seconds(const char * name, const std::string & text, double & seconds) {
    char * end = nullptr;
    seconds    = strtod(text.c_str(), &end);
    if (text.empty() || *end || !(seconds > 0.0 && seconds <= 86400.0)) {
        fprintf(stderr, "llama-batched: %s is %s; it must be a number of seconds above 0, up to 86400\n",
                name, text.c_str());
        return false;
    }
    return true;
}

// "ID:SCALE:PATH" each; "none" alone: an empty list. False after a line on stderr.
static bool parse_adapters(const std::vector<std::string> & texts, std::vector<listed_adapter> & listed) {
    for (const std::string & text : texts) {
        listed_adapter one;
        int            n_read = 0;
        if (text == "none" && texts.size() == 1) {
            return true;
        }
        if (sscanf(text.c_str(), "%9" SCNd64 ":%f:%n", &one.id, &one.scale, &n_read) != 2 || n_read == 0 ||
            one.id < 0) {
            fprintf(stderr, "llama-batched: --adapter is %s; it must be ID:SCALE:PATH\n", text.c_str());
            return false;
        }
        one.path = text.substr((size_t) n_read);
        listed.push_back(std::move(one));
    }
    return true;
}

// llama.cpp's pooling of single tokens has no counterpart in the engine.
static bool check_pooling(enum llama_pooling_type pooling) {
    const bool known = pooling == LLAMA_POOLING_TYPE_UNSPECIFIED || pooling == LLAMA_POOLING_TYPE_MEAN ||
                       pooling == LLAMA_POOLING_TYPE_CLS || pooling == LLAMA_POOLING_TYPE_LAST ||
                       pooling == LLAMA_POOLING_TYPE_RANK;
    if (!known) {
        fprintf(stderr, "llama-batched: --pooling is none; it must be mean, cls, last or rank\n");
    }
    return known;
}

// "HOST:PORT" each, with commas between them; llama.cpp aborts at others. False after a line on stderr.
static bool check_servers(int argc, char ** argv) {
    for (int i = 1; i + 1 < argc; i++) {
        std::istringstream list(strcmp(argv[i], "--rpc") == 0 ? argv[i + 1] : "");
        for (std::string address; std::getline(list, address, ',');) {
            unsigned port   = 0;
            int      n_read = 0;
            sscanf(address.c_str(), "%*[^:]:%5u%n", &port, &n_read);
            if (n_read == 0 || (size_t) n_read != address.size() || port < 1 || port > UINT16_MAX) {
                fprintf(stderr, "llama-batched: --rpc has %s; each address must be host:port\n",
                        address.c_str());
                return false;
            }
        }
    }
    return true;
}

static bool parse_params(int argc, char ** argv, bool needs_model, common_params & params) {
    params.n_ctx     = 0;
    params.verbosity = LOG_LEVEL_WARN;
    if (!refuse_idle_flags(argc, argv) || !check_servers(argc, argv) ||
        !common_params_parse(argc, argv, params, LLAMA_EXAMPLE_SERVER) ||
        !check_pooling(params.pooling_type)) {
        return false;
    }
    if (needs_model && params.model.path.empty()) {
        fprintf(stderr, "llama-batched: --model is missing\n");
        return false;
    }
    const int32_t n_wanted = params.n_parallel < 0 ? n_default_parallel : params.n_parallel;
    params.n_parallel      = std::clamp(n_wanted, 1, n_max_sequence_ids - n_prefix_ids - 1);
    params.kv_unified      = true;  // the n sequences share the prompt's cells
    params.swa_full        = true;  // else shared cells are never reclaimed
    params.warmup          = false; // costs start-up time
    params.no_perf         = true;
    return true;
}

std::optional<options> read_options(int argc, char ** argv) {
    options         read;
    const own_texts own   = take_own_options(argc, argv);
    read.self_test        = own.self_test;
    read.fields           = own.fields;
    read.list_flags       = own.list_flags;
    read.prefix_cache     = own.prefix_cache;
    read.packed_weights   = own.packed_weights;
    read.logits_processor = own.logits_processor;

    const bool has_params  = !own.fields && (!own.self_test || argc > 1);
    const bool needs_model = has_params && !own.list_flags;
    if (has_params && !parse_params(argc, argv, needs_model, read.llama)) {
        return std::nullopt;
    }
    if (!own.adapters.empty() && !parse_adapters(own.adapters, read.adapters.emplace())) {
        return std::nullopt;
    }
    if (!parse_seconds("--logits-processor-timeout", own.processor_seconds, read.processor_seconds)) {
        return std::nullopt;
    }
    const auto ram  = parse_size("--cache-ram", own.cache_ram);
    const auto disk = parse_size("--prefix-cache-size", own.prefix_cache_size);
    if (!own.cache_cells.empty()) {
        read.cache_cells = parse_size("--cache-cells", own.cache_cells);
    }
    if (!ram || !disk || (!own.cache_cells.empty() && !read.cache_cells)) {
        return std::nullopt;
    }
    read.cache_ram         = *ram;
    read.prefix_cache_size = *disk;
    return read;
}
