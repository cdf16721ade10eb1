// Lark grammars, left recursion and structural tags: which texts they admit, or why they are refused. The same and more
// is held against other readers by tests/conformance/notations.py.
#include "cases.h"

#include <nlohmann/json.hpp>

using json = nlohmann::ordered_json;

namespace {

struct notation_row {
    const char *             name;
    const char *             text;
    std::vector<std::string> yes, no; // texts
};

const notation_row grammars[] = {
    {"alternatives on lines of their own",
     "?start: \"a\" -> one\n  | \"b\" x* // two\n!x: [\"c\"] # c\n  | \"d\"~2..3",
     {"a", "b", "bc", "bdd", "bcddd"},
     {"", "c", "bd", "a b"}},
    {"repetitions",
     R"(start: "a"{2} "b"{,2} "c"{1,} "d"~2)",
     {"aacdd", "aabbccdd"},
     {"acdd", "aabbbcdd", "aadd", "aacd"}},
    {"texts with escapes and flags",
     R"(start: "\u00e9\x41\n\"" "x-"i "b".."d")",
     {"éA\n\"X-b", "éA\n\"x-d"},
     {"éA\n\"x-e"}},
    {"expressions with flags",
     R"(start: /a.(?i:b)/ /[c-d]\/./is)",
     {"axBC/\n", "a-bd/x"},
     {"AxbC/x", "a\nbc/x"}},
    {"terminals of terminals", "start: N \",\" N\nN: \"-\"? D+\nD: /[0-9]/", {"1,-23"}, {"-,1", "1,"}},
    {"imported terminals",
     "%import common (INT, WS)\n%import common.CNAME -> NAME\nstart: NAME WS INT",
     {"ab_1 \t7"},
     {"1 7", "ab7"}},
    {"a schema in a rule",
     "%llguidance {}\nstart: \"<\" (%json {\"enum\": [\"}\", 1]}) \">\"",
     {"<\"}\">", "<1>"},
     {"<2>", "1"}},
    {"parts of a text",
     R"(start: "[" %regex {"substring_words": "a bc a"} "]")",
     {"[]", "[a]", "[ bc]", "[a bc a]"},
     {"[b]", "[bc bc]"}},
    {"a rule that begins with itself",
     "start: sum\nsum: sum \"+\" part | part\npart: /[a-z]/ | \"(\" sum \")\"",
     {"a", "a+b", "(a+b)+c"},
     {"", "+a", "a+", "(a"}},
    {"two rules that begin with each other",
     "start: a\na: b \"x\" | \"p\" | b\nb: a \"y\" | \"q\"",
     {"p", "q", "py", "pyx", "qx", "qxyx"},
     {"px", "x", "qy x"}},
    {"a rule that begins with itself behind what may be empty",
     "start: _ start \"+\" start | _ \"a\" _\n_: / */",
     {"a", " a + a ", "a+a+a"},
     {"", "a+", "+a"}},
    {"GBNF that begins with itself",
     "root ::= root? \"a\" | root \"b\" | \"c\"",
     {"a", "c", "cab", "aab"},
     {"", "b"}},
};

const notation_row tags[] = {
    {"free text that ends a tag",
     R"({"format": {"type": "tag", "begin": "<t>", "content": {"type": "any_text"}, "end": "</t>"}})",
     {"<t></t>", "<t>a < b </</t>", "<t>é\n</t>"},
     {"<t>", "<t></t></t>", "a<t></t>"}},
    {"tags in free text, again and again",
     R"({"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<f="], "tags": [
         {"begin": "<f=a>", "content": {"type": "json_schema", "json_schema": {"type": "integer"}}, "end": "</f>"},
         {"begin": "<f=b>", "content": {"type": "any_text", "excludes": ["x"]}, "end": "</f>"}]}})",
     {"", "a", "a <f", "<f=a>1</f>", "a<f=a>1</f>b<f=b>?</f><f=a>2</f>", "<<f=b></f>"},
     {"<f=", "<f=c>", "<f=a>x</f>", "<f=a>1", "<f=b>x</f>"}},
    {"structures with triggers",
     R"({"structures": [{"begin": "<a>", "schema": {"const": 1}, "end": "</a>"}], "triggers": ["<a"]})",
     {"", "x <a>1</a> y <a>1</a>"},
     {"<a", "<a>2</a>"}},
    {"at least one tag, and no more",
     R"({"format": {"type": "triggered_tags", "triggers": ["<"], "at_least_one": true, "stop_after_first": true, "tags": [
         {"begin": "<a>", "content": {"type": "const_string", "value": ""}, "end": ""}]}})",
     {"<a>"},
     {"", "x<a>", "<a>x", "<a><a>"}},
    {"tags with a separator",
     R"({"format": {"type": "tags_with_separator", "separator": ", ", "tags": [
         {"begin": "", "content": {"type": "regex", "pattern": "a|b"}, "end": ["!", "?"]}]}})",
     {"", "a!", "a!, b?"},
     {"a!b!", "a!, ", "a"}},
    {"excluded texts that overlap",
     R"({"format": {"type": "any_text", "excludes": ["aab", "ba"], "max_chars": 4}})",
     {"", "aaa", "ab", "éb"},
     {"aab", "aaab", "bba", "aaaaa"}},
    {"patterns that overlap",
     R"({"format": {"type": "dispatch", "rules": [["aab", {"type": "const_string", "value": "!"}]], "loop": false}})",
     {"", "aaaa", "aaab!", "abab"},
     {"aab", "aab!x"}},
    {"compositions",
     R"({"format": {"type": "sequence", "elements": [
         {"type": "repeat", "min": 1, "max": 2, "content": {"type": "const_string", "value": "a"}},
         {"type": "optional", "content": {"type": "grammar", "grammar": "start: \"b\" start | \"c\""}},
         {"type": "or", "elements": [{"type": "star", "content": {"type": "const_string", "value": "d"}},
                                     {"type": "plus", "content": {"type": "const_string", "value": "e"}}]}]}})",
     {"a", "aabcdd", "ace"},
     {"", "aaa", "abd", "ade"}},
};

