// What a line of --admits or --masks asks for.
#pragma once

#include "grammar/schema/compile.h"
#include "util/json.h"

// Its schema, or its text in another notation, as rules.
schema::compiled compile_line(const indexed_json & line);
