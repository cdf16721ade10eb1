// Where a grammar begins to apply: at the first token, or at a trigger in the text, such as the tag that begins a
// tool call.
#pragma once

#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

struct grammar_start {
    bool        lazy = false; // it applies only from a trigger on
    std::string begun;        // the end of the prompt with which the grammar begins; empty if lazy

    std::vector<std::string> words;
    std::vector<std::regex>  patterns; // the grammar begins at their first group, or at their match

    // Between a start and an end there are no triggers; the end itself may be one.
    std::string              thinking_start;
    std::vector<std::string> thinking_ends;
    bool                     thinks = false; // the prompt ends between them
};

// Looks for a trigger in one text.
class trigger_watch {
  public:
    // `start` must outlive this object.
    explicit trigger_watch(const grammar_start & start);

    // Takes the text of one token. Once a trigger is complete: the text from where the grammar begins.
    std::optional<std::string> feed(std::string_view piece);

  private:
    size_t find_trigger(size_t before) const;

    const grammar_start & start;
    std::string           text;
    size_t                from = 0; // no trigger begins before it
    bool                  thinks;
    size_t                n_window; // bytes of the longest unfinished trigger or tag
};
