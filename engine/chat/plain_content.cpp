#include "chat/plain_content.h"

#include "text/banned_phrases.h"
#include "util/json.h"

#include <algorithm>
#include <cctype>
#include <functional>

using json = indexed_json;

// Roles that templates make control tokens of, as <|user|>.
static const char * const known_roles[] = {"system", "developer", "user", "assistant", "tool", "function"};

static bool continues_character(char byte) {
    return ((unsigned char) byte & 0xC0) == 0x80;
}

// Where the character ends that begins at this byte.
static size_t end_of_character(std::string_view text, size_t begin) {
    size_t end = begin + 1;
    while (end < text.size() && continues_character(text[end])) {
        end++;
    }
    return end;
}

// Where the last character before this byte begins.
static size_t begin_of_character(std::string_view text, size_t end) {
    size_t begin = end - 1;
    while (begin > 0 && continues_character(text[begin])) {
        begin--;
    }
    return begin;
}

static std::vector<std::string> all_ends(const std::vector<std::string> & words) {
    std::set<std::string> ends;
    for (const std::string & word : words) {
        for (size_t i = 1; i < word.size(); i++) {
            if (!continues_character(word[i])) {
                ends.insert(word.substr(i));
            }
        }
    }
    return {ends.begin(), ends.end()};
}

static std::vector<std::string> in_lower_case(std::vector<std::string> words) {
    std::transform(words.begin(), words.end(), words.begin(),
                   [](const std::string & word) { return ascii_lower(word); });
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    return words;
}

//
// finding
//

control_text_finder::control_text_finder(const std::vector<std::string> & texts)
    : exact(texts), any_case(in_lower_case(texts)), ends(all_ends(in_lower_case(texts))) {}

// The character of a control token's text that is replaced: one that stays the same in upper case and in JSON.
static size_t place_between(std::string_view text, size_t begin, size_t end) {
    for (size_t i = end; i-- > begin;) {
        if (ispunct((unsigned char) text[i]) && text[i] != '"' && text[i] != '\\') {
            return i;
        }
    }
    return begin_of_character(text, end);
}

// The first bytes that are the end of a control token's text; or all, if they are in the middle of one.
size_t control_text_finder::n_that_ends(std::string_view lower) const {
    int32_t state = 0;
    for (size_t i = 0; i < lower.size(); i++) {
        state = ends.next(state, lower[i]);
        if (ends.n_begun(state) != i + 1) {
            return 0;
        }
        const std::string * end = ends.word(state);
        if ((end && end->size() == i + 1) || i + 1 == lower.size()) {
            return i + 1;
        }
    }
    return 0;
}

std::set<size_t> control_text_finder::places(std::string_view text) const {
    const std::string      lower = ascii_lower(text);
    const std::string_view view  = lower;
    const char * const     space = " \t\n\v\f\r";
    const size_t           first = lower.find_first_not_of(space);
    std::set<size_t>       found;
    if (first == std::string::npos) {
        return found;
    }
    const size_t last  = lower.find_last_not_of(space) + 1;
    int32_t      state = 0;
    for (size_t i = 0; i < lower.size(); i++) {
        state                    = any_case.next(state, lower[i]);
        const std::string * word = any_case.word(state);
        const bool          ends = i + 1 == last || i + 1 == lower.size();
        const size_t        n    = word ? word->size() : ends ? any_case.n_begun(state) : 0;
        if (n > 0) { // a whole text, or the beginning of one at the end
            const size_t place = place_between(view, i + 1 - n, i + 1);
            found.insert(place);
            i     = end_of_character(view, place) - 1;
            state = 0;
        }
    }
    for (const size_t begin : {size_t(0), first}) {
        if (const size_t n = n_that_ends(view.substr(begin, last - begin))) {
            found.insert(place_between(view, begin, begin + n));
        }
    }
    return found;
}

std::string_view control_text_finder::first_in(std::string_view text) const {
    int32_t state = 0;
    for (const char c : text) {
        state = exact.next(state, c);
        if (const std::string * word = exact.word(state)) {
            return *word;
        }
    }
    return {};
}

prompt_parts control_text_finder::split(const std::string & text) const {
    return split_at(exact, text);
}

//
// marks
//

static std::string escaped(char mark) {
    char text[8];
    snprintf(text, sizeof(text), "\\u%04x", (unsigned) mark);
    return text;
}

// Control characters but spaces. JSON has no need to escape the last one, so it comes first.
content_marks::content_marks(const control_text_finder & controls, const std::vector<std::string> & sources)
    : controls(controls) {
    for (int byte = 0x7f; byte > 0; byte = byte == 0x7f ? 0x1b : byte - 1) {
        const char mark   = (char) byte;
        const auto has_it = [&](const std::string & source) {
            return source.find(mark) != std::string::npos ||
                   ascii_lower(source).find(escaped(mark)) != std::string::npos;
        };
        if (!isspace(byte) && std::none_of(sources.begin(), sources.end(), has_it)) {
            unused.insert(unused.begin(), mark);
        }
    }
}

char content_marks::mark_of(const std::string & character) {
    for (const auto & [mark, known] : used) {
        if (known == character) {
            return mark;
        }
    }
    if (unused.empty()) {
        invalid("messages", "the messages have too many control characters (U+0001 to U+001B, U+007F) "
                            "for plain_content; remove some");
    }
    const char mark = unused.back();
    unused.pop_back();
    used[mark] = character;
    return mark;
}

