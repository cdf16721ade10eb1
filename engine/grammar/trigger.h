// Where a grammar begins to hold: from the first token on, or from a trigger in the text, such as the mark
// that begins a tool call.
#pragma once

#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

struct grammar_start {
    bool        lazy = false; // only from a trigger on
    std::string begun;        // what the prompt ends in and the grammar begins with; not when lazy

    std::vector<std::string> words;
    std::vector<std::regex>
        patterns; // the grammar begins with their first group, or with all that they match

    // Nothing is a trigger between a start and an end; the end itself may be one.
    std::string              thinking_start;
    std::vector<std::string> thinking_ends;
    bool                     thinks = false; // the prompt ends in between
};

// One text, in which a trigger is looked for.
class trigger_watch {
  public:
    // `start` must live longer.
    explicit trigger_watch(const grammar_start & start);

    // Takes the text of one token. Once a trigger is there: all from where the grammar begins.
    std::optional<std::string> feed(std::string_view piece);

  private:
    size_t find_trigger(size_t before) const;

    const grammar_start & start;
    std::string           text;
    size_t                from = 0; // nothing before it is a trigger, nor the beginning of one
    bool                  thinks;
    size_t                n_window; // bytes of the longest unfinished trigger or tag
};
