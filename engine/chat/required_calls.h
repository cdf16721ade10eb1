// The grammar of an answer that has to call a tool: thoughts may come before the call, text may not.
#pragma once

#include <string>

// A grammar (GBNF) and the parser of the same answer (JSON), both of llama.cpp: the grammar with no text where the
// parser would read the answer's content.
std::string without_content(const std::string & grammar, const std::string & parser);
