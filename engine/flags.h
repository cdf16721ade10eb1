// llama.cpp's own options: which of them act here, and --list-flags.
//
// llama.cpp's parser reads those of llama-server, also many that only a server can follow. Options without a row in the
// table of flags.cpp are refused by name, so that none is accepted and does nothing.
#pragma once

#include <common.h> // llama.cpp's common/common.h

#include <string>

// False, after a line on stderr, when an argument is one of llama.cpp's options that do not act here. Removes the
// variables of such options from the environment, with a line for each.
bool refuse_idle_flags(int argc, char ** argv);

// All options as JSON: [{"names", "off", "values", "env", "acts", "value"}], and an empty line's end. value: the
// parameter that the option has set in `params`, as it is passed to llama.cpp; null where it sets none.
std::string list_flags(common_params & params);
