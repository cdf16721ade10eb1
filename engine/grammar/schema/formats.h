// The formats of strings that are known, each as a pattern. Some hold fewer texts than their standard, none more.
#pragma once

#include <string>

struct format_row {
    const char * name;
    std::string  pattern;
};

// nullptr: no such format is known.
const format_row * find_format(const std::string & name);
