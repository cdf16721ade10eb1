#include "chat/required_calls.h"

#include <nlohmann/json.hpp>

#include <map>
#include <set>

using json = nlohmann::json;

namespace {

// What the grammar has in place of content. Where the parser's node N reads up to a text, the rule "until-N" has it;
// else a rule of its own, which others may share.
struct content_rules {
    std::set<std::string>                        emptied; // rules
    std::map<std::string, std::set<std::string>> dropped; // from a rule: the names of others
};

// Collects the content below a node, within the rule of this name.
void collect(const json & nodes, const json & node, const std::string & rule, content_rules & found) {
    const std::string type = node["type"];
    if (type == "tag" && node["tag"] == "content") {
        const size_t id    = node["child"];
        const json & child = nodes[id];
        if (child["type"] == "until") {
            found.emptied.insert("until-" + std::to_string(id));
        } else if (child["type"] == "rule" || child["type"] == "ref") {
            found.dropped[rule].insert(child["name"]);
        }
    }
    if (type == "rule" || type == "ref") {
        return; // a rule is visited by itself
    }
    if (node.contains("child")) {
        collect(nodes, nodes[node["child"].get<size_t>()], rule, found);
    }
    for (const json & child : node.value("children", json::array())) {
        collect(nodes, nodes[child.get<size_t>()], rule, found);
    }
}

content_rules content_of(const std::string & parser) {
    const json    all   = json::parse(parser);
    const json &  nodes = all["parsers"];
    content_rules found;
    for (const json & node : nodes) {
        if (node["type"] == "rule") {
            collect(nodes, nodes[node["child"].get<size_t>()], node["name"], found);
        }
    }
    collect(nodes, nodes[all["root"].get<size_t>()], "root", found);
    return found;
}

// A rule's expression without these names, which stand between spaces.
std::string without_names(const std::string & expression, const std::set<std::string> & names) {
    std::string made;
    for (size_t begin = 0; begin < expression.size();) {
        const size_t      end  = std::min(expression.find(' ', begin), expression.size());
        const std::string word = expression.substr(begin, end - begin);
        made += (names.count(word) > 0 ? "\"\"" : word) + (end < expression.size() ? " " : "");
        begin = end + 1;
    }
    return made;
}

// Where the alternative ends that begins here in an expression: at its "|", or where its group ends.
size_t end_of_alternative(const std::string & expression, size_t i) {
    for (int depth = 0; i < expression.size(); i++) {
        const char c = expression[i];
        if (c == '"' || c == '[') {
            for (const char end = c == '"' ? '"' : ']'; ++i < expression.size() && expression[i] != end;) {
                i += expression[i] == '\\' ? 1 : 0;
            }
        } else if (depth == 0 && (c == '|' || c == ')')) {
            return i;
        } else {
            depth += c == '(' ? 1 : c == ')' ? -1 : 0;
        }
    }
    return expression.size();
}

// An expression without the alternatives that open with a text and go on with one of these rules: the text would say
// that content follows (">>>all" of Functionary).
std::string without_openings(std::string expression, const std::set<std::string> & names) {
    for (const std::string & name : names) {
        const size_t at    = expression.find("\" " + name + " ");
        const size_t begin = at == std::string::npos ? at : expression.rfind("(\"", at);
        if (begin != std::string::npos && expression.find('"', begin + 2) == at) {
            const size_t end = end_of_alternative(expression, begin + 1);
            if (end < expression.size() && expression[end] == '|') {
                expression.erase(begin + 1, end + 2 - (begin + 1));
            }
        }
    }
    return expression;
}

} // namespace

std::string without_content(const std::string & grammar, const std::string & parser) {
    const content_rules found = content_of(parser);
    std::string         made;
    for (size_t begin = 0; begin < grammar.size();) {
        const size_t      end   = std::min(grammar.find('\n', begin), grammar.size());
        const std::string line  = grammar.substr(begin, end - begin);
        const size_t      is    = line.find(" ::= ");
        const std::string name  = line.substr(0, is);
        const auto        names = found.dropped.find(name);
        if (found.emptied.count(name) > 0) {
            made += name + " ::= \"\"\n";
        } else if (names != found.dropped.end()) {
            made += without_names(line, names->second) + '\n';
        } else {
            made += without_openings(line, found.emptied) + '\n';
        }
        begin = end + 1;
    }
    return made;
}
