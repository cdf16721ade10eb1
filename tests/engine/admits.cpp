// engine-tests --admits: whether values are admitted by schemas, for benchmarks/structure.py. Each line of stdin is
// {"schema": text, "values": [texts of JSON], "lenient", "open", "any_order": booleans, "space": name, "texts": how
// many random ones to make, "seed"}; each line of stdout is {"error": text} or {"warnings": [], "admitted":
// [booleans], "written": [the texts of those admitted, or null], "texts": [], "ms": of the compilation, in time of the
// processor}. A line for
// tests/conformance/notations.py is {"kind": "grammar" or "structural_tag", "text", "texts": [those to admit]}. There is
// no model, so that none has tokens.
#include "admits.h"

#include "cases.h"
#include "grammar/automaton.h"
#include "grammar/gbnf.h"
#include "grammar/lark/lark.h"
#include "grammar/schema/compile.h"
#include "grammar/structural_tag.h"
#include "util/json.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <iostream>
#include <optional>
#include <random>
#include <set>
#include <tuple>

namespace {

using json = indexed_json;

// Whether some way to write a value is admitted: the properties may come in any order. Its own order is tried first,
// then that of the names in the schema, then each name before those that cannot come behind it, each with so much work.
class writer {
  public:
    // spaced: with a space behind each comma and colon between values.
    writer(automaton & machine, const std::string & schema, bool spaced)
        : machine(machine), schema(schema), comma(spaced ? ", " : ","), colon(spaced ? ": " : ":") {}

    // The text; empty: none is admitted.
    std::string admits(const json & value) {
        for (const way by : {own_order, sorted, first_things_first}) {
            n_left = by == first_things_first ? 20000000 : 1000000;
            order  = by;
            written.clear();
            if (write(value, automaton::first, [this](int32_t at) { return machine[at].may_end; })) {
                return written;
            }
        }
        return "";
    }

  private:
    enum way { own_order, sorted, first_things_first };

    using then  = std::function<bool(int32_t)>;
    using tried = std::set<std::pair<int32_t, std::vector<bool>>>;

    int32_t text(int32_t at, const std::string & utf8) {
        n_left -= (int64_t) utf8.size();
        written += utf8;
        return at == automaton::dead || n_left < 0 ? automaton::dead : machine.step_by_text(at, utf8);
    }

    // What a way in vain has written is removed.
    bool attempt(const std::function<bool()> & way) {
        const size_t n    = written.size();
        const bool   ends = way();
        written.resize(ends ? written.size() : n);
        return ends;
    }

    bool literal(int32_t at, const std::string & utf8, const then & next) {
        return attempt([&] {
            const int32_t to = text(at, utf8);
            return to != automaton::dead && next(to);
        });
    }

    bool write(const json & value, int32_t at, const then & next) {
        if (value.is_object()) {
            const int32_t           to      = text(at, "{");
            const json              ordered = order == sorted ? in_order(value) : value;
            tried                   seen; // what follows the object is the same in all of its ways
            const std::vector<bool> none(value.size());
            return to != automaton::dead && members(ordered, none, none, 0, to, next, seen);
        }
        if (value.is_array()) {
            const int32_t to = text(at, "[");
            return to != automaton::dead && items(value, 0, to, next);
        }
        if (value.is_number_float()) {
            char whole[64];
            snprintf(whole, sizeof(whole), "%.0f", value.get<double>());
            const bool is_whole = json::parse(whole) == value && strlen(whole) < 20;
            return literal(at, value.dump(), next) || (is_whole && literal(at, whole, next));
        }
        if (value.is_string()) {
            std::string out;
            append_json_string(out, value.get<std::string>());
            return literal(at, out, next);
        }
        return literal(at, value.dump(), next);
    }

    json in_order(const json & object) {
        std::vector<std::pair<size_t, std::string>> names;
        for (const auto & [name, one] : object.items()) {
            (void) one;
            names.emplace_back(schema.find(json(name).dump()), name);
        }
        std::stable_sort(names.begin(), names.end(),
                         [](const auto & a, const auto & b) { return a.first < b.first; });
        json out = json::object();
        for (const auto & [place, name] : names) {
            (void) place;
            out[name] = object[name];
        }
        return out;
    }

    bool items(const json & value, size_t i, int32_t at, const then & next) {
        if (i == value.size()) {
            return literal(at, "]", next);
        }
        const int32_t to = i > 0 ? text(at, comma) : at;
        return to != automaton::dead &&
               write(value[i], to, [&, i](int32_t then_at) { return items(value, i + 1, then_at, next); });
    }

    // The members that may come next. nullopt: one that might have come before no longer may.
    std::optional<std::vector<bool>> possible(const json & value, const std::vector<bool> & done,
                                              const std::vector<bool> & before, int32_t at) {
        std::vector<bool> out(value.size());
        const size_t      n = written.size();
        size_t            i = 0;
        for (auto member = value.begin(); member != value.end(); ++member, i++) {
            out[i] = !done[i] && text(at, name_of(member.key())) != automaton::dead;
            written.resize(n);
            if (before[i] && !done[i] && !out[i]) {
                return std::nullopt;
            }
        }
        return out;
    }

    std::string name_of(const std::string & name) {
        std::string out;
        append_json_string(out, name);
        return out + colon;
    }

