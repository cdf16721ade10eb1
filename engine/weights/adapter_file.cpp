#include "weights/adapter_file.h"

#include "util/json.h"
#include "util/sandbox.h"

#include "ggml-cpp.h"
#include "gguf.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

static const size_t n_max_reason = 4096; // bytes

namespace {

// What a file's header is compared with.
struct model_shape {
    std::string architecture;
    int64_t     n_experts = 0;
};

struct wrong_file : std::runtime_error {
    using std::runtime_error::runtime_error;
};

using tensor_pair = std::pair<const ggml_tensor *, const ggml_tensor *>; // A, B

thread_local std::string * errors = nullptr; // of the adapter that this thread loads

} // namespace

//
// the header
//

static std::string metadata(const llama_model * model, const std::string & name) {
    char value[128] = "";
    llama_model_meta_val_str(model, name.c_str(), value, sizeof(value));
    return value;
}

static model_shape shape_of(const llama_model * model) {
    model_shape shape;
    shape.architecture = metadata(model, "general.architecture");
    shape.n_experts    = strtoll(metadata(model, shape.architecture + ".expert_count").c_str(), nullptr, 10);
    return shape;
}

// Throws unless the key is a string of this value.
static void require_text(const gguf_context * header, const char * key, const std::string & wanted) {
    const int64_t id = gguf_find_key(header, key);
    if (id < 0) {
        throw wrong_file(std::string("it has no ") + key + "; a LoRA adapter's is \"" + wanted + "\"");
    }
    const bool        is_text = gguf_get_kv_type(header, id) == GGUF_TYPE_STRING;
    const std::string value   = is_text ? gguf_get_val_str(header, id) : "no string";
    if (!is_text || value != wanted) {
        throw wrong_file(std::string("its ") + key + " is " + (is_text ? "\"" + value + "\"" : value) +
                         "; it must be \"" + wanted + "\"");
    }
}

static void check_keys(const gguf_context * header, const model_shape & shape) {
    require_text(header, "general.type", "adapter");
    require_text(header, "adapter.type", "lora");
    require_text(header, "general.architecture", shape.architecture);
    if (gguf_find_key(header, "adapter.alora.invocation_tokens") >= 0) {
        throw wrong_file("it works only after certain tokens (aLoRA), which is not supported");
    }
    const int64_t alpha = gguf_find_key(header, "adapter.lora.alpha");
    if (alpha >= 0 && (gguf_get_kv_type(header, alpha) != GGUF_TYPE_FLOAT32 ||
                       !std::isfinite(gguf_get_val_f32(header, alpha)))) {
        throw wrong_file("its adapter.lora.alpha is no finite 32-bit number");
    }
}

