#include "gaussian.h"

#include <gguf.h>

#include <llama-cpp.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <random>
#include <stdexcept>
#include <unistd.h>

static void write_vocabulary(const std::string & path, int32_t n_vocab) {
    std::vector<std::string> texts = {"<unk>", "<s>", "</s>"};
    std::vector<int32_t>     types = {2, 3, 3}; // unknown, control, byte, normal: llama.cpp's token types
    for (int byte = 0; byte < 256; byte++) {
        char text[8];
        snprintf(text, sizeof(text), "<0x%02X>", byte);
        texts.push_back(text);
        types.push_back(6);
    }
    while ((int32_t) texts.size() < n_vocab) {
        texts.push_back("t" + std::to_string(texts.size()));
        types.push_back(1);
    }
    std::vector<const char *> pointers;
    for (const std::string & text : texts) {
        pointers.push_back(text.c_str());
    }
    const std::vector<float> scores((size_t) n_vocab, 0.0f);
    gguf_context *           file = gguf_init_empty();
    gguf_set_val_str(file, "general.architecture", "llama");
    gguf_set_val_str(file, "tokenizer.ggml.model", "llama");
    gguf_set_arr_str(file, "tokenizer.ggml.tokens", pointers.data(), pointers.size());
    gguf_set_arr_data(file, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores.data(), scores.size());
    gguf_set_arr_data(file, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size());
    gguf_write_to_file(file, path.c_str(), true);
    gguf_free(file);
}

const llama_model * model_with(int32_t n_vocab) {
    static std::map<int32_t, llama_model_ptr> models;
    llama_model_ptr &                         model = models[n_vocab];
    if (!model) {
        char      path[] = "/tmp/vocabulary-XXXXXX";
        const int file   = mkstemp(path);
        if (file < 0) {
            throw std::runtime_error("no file can be written in /tmp");
        }
        close(file);
        llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
        write_vocabulary(path, n_vocab);
        llama_model_params params = llama_model_default_params();
        params.vocab_only         = true;
        model.reset(llama_model_load_from_file(path, params));
        unlink(path);
        if (!model) {
            throw std::runtime_error("llama.cpp does not read the vocabulary");
        }
    }
    return model.get();
}

// By the Box-Muller transform, since each C++ library has its own normal distribution.
std::vector<float> gaussian_row(int32_t n_vocab, float deviation, uint32_t seed) {
    std::mt19937       random(seed);
    const auto         uniform = [&random] { return ((double) random() + 0.5) / 4294967296.0; };
    std::vector<float> row((size_t) n_vocab);
    for (float & logit : row) {
        const double radius = std::sqrt(-2.0 * std::log(uniform()));
        logit               = (float) (deviation * radius * std::cos(6.283185307179586 * uniform()));
    }
    return row;
}

sequence_settings settings_of(const nlohmann::json & sampling, const llama_model * model) {
    const llama_vocab * vocab = llama_model_get_vocab(model);
    sequence_settings   settings;
    read_sampling(settings.sampling, sampling, vocab, 4096);
    settle_steps(settings.sampling, vocab, 4096);
    settings.biases =
        std::make_shared<const token_biases>(settings.sampling.logit_bias, llama_vocab_n_tokens(vocab));
    settings.sampling.logit_bias.clear();
    settings.breakers = find_dry_breakers(vocab, settings.sampling.dry_sequence_breakers);
    return settings;
}
