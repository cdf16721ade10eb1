#include "model/token_cut.h"

#include <algorithm>
#include <string>

// How good it is to begin with the token at place i: 3 a paragraph, 2 a sentence, 1 a word, 0 anything.
static int border_at(const std::vector<llama_token> & tokens, size_t i, const vocabulary & vocab) {
    const std::string before = vocab.piece(tokens[i - 1], false), here = vocab.piece(tokens[i], false);
    if (!before.empty() && before.back() == '\n') {
        return 3;
    }
    const size_t last = before.find_last_not_of(" \"')*_");
    const bool   ended =
        last != std::string::npos && (before[last] == '.' || before[last] == '!' || before[last] == '?');
    const bool space = !here.empty() && here[0] == ' ';
    return ended && space ? 2 : space ? 1 : 0;
}

size_t cut_tokens(std::vector<llama_token> & tokens, size_t n_head, size_t n_room, const vocabulary & vocab) {
    if (tokens.size() <= n_room) {
        return 0;
    }
    n_head              = std::min(n_head, n_room / 2); // the newest text gets the other half
    const size_t step   = std::max<size_t>(n_room / 4, 1);
    const size_t n_over = tokens.size() - n_room;
    const size_t first  = n_head + (n_over + step - 1) / step * step;
    const size_t end    = std::min(first + step / 4, tokens.size() - 1);
    size_t       best   = first;
    for (size_t i = first, border = 0; i <= end; i++) {
        const size_t here = i == 0 ? 0 : (size_t) border_at(tokens, i, vocab);
        if (here > border) {
            best   = i;
            border = here;
        }
    }
    tokens.erase(tokens.begin() + (std::ptrdiff_t) n_head, tokens.begin() + (std::ptrdiff_t) best);
    return best - n_head;
}
