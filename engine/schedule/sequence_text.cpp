#include "schedule/sequence_text.h"

std::string piece_of(const request & r, llama_token token, const model_facts & facts) {
    const bool shown = r.command->chat && r.command->chat->shown.count(token) > 0;
    return common_token_to_piece(facts.vocab, token, shown);
}

void begin_text(const request & r, sequence & s, const model_facts & facts) {
    std::string told;
    s.text  = text_stream(s.settings->stop_finder);
    s.guard = phrase_guard(s.settings->banned_finder);
    for (size_t k = 0; k < s.generated.size(); k++) {
        std::string bytes = piece_of(r, s.generated[k], facts);
        if (s.guard.active()) {
            s.guard.feed(bytes);
            bytes = s.guard.take_clear();
        }
        told += s.text.feed(bytes, (int32_t) k >= s.settings->n_min);
    }
    if (r.command->chat) {
        s.message = std::make_unique<chat_message>(r.command->chat, r.id + " " + std::to_string(s.index));
        s.message->feed(told, false);
    }
}

std::vector<llama_token> seen_tokens(const request & r, const sequence & s, const model_facts & facts) {
    std::vector<llama_token> tokens = s.generated;
    if (!tokens.empty() && llama_vocab_is_eog(facts.vocab, tokens.back())) {
        tokens.pop_back();
    }
    size_t n_bytes = 0; // of the tokens that were seen whole
    for (size_t i = 0; s.text.stopped() && i < tokens.size(); i++) {
        const std::string piece = piece_of(r, tokens[i], facts);
        if (n_bytes + piece.size() > s.text.n_out()) {
            tokens.resize(i);
            const auto seen =
                common_tokenize(facts.vocab, piece.substr(0, s.text.n_out() - n_bytes), false, false);
            tokens.insert(tokens.end(), seen.begin(), seen.end());
            break;
        }
        n_bytes += piece.size();
    }
    return tokens;
}