struct refusal_row {
    const char *kind, *text, *why; // how the message begins
};

const refusal_row refusals[] = {
    {"grammar", "start: \"a\"\n%ignore \" \"", "grammar: line 2, column 1: %ignore "},
    {"grammar", "start: A\nA.2: \"a\"", "grammar: line 2, column 2: a priority "},
    {"grammar", "start: x{y}\n", "grammar: line 1, column 9: templates"},
    {"grammar", "start: /a(?!b)/", "grammar: line 1, column 10: a group "},
    {"grammar", "start: /a*?b/", "grammar: line 1, column 11: a lazy repetition"},
    {"grammar", "start: /a$/", "grammar: line 1, column 10: \"$\" is no part"},
    {"grammar", "start: A\nA: \"x\" A", "grammar: line 2, column 8: a terminal cannot refer to itself"},
    {"grammar", "start: \"a\"\n  b", "grammar: line 2, column 4: expected :"},
    {"grammar", "start: %json {\"type\": \"word\"}", "grammar: line 1, column 8: %json: /type: "},
    {"grammar", "root ::= root \"a\"", "no text fits it"},
    {"grammar", "start: \"a\" start", "grammar: line 1, column 1: no text of the rule start ever ends"},
    {"structural_tag", "{", "structural_tag is not JSON"},
    {"structural_tag", R"({"format": {"type": "any_text"}, "x": 1})", "structural_tag: it has no field x"},
    {"structural_tag", R"({"format": {"type": "any_text", "exclude": []}})",
     "structural_tag: /format: it has no field exclude"},
    {"structural_tag", R"({"format": {"type": "qwen_xml_parameter"}})",
     "structural_tag: /format/type: qwen_xml_parameter is not"},
    {"structural_tag",
     R"({"format": {"type": "tag", "begin": "", "end": "", "content": {"type": "regex", "pattern": "("}}})",
     "structural_tag: /format/content/pattern: line 1, column 1: the group"},
    {"structural_tag", R"({"format": {"type": "any_text", "max_tokens": 9}})",
     "structural_tag: /format/max_tokens: tokens"},
    {"structural_tag",
     R"({"format": {"type": "dispatch", "rules": [["ab", {"type": "any_text"}], ["b", {"type": "any_text"}]]}})",
     "structural_tag: /format/rules: \"ab\" begins something and holds \"b\""},
    {"structural_tag",
     R"({"format": {"type": "triggered_tags", "triggers": ["<a", "<"], "tags": [
         {"begin": "<a>", "content": {"type": "any_text"}, "end": "."}]}})",
     "structural_tag: /format/triggers: \"<a\" begins something and holds \"<\""},
};

json ask(const char * kind, const char * text, const std::vector<std::string> & texts) {
    return json::parse(admit_line(json{{"kind", kind}, {"text", text}, {"texts", texts}}.dump()));
}

void check(const char * kind, const notation_row & row) {
    const json yes = ask(kind, row.text, row.yes), no = ask(kind, row.text, row.no);
    expect_equal("", yes.value("error", ""), "it is refused");
    for (size_t i = 0; i < row.yes.size(); i++) {
        expect(yes["admitted"][i], "it does not admit " + row.yes[i]);
    }
    for (size_t i = 0; i < row.no.size(); i++) {
        expect(!no["admitted"][i], "it admits " + row.no[i]);
    }
}

} // namespace

void add_notation_cases(std::vector<test_case> & cases) {
    for (const notation_row & row : grammars) {
        cases.push_back({std::string("grammars ") + row.name, [&row] { check("grammar", row); }});
    }
    for (const notation_row & row : tags) {
        cases.push_back(
            {std::string("structural tags ") + row.name, [&row] { check("structural_tag", row); }});
    }
    for (const refusal_row & row : refusals) {
        cases.push_back({std::string("refused notations: ") + row.why, [&row] {
                             const std::string found = ask(row.kind, row.text, {}).value("error", "");
                             expect_equal(row.why, found.substr(0, std::string(row.why).size()), found);
                         }});
    }
}
