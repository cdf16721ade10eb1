#include "grammar/structural_tag.h"

#include "grammar/free_text.h"
#include "grammar/gbnf.h"
#include "grammar/lark/lark.h"
#include "grammar/regex.h"
#include "grammar/tokens.h"
#include "util/indexed_json.h"
#include "util/json.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

namespace {

using json      = indexed_json; // the order of a schema's properties is that of the text
using element   = grammar_element;
using sequence  = grammar_rules::sequence;
using texts     = std::vector<std::string>;
using token_ids = std::vector<int32_t>;

const int    n_max_levels     = 64;      // of formats
const int    n_max_depth      = 200;     // of the whole
const size_t n_max_characters = 1 << 14; // of max_chars

// The end of the tag around a format: free text within does not hold it.
struct ending {
    texts     words;
    token_ids ids;
};

// A format, and where it stands.
struct place {
    const json &   what;
    std::string    path;
    const ending & around;
    int            level;

    bool  has(const char * name) const { return what.contains(name) && !what[name].is_null(); }
    place operator[](const char * name) const { return {what[name], path + "/" + name, around, level}; }
    place operator[](size_t i) const { return {what[i], path + "/" + std::to_string(i), around, level}; }
    place within(const ending & tag) const { return {what, path, tag, level}; }

    [[noreturn]] void fail(const std::string & why) const {
        invalid("structural_tag",
                "structural_tag: " + path + (path.empty() || why[0] == '/' ? "" : ": ") + why);
    }
};

struct tag {
    place    where;
    texts    begin;      // one text, or none
    int32_t  token = -1; // that it begins with in place of the text
    sequence rest;       // its content and its end
};

class format_reader {
  public:
    format_reader(const llama_vocab * vocab, embedded_schemas & schemas)
        : vocab(vocab), tokens(vocab), schemas(schemas) {}

    grammar_rules read(const json & whole) {
        const ending none;
        const place  all = {whole, "", none, 0};
        rules.add_rule(0);
        check_object(all);
        if (all.has("structures")) {
            check_names(all, {"type", "structures", "triggers"});
            rules.add_alternative(0, {read_structures(all)});
        } else {
            check_names(all, {"type", "format"});
            rules.add_alternative(0, {read_format(required(all, "format"))});
        }
        if (all.has("type") && whole["type"] != "structural_tag") {
            all["type"].fail("it must be \"structural_tag\"");
        }
        if (!rules.remove_endless()) {
            all.fail("no text of it ever ends");
        }
        return std::move(rules);
    }

  private:
    using reader = element (format_reader::*)(const place & p);
    struct kind {
        texts  fields;
        reader read;
    };
    static const std::map<std::string, kind> & kinds();

    element read_format(const place & given);
    element read_const_string(const place & p);
    element read_json_schema(const place & p);
    element read_grammar(const place & p);
    element read_regex(const place & p);
    element read_any_text(const place & p);
    element read_sequence(const place & p);
    element read_or(const place & p);
    element read_optional(const place & p) { return times(p, 0, 1); }
    element read_plus(const place & p) { return times(p, 1, -1); }
    element read_star(const place & p) { return times(p, 0, -1); }
    element read_repeat(const place & p);
    element read_tag_format(const place & p) { return whole_tag(read_tag(p)); }
    element read_triggered_tags(const place & p);
    element read_tags_with_separator(const place & p);
    element read_dispatch(const place & p);
    element read_token(const place & p) { return {element::token, token_of(required(p, "token"))}; }
    element read_exclude_token(const place & p) { return tokens.any_but(rules, excluded_tokens(p)); }
    element read_any_tokens(const place & p);
    element read_token_triggered_tags(const place & p);
    element read_token_dispatch(const place & p);
    element read_structures(const place & p);

    tag              read_tag(const place & p);
    std::vector<tag> read_tags(const place & p);
    sequence         read_end(const place & end, ending & found);
    element          whole_tag(const tag & one);
    element          tagged_text(const place & p, const texts & triggers, const std::vector<tag> & tags);
    element          text_with(const place & p, free_text && text);
    element          schema_of(const place & p, bool any_order);
    element          times(const place & p, int64_t low, int64_t high);