    // before: the members that might have come before.
    bool members(const json & value, const std::vector<bool> & done, const std::vector<bool> & before,
                 size_t n, int32_t at, const then & next, tried & seen) {
        if (n == value.size()) {
            return literal(at, "}", next);
        }
        if (!seen.insert({at, done}).second) {
            return false;
        }
        const int32_t                    to  = n > 0 ? text(at, comma) : at;
        size_t                           i   = 0;
        std::optional<std::vector<bool>> now = before;
        if (order == first_things_first) {
            now = possible(value, done, before, to);
        }
        for (auto member = value.begin(); member != value.end() && to != automaton::dead && now;
             ++member, i++) {
            if (done[i]) {
                continue;
            }
            std::vector<bool> more = done;
            more[i]                = true;
            const auto go_on = [&](int32_t a) { return members(value, more, *now, n + 1, a, next, seen); };
            if (attempt([&] {
                    const int32_t behind = text(to, name_of(member.key()));
                    return behind != automaton::dead && write(member.value(), behind, go_on);
                })) {
                return true;
            }
        }
        return false;
    }

    automaton &       machine;
    const std::string schema, comma, colon;
    std::string       written;
    int64_t           n_left = 0;
    way               order  = own_order;
};

// A text of the grammar, by random bytes; empty: it did not end within so many.
std::string random_text(automaton & machine, std::mt19937 & random) {
    static const int n_most = 3000;
    std::string      out;
    int32_t          at = automaton::first;
    while ((int) out.size() < n_most) {
        std::string next, ends; // bytes that may come; those that end a string, a list, an object
        for (int b = 0; b < 256; b++) {
            machine.begin_step();
            if (machine.step(at, (uint8_t) b) != automaton::dead) {
                (strchr("\"]}", b) != nullptr && b != 0 ? ends : next) += (char) b;
            }
        }
        const bool end = !ends.empty() && (next.empty() || random() % 4 == 0);
        if (machine[at].may_end && ((next.empty() && ends.empty()) || random() % 2 == 0)) {
            return out;
        }
        const std::string & from = end ? ends : next;
        const char          c    = from[random() % from.size()];
        out += c;
        at = machine.step(at, (uint8_t) c);
    }
    return "";
}

schema::options::spaces space_of(const json & line) {
    const std::string name = line.value("space", "one");
    return name == "free"      ? schema::options::free
           : name == "compact" ? schema::options::compact
                               : schema::options::one;
}

json answer_notation(const json & line) {
    json out = {{"admitted", json::array()}};
    try {
        automaton machine(compile_line(line).rules);
        for (const json & one : line["texts"]) {
            const int32_t at = machine.step_by_text(automaton::first, one.get<std::string>());
            out["admitted"].push_back(at != automaton::dead && machine[at].may_end);
        }
    } catch (const std::exception & e) {
        return {{"error", e.what()}};
    }
    return out;
}

json answer(const json & line) {
    if (line.contains("kind")) {
        return answer_notation(line);
    }
    const std::clock_t begin = std::clock();
    const auto         ms    = [&] { return 1000.0 * (double) (std::clock() - begin) / CLOCKS_PER_SEC; };
    schema::compiled   made;
    try {
        made = compile_line(line);
        if (const int32_t r = made.rules.find_left_recursion(); r >= 0) {
            return {{"error", "left recursion in rule " + std::to_string(r)}, {"ms", ms()}};
        }
    } catch (const std::exception & e) {
        return {{"error", e.what()}, {"ms", ms()}};
    }
    json out = {{"ms", ms()}, {"warnings", made.warnings}, {"admitted", json::array()}};
    try {
        automaton machine(std::move(made.rules));
        writer w(machine, json::parse(line["schema"].get<std::string>()).dump(), line.value("spaced", false));
        for (const json & text : line["values"]) {
            const std::string written = w.admits(json::parse(text.get<std::string>()));
            out["admitted"].push_back(!written.empty());
            out["written"].push_back(written.empty() ? json() : json(written));
        }
        std::mt19937 random(line.value("seed", 1u));
        for (int i = 0; i < line.value("texts", 0); i++) {
            if (const std::string text = random_text(machine, random); !text.empty()) {
                out["texts"].push_back(text);
            }
        }
    } catch (const std::exception & e) {
        return {{"error", e.what()}, {"ms", ms()}};
    }
    return out;
}

} // namespace

schema::compiled compile_line(const json & line) {
    schema::options given;
    given.lenient   = line.value("lenient", false);
    given.open      = line.value("open", false);
    given.any_order = line.value("any_order", false);
    given.space     = space_of(line);
    if (!line.contains("kind")) {
        return schema::compile(line["schema"].get<std::string>(), given);
    }
    const std::string   text = line["text"];
    embedded_schemas    schemas(given);
    const notation_text in("grammar", text);
    return {line["kind"] == "structural_tag" ? read_structural_tag(text, nullptr, schemas)
            : is_lark(text)                  ? read_lark(in, nullptr, schemas)
                                             : read_gbnf(in, nullptr),
            {}};
}

std::string admit_line(const std::string & line) {
    return answer(json::parse(line)).dump(-1, ' ', false, json::error_handler_t::replace);
}

int admit_lines() {
    std::string line;
    while (std::getline(std::cin, line)) {
        std::cout << admit_line(line) << std::endl;
    }
    return 0;
}
