// What the samplers leave of rows of logits, for a comparison with others (tests/real/test_sampler_rows.py).
//
//   engine-tests --rows  reads JSON lines {"n_vocab", "logits": a file of rows of floats, "tokens": as many tokens,
//                        "sampling", "arithmetic", "out"}; row i comes after tokens 0 to i. Writes the log probabilities of
//                        what is left of each row to the file `out`, -9999 for what is not, and a line {"drawn": [token, …]}
#include "gaussian.h"
#include "sampling/logprobs.h"

#include <fstream>
#include <iostream>

using json = nlohmann::json;

static std::vector<float> read_floats(const std::string & path) {
    std::ifstream      file(path, std::ios::binary | std::ios::ate);
    std::vector<float> all((size_t) file.tellg() / sizeof(float));
    file.seekg(0).read((char *) all.data(), (std::streamsize) (all.size() * sizeof(float)));
    return all;
}

static json rows_of(const json & line) {
    const int32_t                  n_vocab  = line["n_vocab"];
    const llama_model *            model    = model_with(n_vocab);
    const sequence_settings        settings = settings_of(line["sampling"], model);
    const std::vector<float>       rows     = read_floats(line["logits"]);
    const std::vector<llama_token> tokens   = line["tokens"];
    std::ofstream                  out(line["out"].get<std::string>(), std::ios::binary);
    std::vector<llama_token>       before, drawn;
    std::vector<token_logprob>     left;
    std::vector<float>             logprobs;
    for (size_t i = 0; i < tokens.size(); i++) {
        coupling with;
        with.arithmetic = line.value("arithmetic", false);
        with.index      = (int32_t) i;
        before.push_back(tokens[i]);
        token_sampler sampler(model, settings, (uint32_t) i, with, before, {}, nullptr);
        drawn.push_back(sampler.draw(rows.data() + i * (size_t) n_vocab, {}));
        logprobs_of_draw(drawn.back(), n_vocab, left);
        logprobs.assign((size_t) n_vocab, -9999.0f);
        for (const token_logprob & t : left) {
            logprobs[(size_t) t.token] = t.logprob;
        }
        out.write((const char *) logprobs.data(), (std::streamsize) (logprobs.size() * sizeof(float)));
    }
    return {{"drawn", drawn}};
}

int show_rows() {
    for (std::string line; std::getline(std::cin, line);) {
        std::cout << rows_of(json::parse(line)).dump() << std::endl;
    }
    return 0;
}
