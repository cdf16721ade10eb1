// Tests of the engine's planner, update and cells by tables, without a model; pytest runs them
// (tests/real/test_engine_cases.py).
//
//   engine-tests --list      the names, one a line
//   engine-tests --samplers  times samplers, for benchmarks/samplers/
//   engine-tests --rows      shows what samplers leave of rows, for tests/real/test_sampler_rows.py
//   engine-tests --guards    feeds guards of banned texts, for tests/real/test_banned_regexes.py
//   engine-tests --admits    reads schemas and values, for benchmarks/structure.py
//   engine-tests --masks VOCABULARY  reads schemas and texts, for benchmarks/structure.py
//   engine-tests [NAME…]     runs these cases, or all; prints a line for each, and exits with 1 if one fails
#include "cases.h"
#include "gaussian.h"

#include "ggml.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>

void expect(bool holds, const std::string & what_else) {
    if (!holds) {
        throw what_else;
    }
}

void expect_equal(const std::string & expected, const std::string & found, const std::string & what) {
    if (expected != found) {
        throw what + "\nexpected:\n" + expected + "\nfound:\n" + found;
    }
}

static bool passes(const test_case & c) {
    std::string fault;
    try {
        c.run();
    } catch (const std::string & e) {
        fault = e;
    } catch (const std::exception & e) {
        fault = e.what();
    }
    printf("%s  %s%s%s\n", fault.empty() ? "ok    " : "FAILED", c.name.c_str(), fault.empty() ? "" : "\n",
           fault.c_str());
    return fault.empty();
}

int main(int argc, char ** argv) {
    ggml_time_init();
    if (argc == 2 && strcmp(argv[1], "--samplers") == 0) {
        return time_samplers();
    }
    if (argc == 2 && strcmp(argv[1], "--rows") == 0) {
        return show_rows();
    }
    if (argc == 2 && strcmp(argv[1], "--guards") == 0) {
        return feed_guards();
    }
    if (argc == 2 && strcmp(argv[1], "--admits") == 0) {
        return admit_lines();
    }
    if (argc == 3 && strcmp(argv[1], "--masks") == 0) {
        return time_masks(argv[2]);
    }
    std::vector<test_case> cases;
    add_admission_cases(cases);
    add_plan_cases(cases);
    add_step_cases(cases);
    add_update_cases(cases);
    add_id_cases(cases);
    add_second_cases(cases);
    add_contest_cases(cases);
    add_cell_cases(cases);
    add_passage_cases(cases);
    add_file_cases(cases);
    add_token_cases(cases);
    add_text_cases(cases);
    add_sampler_cases(cases);
    add_salt_cases(cases);
    add_schema_cases(cases);
    add_notation_cases(cases);
    add_guidance_cases(cases);
    add_draft_cases(cases);
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (const test_case & c : cases) {
            printf("%s\n", c.name.c_str());
        }
        return 0;
    }
    int n_failed = 0, n_run = 0;
    for (const test_case & c : cases) {
        const auto is_it = [&](const char * name) { return c.name == name; };
        if (argc == 1 || std::any_of(argv + 1, argv + argc, is_it)) {
            n_failed += !passes(c);
            n_run++;
        }
    }
    return n_failed > 0 || n_run == 0;
}
