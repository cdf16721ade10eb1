#include "grammar/lark/library.h"

const std::map<std::string, const char *> & common_terminals() {
    static const std::map<std::string, const char *> all = {
        {"DIGIT", R"([0-9])"},
        {"HEXDIGIT", R"([a-fA-F0-9])"},
        {"INT", R"([0-9]+)"},
        {"SIGNED_INT", R"((\+|-)?[0-9]+)"},
        {"DECIMAL", R"([0-9]+\.[0-9]*|\.[0-9]+)"},
        {"_EXP", R"([eE](\+|-)?[0-9]+)"},
        {"FLOAT", R"(([0-9]+\.[0-9]*|\.[0-9]+)([eE](\+|-)?[0-9]+)?|[0-9]+[eE](\+|-)?[0-9]+)"},
        {"SIGNED_FLOAT", R"((\+|-)?(([0-9]+\.[0-9]*|\.[0-9]+)([eE](\+|-)?[0-9]+)?|[0-9]+[eE](\+|-)?[0-9]+))"},
        {"NUMBER", R"([0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE](\+|-)?[0-9]+)?|[0-9]+[eE](\+|-)?[0-9]+)"},
        {"SIGNED_NUMBER",
         R"((\+|-)?([0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE](\+|-)?[0-9]+)?|[0-9]+[eE](\+|-)?[0-9]+))"},
        {"ESCAPED_STRING", R"("([^"\\]|\\.)*")"},
        {"LCASE_LETTER", R"([a-z])"},
        {"UCASE_LETTER", R"([A-Z])"},
        {"LETTER", R"([A-Za-z])"},
        {"WORD", R"([A-Za-z]+)"},
        {"CNAME", R"([_A-Za-z][_A-Za-z0-9]*)"},
        {"WS_INLINE", R"([ \t]+)"},
        {"WS", R"([ \t\f\r\n]+)"},
        {"CR", R"(\r)"},
        {"LF", R"(\n)"},
        {"NEWLINE", R"((\r?\n)+)"},
        {"SH_COMMENT", R"(#[^\n]*)"},
        {"CPP_COMMENT", R"(//[^\n]*)"},
        {"C_COMMENT", R"(/\*[^*]*\*+([^/*][^*]*\*+)*/)"},
        {"SQL_COMMENT", R"(--[^\n]*)"},
    };
    return all;
}