static bool ends_with(const std::string & text, const std::string & end) {
    return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// The tensors by the name of the model's tensor that they change.
static std::map<std::string, tensor_pair> pairs_in(const ggml_context * tensors) {
    std::map<std::string, tensor_pair> pairs;
    for (ggml_tensor * t = ggml_get_first_tensor(tensors); t; t = ggml_get_next_tensor(tensors, t)) {
        const std::string name = t->name;
        const std::string base = name.substr(0, name.size() - std::min(name.size(), strlen(".lora_a")));
        if (ends_with(name, ".lora_a")) {
            pairs[base].first = t;
        } else if (ends_with(name, ".lora_b")) {
            pairs[base].second = t;
        } else if (!ends_with(name, "_norm.weight")) { // llama.cpp ignores those
            throw wrong_file("its tensor " + name + " is neither .lora_a nor .lora_b");
        }
    }
    return pairs;
}

// The types with which products can be computed: those that can be read as floats. A device that cannot multiply one of
// them leaves the product to the CPU, which can multiply each. The CPU's own table says the same, but in a portable build it
// lies in a module that is loaded at run time.
static bool is_usable(const ggml_tensor & t) {
    return t.type == GGML_TYPE_F32 || ggml_get_type_traits(t.type)->to_float;
}

static void check_pair(const std::string & name, const tensor_pair & pair, const model_shape & shape) {
    const auto [a, b] = pair;
    if (!a || !b) {
        throw wrong_file("of " + name + " it has only " + (a ? "A, not B" : "B, not A"));
    }
    for (const ggml_tensor * t : {a, b}) {
        if (!is_usable(*t)) {
            throw wrong_file(std::string("its tensor ") + t->name + " has the type " +
                             ggml_type_name(t->type) + ", which cannot be multiplied");
        }
    }
    const bool    is_embedding = ends_with(name, "token_embd.weight"); // there both are the other way round
    const int64_t rank_of_a    = is_embedding ? a->ne[0] : a->ne[1];
    if (rank_of_a != b->ne[0]) {
        throw wrong_file("of " + name + ", A has the rank " + std::to_string(rank_of_a) +
                         " and B has the rank " + std::to_string(b->ne[0]));
    }
    const bool    of_experts = name.find("exps.") != std::string::npos;
    const int64_t n_wanted   = of_experts ? shape.n_experts : 1;
    if (a->ne[2] != n_wanted || b->ne[2] != n_wanted || a->ne[3] != 1 || b->ne[3] != 1) {
        throw wrong_file("of " + name + ", A and B have not " + std::to_string(n_wanted) +
                         (of_experts ? " matrices, one for each expert" : " matrix"));
    }
}

// The fault of a file; empty if it has none.
static std::string fault_of(const std::string & path, const model_shape & shape) {
    ggml_context *         made   = nullptr;
    const gguf_init_params params = {/*.no_alloc =*/true, /*.ctx =*/&made};
    const gguf_context_ptr header(gguf_init_from_file(path.c_str(), params));
    const ggml_context_ptr tensors(made);
    if (!header || !tensors) {
        return "it is no GGUF file, or a damaged one";
    }
    try {
        check_keys(header.get(), shape);
        for (const auto & [name, pair] : pairs_in(tensors.get())) {
            check_pair(name, pair, shape);
        }
    } catch (const wrong_file & e) {
        return e.what();
    }
    return "";
}

//
// the whole file
//

static void warm(const std::string & path) {
    const std::unique_ptr<FILE, int (*)(FILE *)> file(fopen(path.c_str(), "rb"), fclose);
    std::vector<char>                            piece(1 << 20);
    while (file && fread(piece.data(), 1, piece.size(), file.get()) == piece.size()) {
    }
}

uint64_t contents_of(const weight_files & file, const std::string & folder) {
    const auto hash = file.hash(folder, false, [](bool) { return true; });
    return hash ? *hash : ((uint64_t) std::random_device()() << 32 | std::random_device()());
}

[[noreturn]] static void refuse(const std::string & path, const std::string & reason) {
    invalid("adapter.path", path + " cannot be loaded as an adapter: " + reason);
}

adapter_file check_adapter_file(const llama_model * model, const std::string & path,
                                const std::string & folder) {
    adapter_file file = {path, weight_files::of_one(path), 0};
    struct stat  s;
    if (stat(path.c_str(), &s) != 0) {
        refuse(path, strerror(errno));
    }
    if (!S_ISREG(s.st_mode)) { // a pipe would be waited for
        refuse(path, "it is no regular file");
    }
    const model_shape shape = shape_of(model);
    std::string       out;
    if (!run_in_sandbox([&] { return fault_of(path, shape); }, n_max_reason, out)) {
        refuse(path, "reading its header took too long, or ended the process that read it");
    }
    const std::string fault = out.substr(out.find('\0') + 1);
    if (!fault.empty()) {
        refuse(path, fault);
    }
    if (folder.empty()) {
        warm(path);
    } else {
        file.contents = contents_of(file.state, folder);
    }
    return file;
}

//
// loading
//

void note_adapter_error(enum ggml_log_level level, const char * text) {
    if (errors && level == GGML_LOG_LEVEL_ERROR) {
        *errors = text;
    }
}

llama_adapter_lora * load_adapter(llama_model * model, const std::string & path, std::string & reason) {
    errors                          = &reason;
    llama_adapter_lora * const lora = llama_adapter_lora_init(model, path.c_str());
    errors                          = nullptr;
    const size_t end                = reason.find_last_not_of("\n ");
    reason.erase(end == std::string::npos ? 0 : end + 1);
    const std::string begin = "adapter: "; // of what follows llama.cpp's own words
    const size_t      at    = reason.find(begin);
    reason                  = at == std::string::npos ? reason : reason.substr(at + begin.size());
    return lora;
}
