// What a guard of banned texts does with pieces of a text, for a comparison with others (tests/real/test_banned_regexes.py).
//
//   engine-tests --guards  reads JSON lines {"regexes", "strings", "pieces"}; writes a line for each: {"back": by piece, how
//                          many tokens go, "clear": by piece, the text that is certain then, "rest"} or {"error"}
#include "cases.h"
#include "text/banned_phrases.h"
#include "util/json.h"

#include <iostream>

using json = nlohmann::json;

static json fed(const json & line) {
    std::vector<banned_regex> regexes;
    for (const json & text : line["regexes"]) {
        regexes.push_back({regexes.size(), text});
    }
    const std::vector<std::string> strings = line["strings"];
    pattern_budget                 budget;
    const auto patterns = regexes.empty() ? nullptr : std::make_shared<const pattern_finder>(regexes, budget);
    const auto words    = strings.empty() ? nullptr : std::make_shared<const word_finder>(strings);
    phrase_guard guard(words, patterns);
    json         out = {{"back", json::array()}, {"clear", json::array()}};
    for (const std::string piece : line["pieces"]) {
        out["back"].push_back(guard.feed(piece));
        out["clear"].push_back(guard.take_clear());
    }
    out["rest"] = guard.finish();
    return out;
}

int feed_guards() {
    for (std::string line; std::getline(std::cin, line);) {
        json out;
        try {
            out = fed(json::parse(line));
        } catch (const command_error & e) {
            out = {{"error", e.what()}};
        }
        std::cout << out.dump() << std::endl;
    }
    return 0;
}
