// The terminals that %import common.NAME brings.
#pragma once

#include <map>
#include <string>

const std::map<std::string, const char *> & common_terminals(); // regular expressions by name