    element any_of(const std::vector<sequence> & alternatives) {
        const int32_t rule = rules.add_rule(0);
        for (const sequence & one : alternatives) {
            rules.add_alternative(rule, one);
        }
        return {element::rule, rule};
    }
    sequence text(const std::string & utf8) {
        sequence out;
        rules.append_text(out, utf8);
        return out;
    }
    static sequence joined(sequence a, const sequence & b) {
        a.insert(a.end(), b.begin(), b.end());
        return a;
    }

    // fields
    static void        check_object(const place & p);
    static void        check_names(const place & p, const texts & names);
    static place       required(const place & p, const char * name);
    static std::string text_of(const place & p, bool may_be_empty);
    static texts       texts_of(const place & p);
    static bool        flag(const place & p, const char * name, bool otherwise = false);
    static int64_t     number(const place & p, int64_t low);
    static place       list(const place & p, const char * name);
    texts              excluded_texts(const place & p, bool with_ends);
    int32_t            token_of(const place & p);
    token_ids          tokens_of(const place & p);
    token_ids          excluded_tokens(const place & p, bool with_ends = true);

    const llama_vocab * vocab;
    token_names         tokens;
    embedded_schemas &  schemas;
    work_budget         budget;
    grammar_rules       rules;
};

//
// fields
//

void format_reader::check_object(const place & p) {
    if (!p.what.is_object()) {
        p.fail("it must be an object");
    }
}

void format_reader::check_names(const place & p, const texts & names) {
    for (const auto & [name, value] : p.what.items()) {
        if (std::find(names.begin(), names.end(), name) == names.end()) {
            std::string all;
            for (const std::string & one : names) {
                all += (all.empty() ? "" : ", ") + one;
            }
            p.fail("it has no field " + name + "; it may have " + all);
        }
    }
}

place format_reader::required(const place & p, const char * name) {
    if (!p.has(name)) {
        p.fail(std::string(name) + " is missing");
    }
    return p[name];
}

std::string format_reader::text_of(const place & p, bool may_be_empty) {
    if (!p.what.is_string() || (!may_be_empty && p.what.get<std::string>().empty())) {
        p.fail(may_be_empty ? "it must be a text" : "it must be a text that is not empty");
    }
    return p.what.get<std::string>();
}

texts format_reader::texts_of(const place & p) {
    if (!p.what.is_array()) {
        p.fail("it must be a list of texts");
    }
    texts out;
    for (size_t i = 0; i < p.what.size(); i++) {
        out.push_back(text_of(p[i], false));
    }
    return out;
}

bool format_reader::flag(const place & p, const char * name, bool otherwise) {
    if (!p.has(name)) {
        return otherwise;
    }
    if (!p.what[name].is_boolean()) {
        p[name].fail("it must be true or false");
    }
    return p.what[name].get<bool>();
}

int64_t format_reader::number(const place & p, int64_t low) {
    const int64_t high = std::numeric_limits<int32_t>::max();
    const bool    fits =
        p.what.is_number_integer() && p.what.get<int64_t>() >= low && p.what.get<int64_t>() <= high;
    if (!fits || (p.what.is_number_unsigned() && p.what.get<uint64_t>() > (uint64_t) high)) {
        p.fail("it must be between " + std::to_string(low) + " and " + std::to_string(high));
    }
    return p.what.get<int64_t>();
}

place format_reader::list(const place & p, const char * name) {
    place found = required(p, name);
    if (!found.what.is_array() || found.what.empty()) {
        found.fail("it must be a list that is not empty");
    }
    return found;
}

texts format_reader::excluded_texts(const place & p, bool with_ends) {
    texts out = p.has("excludes") ? texts_of(p["excludes"]) : texts();
    for (const std::string & end : with_ends ? p.around.words : texts()) {
        if (!end.empty()) {
            out.push_back(end);
        }
    }
    return out;
}

int32_t format_reader::token_of(const place & p) {
    const int64_t id = p.what.is_string() ? tokens.find(p.what.get<std::string>()) : number(p, 0);
    if (!tokens.has(id)) {
        p.fail("the model has no such token");
    }
    return (int32_t) id;
}

token_ids format_reader::tokens_of(const place & p) {
    if (!p.what.is_array()) {
        p.fail("it must be a list of tokens");
    }
    token_ids out;
    for (size_t i = 0; i < p.what.size(); i++) {
        out.push_back(token_of(p[i]));
    }
    return out;
}

token_ids format_reader::excluded_tokens(const place & p, bool with_ends) {
    token_ids out = p.has("exclude_tokens") ? tokens_of(p["exclude_tokens"]) : token_ids();
    if (with_ends) {
        out.insert(out.end(), p.around.ids.begin(), p.around.ids.end());
    }
    return out;
}

//
// formats
//

const std::map<std::string, format_reader::kind> & format_reader::kinds() {
    using self                                     = format_reader;
    static const std::map<std::string, kind> kinds = {
        {"const_string", {{"value"}, &self::read_const_string}},
        {"json_schema",
         {{"json_schema", "style", "any_order", "max_whitespace_cnt"}, &self::read_json_schema}},
        {"grammar", {{"grammar"}, &self::read_grammar}},
        {"regex", {{"pattern"}, &self::read_regex}},
        {"any_text", {{"excludes", "max_chars", "max_tokens"}, &self::read_any_text}},
        {"sequence", {{"elements"}, &self::read_sequence}},
        {"or", {{"elements"}, &self::read_or}},
        {"optional", {{"content"}, &self::read_optional}},
        {"plus", {{"content"}, &self::read_plus}},
        {"star", {{"content"}, &self::read_star}},
        {"repeat", {{"content", "min", "max"}, &self::read_repeat}},
        {"tag", {{"begin", "content", "end"}, &self::read_tag_format}},
        {"triggered_tags",
         {{"triggers", "tags", "at_least_one", "stop_after_first", "excludes"}, &self::read_triggered_tags}},
        {"tags_with_separator",
         {{"tags", "separator", "at_least_one", "stop_after_first"}, &self::read_tags_with_separator}},
        {"dispatch", {{"rules", "loop", "excludes"}, &self::read_dispatch}},
        {"token", {{"token"}, &self::read_token}},
        {"exclude_token", {{"exclude_tokens"}, &self::read_exclude_token}},
        {"any_tokens", {{"exclude_tokens", "max_tokens"}, &self::read_any_tokens}},
        {"token_triggered_tags",
         {{"trigger_tokens", "tags", "exclude_tokens", "at_least_one", "stop_after_first"},
          &self::read_token_triggered_tags}},
        {"token_dispatch", {{"rules", "loop", "exclude_tokens"}, &self::read_token_dispatch}},
    };
    return kinds;
}

element format_reader::read_format(const place & given) {
    const place p = {given.what, given.path, given.around, given.level + 1};
    if (p.level > n_max_levels) {
        p.fail("formats are nested more than " + std::to_string(n_max_levels) + " levels deep");
    }
    check_object(p);
    const std::string name  = text_of(required(p, "type"), false);
    const auto        found = kinds().find(name);
    if (found == kinds().end()) {
        std::string all;
        for (const auto & [known, kind] : kinds()) {
            all += (all.empty() ? "" : ", ") + known;
        }
        p["type"].fail(name + " is not read here; there are " + all);
    }
    texts fields = found->second.fields;
    fields.insert(fields.begin(), "type");
    check_names(p, fields);
    return (this->*found->second.read)(p);
}

element format_reader::read_const_string(const place & p) {
    return any_of({text(text_of(required(p, "value"), true))});
}

element format_reader::schema_of(const place & p, bool any_order) {
    if (!p.what.is_object() && !p.what.is_boolean()) {
        p.fail("it must be a JSON schema: an object, true or false");
    }
    try {
        return schemas.add(rules, p.what.dump(), any_order);
    } catch (const command_error &) {
        throw;
    } catch (const std::runtime_error & e) {
        p.fail(e.what());
    }
}

element format_reader::read_json_schema(const place & p) {
    if (p.has("style") && p.what["style"] != "json") {
        p["style"].fail("arguments are written as json here, in no other style");
    }
    if (p.has("max_whitespace_cnt")) {
        p["max_whitespace_cnt"].fail("it is not read here; the field json_whitespace says it");
    }
    return schema_of(required(p, "json_schema"), flag(p, "any_order"));
}

element format_reader::read_grammar(const place & p) {
    const place         at   = required(p, "grammar");
    const std::string   text = text_of(at, false);
    const notation_text in("structural_tag", text, ": " + at.path);
    return rules.append(is_lark(text) ? read_lark(in, vocab, schemas) : read_gbnf(in, vocab));
}

element format_reader::read_regex(const place & p) {
    const place at = required(p, "pattern");
    return ::read_regex(rules, notation_text("structural_tag", text_of(at, false), ": " + at.path));
}

element format_reader::read_sequence(const place & p) {
    const place all = list(p, "elements");
    sequence    out;
    for (size_t i = 0; i < all.what.size(); i++) {
        out.push_back(read_format(all[i]));
    }
    return any_of({out});
}

element format_reader::read_or(const place & p) {
    const place           all = list(p, "elements");
    std::vector<sequence> out;
    for (size_t i = 0; i < all.what.size(); i++) {
        out.push_back({read_format(all[i])});
    }
    return any_of(out);
}

element format_reader::times(const place & p, int64_t low, int64_t high) {
    return rules.repeat({read_format(required(p, "content"))}, (int32_t) low, (int32_t) high, 0);
}

element format_reader::read_repeat(const place & p) {
    const int64_t low = number(required(p, "min"), 0), high = number(required(p, "max"), -1);
    if (high >= 0 && high < low) {
        p["max"].fail("it must be -1 or at least min");
    }
    return times(p, low, high);
}

//
// free text
//

element format_reader::text_with(const place & p, free_text && text) {
    if (const std::string why = find_overlap(text, budget); !why.empty()) {
        p.fail(why);
    }
    return add_free_text(rules, text, budget);
}

element format_reader::read_any_text(const place & p) {
    free_text out;
    out.excluded = excluded_texts(p, true);
    if (p.has("max_tokens") && number(p["max_tokens"], 0) > 0) {
        p["max_tokens"].fail("tokens of free text are not counted here; max_chars counts characters");
    }
    if (p.has("max_chars")) {
        out.n_max = number(p["max_chars"], 0);
        if (out.n_max > (int64_t) n_max_characters) {
            p["max_chars"].fail("it may be at most " + std::to_string(n_max_characters));
        }
    }
    out.n_max = p.has("max_tokens") ? 0 : out.n_max;
    return text_with(p, std::move(out));
}

// Free text up to a pattern, which a format follows; then free text again, if it loops.
element format_reader::read_dispatch(const place & p) {
    const place all = list(p, "rules");
    free_text   out;
    out.excluded = excluded_texts(p, false);
    out.loops    = flag(p, "loop", true);
    for (size_t i = 0; i < all.what.size(); i++) {
        if (!all.what[i].is_array() || all.what[i].size() != 2) {
            all[i].fail("it must be a list of a text and a format");
        }
        out.words.emplace_back(text_of(all[i][(size_t) 0], false), sequence{read_format(all[i][1])});
    }
    return text_with(all, std::move(out));
}

//
// tags
//

// The end of a tag; `found` is what free text within it does not hold.
sequence format_reader::read_end(const place & end, ending & found) {
    if (end.what.is_object()) {
        check_names(end, {"type", "token"});
        found.ids = {token_of(required(end, "token"))};
        return {{element::token, found.ids[0]}};
    }
    if (end.what.is_string()) {
        found.words = {text_of(end, true)};
        return text(found.words[0]);
    }
    if (!end.what.is_array() || end.what.empty()) {
        end.fail("it must be a text, a list of texts or a token");
    }
    std::vector<sequence> ways;
    for (size_t i = 0; i < end.what.size(); i++) {
        found.words.push_back(text_of(end[i], true));
        ways.push_back(text(found.words.back()));
    }
    return {any_of(ways)};
}

tag format_reader::read_tag(const place & p) {
    check_object(p);
    check_names(p, {"type", "begin", "content", "end"});
    if (p.has("type") && p.what["type"] != "tag") {
        p["type"].fail("it must be \"tag\"");
    }
    tag         out   = {p, {}, -1, {}};
    const place begin = required(p, "begin");
    if (begin.what.is_object()) {
        check_names(begin, {"type", "token"});
        out.token = token_of(required(begin, "token"));
    } else {
        out.begin = {text_of(begin, true)};
    }
    ending         own;
    const sequence end = read_end(required(p, "end"), own);
    out.rest           = joined({read_format(required(p, "content").within(own))}, end);
    return out;
}

std::vector<tag> format_reader::read_tags(const place & p) {
    const place      all = list(p, "tags");
    std::vector<tag> out;
    for (size_t i = 0; i < all.what.size(); i++) {
        out.push_back(read_tag(all[i]));
    }
    return out;
}

element format_reader::whole_tag(const tag & one) {
    return any_of(
        {joined(one.begin.empty() ? sequence{{element::token, one.token}} : text(one.begin[0]), one.rest)});
}

// Free text in which triggers begin tags.
element format_reader::tagged_text(const place & p, const texts & triggers, const std::vector<tag> & tags) {
    free_text                                    out;
    std::map<std::string, std::vector<sequence>> by_trigger;
    std::vector<sequence>                        whole;
    out.excluded = excluded_texts(p, true);
    for (const std::string & trigger : triggers) {
        out.words.emplace_back(trigger, sequence());
        by_trigger[trigger];
    }
    if (const std::string why = find_overlap(out, budget); !why.empty()) {
        p["triggers"].fail(why);
    }
    for (const tag & one : tags) {
        if (one.begin.empty()) {
            one.where["begin"].fail("it must be a text here; token_triggered_tags have tokens");
        }
        const std::string & begin = one.begin[0];
        auto                found = by_trigger.upper_bound(begin); // no trigger begins with another one
        found                     = found == by_trigger.begin() ? by_trigger.end() : std::prev(found);
        if (found == by_trigger.end() || begin.compare(0, found->first.size(), found->first) != 0) {
            one.where["begin"].fail("no trigger begins it");
        }
        found->second.push_back(joined(text(begin.substr(found->first.size())), one.rest));
        whole.push_back({whole_tag(one)});
    }
    const bool first = flag(p, "at_least_one"), last = flag(p, "stop_after_first");
    if (first && last) {
        return any_of(whole);
    }
    out.loops = !last;
    for (size_t i = 0; i < triggers.size(); i++) {
        if (by_trigger[triggers[i]].empty()) {
            p["triggers"][i].fail("no tag begins with it");
        }
        out.words[i].second = {any_of(by_trigger[triggers[i]])};
    }
    const element text = add_free_text(rules, out, budget);
    return first ? any_of({{any_of(whole), text}}) : text;
}

element format_reader::read_triggered_tags(const place & p) {
    list(p, "triggers");
    return tagged_text(p, texts_of(p["triggers"]), read_tags(p));
}

// SGLang's form, which vLLM had before: {structures: [{begin, schema, end}], triggers}.
element format_reader::read_structures(const place & p) {
    const place      all = list(p, "structures");
    std::vector<tag> tags;
    for (size_t i = 0; i < all.what.size(); i++) {
        const place one = all[i];
        check_object(one);
        check_names(one, {"begin", "schema", "end"});
        tag out = {one, {text_of(required(one, "begin"), true)}, -1, {}};
        out.rest =
            joined({schema_of(required(one, "schema"), false)}, text(text_of(required(one, "end"), true)));
        tags.push_back(std::move(out));
    }
    list(p, "triggers");
    return tagged_text(p, texts_of(p["triggers"]), tags);
}

element format_reader::read_tags_with_separator(const place & p) {
    std::vector<sequence> ways;
    for (const tag & one : read_tags(p)) {
        ways.push_back({whole_tag(one)});
    }
    const element  one  = any_of(ways);
    const sequence more = joined(text(text_of(required(p, "separator"), true)), {one});
    const sequence all =
        flag(p, "stop_after_first") ? sequence{one} : sequence{one, rules.repeat(more, 0, -1, 0)};
    return flag(p, "at_least_one") ? any_of({all}) : any_of({{}, all});
}

//
// tokens
//

element format_reader::read_any_tokens(const place & p) {
    const element one = tokens.any_but(rules, excluded_tokens(p));
    const int64_t max = p.has("max_tokens") ? number(p["max_tokens"], 0) : -1;
    return rules.repeat({one}, 0, (int32_t) max, 0);
}

element format_reader::read_token_triggered_tags(const place & p) {
    list(p, "trigger_tokens");
    const token_ids                          triggers = tokens_of(p["trigger_tokens"]);
    token_ids                                others   = excluded_tokens(p);
    std::map<int32_t, std::vector<sequence>> by_trigger;
    std::vector<sequence>                    whole;
    for (const tag & one : read_tags(p)) {
        if (one.token < 0 || std::find(triggers.begin(), triggers.end(), one.token) == triggers.end()) {
            one.where["begin"].fail("it must be one of the trigger_tokens");
        }
        by_trigger[one.token].push_back(one.rest);
        whole.push_back({whole_tag(one)});
    }
    const bool first = flag(p, "at_least_one"), last = flag(p, "stop_after_first");
    if (first && last) {
        return any_of(whole);
    }
    others.insert(others.end(), triggers.begin(), triggers.end());
    const int32_t free = rules.add_rule(0);
    rules.add_alternative(free, {});
    rules.add_alternative(free, {tokens.any_but(rules, others), {element::rule, free}});
    for (const auto & [token, ways] : by_trigger) {
        sequence out = {{element::token, token}, any_of(ways)};
        if (!last) {
            out.push_back({element::rule, free});
        }
        rules.add_alternative(free, out);
    }
    return first ? any_of({{any_of(whole), {element::rule, free}}}) : element{element::rule, free};
}

element format_reader::read_token_dispatch(const place & p) {
    const place   all   = list(p, "rules");
    const bool    loops = flag(p, "loop", true);
    token_ids     named = excluded_tokens(p, false);
    const int32_t free  = rules.add_rule(0);
    rules.add_alternative(free, {});
    for (size_t i = 0; i < all.what.size(); i++) {
        if (!all.what[i].is_array() || all.what[i].size() != 2) {
            all[i].fail("it must be a list of a token and a format");
        }
        named.push_back(token_of(all[i][(size_t) 0]));
        sequence out = {{element::token, named.back()}, read_format(all[i][1])};
        if (loops) {
            out.push_back({element::rule, free});
        }
        rules.add_alternative(free, out);
    }
    rules.add_alternative(free, {tokens.any_but(rules, named), {element::rule, free}});
    return {element::rule, free};
}

// The object in a text.
json parse(const std::string & text) {
    if (is_deeper(text, n_max_depth)) {
        invalid("structural_tag",
                "structural_tag is nested more than " + std::to_string(n_max_depth) + " levels deep");
    }
    try {
        return json::parse(text);
    } catch (const json::parse_error &) {
        invalid("structural_tag", "structural_tag is not JSON");
    }
}

} // namespace

grammar_rules read_structural_tag(const std::string & text, const llama_vocab * vocab,
                                  embedded_schemas & schemas) {
    const json whole = parse(text);
    return format_reader(vocab, schemas).read(whole);
}
