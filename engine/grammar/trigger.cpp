#include "grammar/trigger.h"

#include <algorithm>

static const size_t n_pattern_window = 1024; // bytes in which a pattern must match

static size_t find_first(const std::string & text, const std::vector<std::string> & words, size_t from) {
    size_t first = std::string::npos;
    for (const std::string & word : words) {
        first = std::min(first, text.find(word, from));
    }
    return first;
}

trigger_watch::trigger_watch(const grammar_start & start)
    : start(start), thinks(start.thinks), n_window(start.thinking_start.size()) {
    for (const auto * words : {&start.words, &start.thinking_ends}) {
        for (const std::string & word : *words) {
            n_window = std::max(n_window, word.size());
        }
    }
    n_window = start.patterns.empty() ? n_window : std::max(n_window, n_pattern_window);
}

// Where the grammar begins; npos: not before `before`.
size_t trigger_watch::find_trigger(size_t before) const {
    size_t first = find_first(text, start.words, from);
    for (const std::regex & pattern : start.patterns) {
        std::smatch match;
        const auto  flags =
            from > 0 ? std::regex_constants::match_not_bol : std::regex_constants::match_default;
        if (std::regex_search(text.cbegin() + (std::ptrdiff_t) from, text.cend(), match, pattern, flags)) {
            const bool grouped = match.size() > 1 && match.length(1) > 0;
            first              = std::min(first, from + (size_t) match.position(grouped ? 1 : 0));
        }
    }
    return first < before ? first : std::string::npos;
}

std::optional<std::string> trigger_watch::feed(std::string_view piece) {
    text += piece;
    while (true) {
        if (thinks) {
            const size_t end = find_first(text, start.thinking_ends, from);
            if (end == std::string::npos) {
                break;
            }
            from   = end;
            thinks = false;
        }
        const size_t thought =
            start.thinking_start.empty() ? std::string::npos : text.find(start.thinking_start, from);
        if (const size_t found = find_trigger(thought); found != std::string::npos) {
            return text.substr(found);
        }
        if (thought == std::string::npos) {
            break;
        }
        from   = thought + start.thinking_start.size();
        thinks = true;
    }
    from = std::max(from, text.size() - std::min(text.size(), n_window));
    return std::nullopt;
}
