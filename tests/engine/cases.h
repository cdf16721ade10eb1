// A list of named cases: a table adds a case for each of its rows.
#pragma once

#include <functional>
#include <string>
#include <vector>

struct test_case {
    std::string           name; // of letters, digits, commas and spaces
    std::function<void()> run;  // throws std::string: the expected and the found value
};

void add_admission_cases(std::vector<test_case> & cases);
void add_plan_cases(std::vector<test_case> & cases);
void add_step_cases(std::vector<test_case> & cases);
void add_update_cases(std::vector<test_case> & cases);
void add_id_cases(std::vector<test_case> & cases);
void add_second_cases(std::vector<test_case> & cases);
void add_contest_cases(std::vector<test_case> & cases);
void add_cell_cases(std::vector<test_case> & cases);
void add_passage_cases(std::vector<test_case> & cases);
void add_file_cases(std::vector<test_case> & cases);
void add_token_cases(std::vector<test_case> & cases);
void add_text_cases(std::vector<test_case> & cases);
void add_sampler_cases(std::vector<test_case> & cases);
void add_salt_cases(std::vector<test_case> & cases);
void add_schema_cases(std::vector<test_case> & cases);
void add_notation_cases(std::vector<test_case> & cases);
void add_draft_cases(std::vector<test_case> & cases);
void add_guidance_cases(std::vector<test_case> & cases);

// The answer of --admits to one line, as text.
std::string admit_line(const std::string & line);
int         admit_lines();
int         feed_guards();
int         time_masks(const char * path);

void expect(bool holds, const std::string & what_else);
void expect_equal(const std::string & expected, const std::string & found, const std::string & what = "");
