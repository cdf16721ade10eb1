// The formats of strings that are known, each as a pattern. Some hold fewer texts than their standard, none more.
#pragma once

#include <string>

struct format_row {
    const char * name;
    std::string  pattern;
    std::string  wider; // holds all texts that the standard allows, for its opposite; empty: there is none
};

// nullptr: no such format is known.
const format_row * find_format(const std::string & name);
