// The contents of a chat's messages as plain text: no text of a control token in them becomes that token.
//
// A template is a program, which may cut, change or print a content anywhere, so the place of a content in the prompt is
// unknown. Therefore one character of each such text is replaced by a mark before the template runs: a control character
// that occurs nowhere else. All other characters stay, and a mark is one byte, so that templates see the same lengths,
// spaces and letters. Behind the template the text around marks is plain, and marks become their characters again.
#pragma once

#include "model/prompt_parts.h"
#include "util/indexed_json.h"
#include "util/word_finder.h"

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

// Finds texts of control tokens; all chats of a model share it.
class control_text_finder {
  public:
    explicit control_text_finder(const std::vector<std::string> & texts);

    // The characters, by their first bytes, that must be replaced so that no control token can arise from the text,
    // whatever stands before and behind it, also without the spaces at its ends and in other letters' cases.
    std::set<size_t> places(std::string_view text) const;
    // The first text of a control token in this one; empty: there is none.
    std::string_view first_in(std::string_view text) const;
    // The text in parts: texts of control tokens, which are special, and the text between them, which is not.
    prompt_parts split(const std::string & text) const;

  private:
    size_t n_that_ends(std::string_view lower) const;

    word_finder exact, any_case; // as they are, and in lower case
    word_finder ends;            // in lower case, without their first character, without the first two, …
};

class content_marks {
  public:
    // sources: JSON and templates; they hold none of the marks that are chosen.
    content_marks(const control_text_finder & controls, const std::vector<std::string> & sources);

    // messages: JSON; returned with marks. Throws command_error.
    std::string mark(const std::string & messages);
    // A text behind the template, without marks; in parts.
    std::string  restored(const std::string & text) const;
    prompt_parts parts_of(const std::string & prompt) const;

  private:
    void        mark_message(indexed_json & message, const std::string & name);
    void        mark_texts(indexed_json & value, bool keys);
    void        mark_arguments(indexed_json & value);
    std::string marked(const std::string & text);
    char        mark_of(const std::string & character);

    const control_text_finder & controls;
    std::string                 unused; // marks
    std::map<char, std::string> used;   // the character that each mark stands for
};

// Throws command_error if a field whose texts are not marked has the text of a control token. value: JSON.
void check_without_controls(const control_text_finder & controls, const std::string & field,
                            const std::string & value);

// Throws command_error if one of these texts is in a message. messages: JSON.
void check_private(const word_finder & hidden, const std::string & messages);
