// The text of a grammar or regular expression while it is read: its characters, the place of the next one, and errors
// with line and column.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

struct repetition {
    int32_t low  = 1;
    int32_t high = 1; // -1: no limit
};

class notation_text {
  public:
    // name: the field. note: stands behind the name in errors.
    notation_text(std::string name, const std::string & utf8, std::string note = "");

    bool     at_end() const { return i >= end; }
    bool     at_digit() const { return peek() >= '0' && peek() <= '9'; }
    char32_t peek(size_t k = 0) const { return i + k < end ? (*text)[i + k] : 0; }
    char32_t next() { return (*text)[i++]; } // not at the end
    bool     take(char32_t c);
    bool     take(const char * word); // ASCII

    // Places count characters from the beginning of the text.
    size_t         place() const { return i; }
    void           go_to(size_t place) { i = place; }
    size_t         n_left() const { return end - i; } // characters
    std::u32string slice(size_t from, size_t to) const { return text->substr(from, to - from); }

    // The text from one place to another, as a text of its own whose errors have the same lines and columns.
    notation_text part(size_t from, size_t to) const;

    char32_t read_hex(int n_digits);
    int32_t  read_count();
    // * + ? {m} {m,} {m,n}; `skip` is called where the last three may have spaces. False: there is none.
    bool read_repetition(repetition & found, const std::function<void()> & skip);

    // A group begins or ends; nesting is bounded.
    void enter_group(size_t at);
    void leave_group() { nesting--; }
    bool in_group() const { return nesting > 0; }

    // The next character as a message names it.
    std::string found() const;
    // Throws command_error.
    [[noreturn]] void fail(size_t at, const std::string & what) const;
    [[noreturn]] void fail(const std::string & what) const { fail(i, what); }

  private:
    std::shared_ptr<const std::u32string> text;
    std::string                           name, note;
    size_t                                i       = 0;
    size_t                                end     = 0; // what is read ends there
    int                                   nesting = 0;
};