std::string content_marks::marked(const std::string & text) {
    std::string made;
    size_t      n_done = 0;
    for (const size_t place : controls.places(text)) {
        const size_t end = end_of_character(text, place);
        made += text.substr(n_done, place - n_done) + mark_of(text.substr(place, end - place));
        n_done = end;
    }
    return made + text.substr(n_done);
}

// Arguments as text are JSON, in which a control token's text may be written with escapes.
void content_marks::mark_arguments(json & value) {
    if (value.is_string()) {
        const std::string text = value;
        json              read = json::parse(text, nullptr, false);
        if (read.is_structured()) {
            const json before = read;
            mark_texts(read, true);
            value = read == before ? text : read.dump();
            return;
        }
    }
    mark_texts(value, true);
}

// keys: those of objects are marked, too.
void content_marks::mark_texts(json & value, bool keys) {
    if (value.is_string()) {
        value = marked(value.get<std::string>());
    } else if (value.is_array()) {
        for (json & entry : value) {
            mark_texts(entry, keys);
        }
    } else if (value.is_object()) {
        json made = json::object();
        for (auto & [key, entry] : value.items()) {
            if (key == "arguments" && !keys) {
                mark_arguments(entry);
            } else if (keys || key != "type") {
                mark_texts(entry, keys);
            }
            made[keys ? marked(key) : key] = entry;
        }
        value = std::move(made);
    }
}

void content_marks::mark_message(json & message, const std::string & name) {
    if (!message.is_object()) {
        return; // llama.cpp refuses it
    }
    const std::string role = message.contains("role") && message["role"].is_string() ? message["role"] : "";
    if (std::count(std::begin(known_roles), std::end(known_roles), role) == 0 &&
        !controls.places(role).empty()) {
        invalid(name + ".role",
                name + ".role is \"" + role.substr(0, 100) +
                    "\", of which a control token may become; with plain_content it must not");
    }
    for (auto & [key, value] : message.items()) {
        if (key != "role") {
            mark_texts(value, false);
        }
    }
}

// The lists and objects of this JSON, which are read by recursion, are not nested too deeply.
static json parse_shallow(const std::string & field, const std::string & text) {
    if (is_deeper(text, n_max_json_depth)) {
        invalid(field, field + " is nested more than " + std::to_string(n_max_json_depth) + " levels deep");
    }
    return json::parse(text, nullptr, false);
}

std::string content_marks::mark(const std::string & messages) {
    json list = parse_shallow("messages", messages);
    if (!list.is_array()) {
        return messages; // llama.cpp refuses them
    }
    for (size_t i = 0; i < list.size(); i++) {
        mark_message(list[i], "messages[" + std::to_string(i) + "]");
    }
    return used.empty() ? messages : list.dump();
}

std::string content_marks::restored(const std::string & text) const {
    std::string made;
    for (size_t i = 0; i < text.size(); i++) {
        const auto found   = used.find(text[i]);
        const auto is_here = [&](const auto & mark) { return text.compare(i, 6, escaped(mark.first)) == 0; };
        const auto in_json = text[i] == '\\' ? std::find_if(used.begin(), used.end(), is_here) : used.end();
        if (found == used.end() && in_json == used.end()) {
            made += text[i];
            continue;
        }
        made += found != used.end() ? found->second : in_json->second;
        i += found != used.end() ? 0 : 5;
    }
    return made;
}

// The text between two control tokens is plain if it has a mark. So its tokens are those of the text as a whole.
prompt_parts content_marks::parts_of(const std::string & prompt) const {
    prompt_parts parts = controls.split(prompt);
    for (prompt_part & part : parts) {
        std::string text = restored(part.text);
        part.special     = part.special || text == part.text;
        part.text        = std::move(text);
    }
    return parts;
}

//
// checks
//

// Calls take(text) for each text and each key. Arguments of calls are JSON as text.
static void each_text(const json & value, const std::function<void(const std::string &)> & take) {
    if (value.is_string()) {
        take(value.get_ref<const std::string &>());
    }
    for (const auto & [key, entry] : value.items()) {
        if (value.is_object()) {
            take(key);
        }
        if (value.is_structured()) {
            each_text(entry, take);
        }
        if (key == "arguments" && entry.is_string()) {
            const auto read = json::parse(entry.get_ref<const std::string &>(), nullptr, false);
            each_text(read.is_structured() ? read : json(), take);
        }
    }
}

void check_without_controls(const control_text_finder & controls, const std::string & field,
                            const std::string & value) {
    const auto check = [&](const std::string & text) {
        if (const std::string_view found = controls.first_in(text); !found.empty()) {
            invalid(field, field + " has the control token \"" + std::string(found) +
                               "\"; with plain_content it must not");
        }
    };
    each_text(parse_shallow(field, value), check);
}

void check_private(const word_finder & hidden, const std::string & messages) {
    const json list = parse_shallow("messages", messages);
    for (size_t i = 0; list.is_array() && i < list.size(); i++) {
        const std::string name = "messages[" + std::to_string(i) + "]";
        each_text(list[i], [&](const std::string & text) {
            int32_t state = 0;
            for (const char c : text) {
                state = hidden.next(state, c);
                if (const std::string * word = hidden.word(state)) {
                    invalid(name, name + " has \"" + *word + "\", which is one of private_tokens");
                }
            }
        });
    }
}
