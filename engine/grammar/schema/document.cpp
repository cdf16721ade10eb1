#include "grammar/schema/document.h"

#include "grammar/schema/numbers.h"
#include "util/json.h"
#include "util/utf8.h"

#include <algorithm>
#include <set>
#include <utility>

namespace schema {

static const int    n_max_depth   = 128;  // levels of a schema
static const size_t n_max_address = 4096; // bytes

//
// addresses
//

static std::string without_fragment(const std::string & uri) {
    return uri.substr(0, uri.find('#'));
}

static bool is_absolute(const std::string & uri) {
    const size_t colon = uri.find_first_of(":/?#");
    return colon != std::string::npos && colon > 0 && uri[colon] == ':';
}

static std::string resolved(const std::string & base, const std::string & uri) {
    if (uri.empty() || uri[0] == '#') {
        return without_fragment(base) + uri;
    }
    if (is_absolute(uri)) {
        return uri;
    }
    const size_t authority = base.find("://");
    const size_t root      = authority == std::string::npos ? 0 : base.find('/', authority + 3);
    const size_t n_root    = root == std::string::npos ? base.size() : root;
    if (uri.compare(0, 2, "//") == 0) {
        return base.substr(0, authority == std::string::npos ? 0 : authority + 1) + uri;
    }
    if (uri[0] == '/') {
        return base.substr(0, n_root) + uri;
    }
    std::string from  = without_fragment(base);
    from              = from.substr(0, from.find('?'));
    const size_t last = from.rfind('/');
    std::string  out  = last == std::string::npos || last < n_root
                            ? from.substr(0, n_root) + (n_root > 0 ? "/" : "")
                            : from.substr(0, last + 1);
    std::string  rest = uri;
    while (rest.compare(0, 2, "./") == 0 || rest.compare(0, 3, "../") == 0) {
        const bool up = rest[1] == '.';
        rest          = rest.substr(up ? 3 : 2);
        if (up && out.size() > n_root + 1) {
            out = out.substr(0, out.rfind('/', out.size() - 2) + 1);
        }
    }
    return out + rest;
}

static std::string unescaped(const std::string & text) { // %20
    std::string out;
    for (size_t i = 0; i < text.size(); i++) {
        if (text[i] == '%' && i + 2 < text.size() && isxdigit((unsigned char) text[i + 1]) &&
            isxdigit((unsigned char) text[i + 2])) {
            out += (char) std::stoi(text.substr(i + 1, 2), nullptr, 16);
            i += 2;
        } else {
            out += text[i];
        }
    }
    return out;
}

static std::vector<std::string> pointer_parts(const std::string & pointer) {
    std::vector<std::string> parts;
    for (const char c : pointer) {
        if (c == '/') {
            parts.emplace_back();
        } else {
            parts.back() += c;
        }
    }
    for (std::string & part : parts) {
        std::string out;
        for (size_t i = 0; i < part.size(); i++) {
            const bool escape =
                part[i] == '~' && i + 1 < part.size() && (part[i + 1] == '0' || part[i + 1] == '1');
            out += escape ? (part[i + 1] == '0' ? '~' : '/') : part[i];
            i += escape;
        }
        part = out;
    }
    return parts;
}

std::string pointer_part(const std::string & name) {
    std::string out = "/";
    for (const char c : name) {
        out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
    }
    return out;
}

//
// the document
//

// Numbers outside of strings that are not what their shortest text as a double says.
void document::find_inexact(const std::string & text) {
    for (size_t i = 0; i < text.size(); i++) {
        if (text[i] == '"') {
            for (i++; i < text.size() && text[i] != '"'; i++) {
                i += text[i] == '\\';
            }
        } else if (isdigit((unsigned char) text[i])) {
            const size_t      end    = std::min(text.find_first_not_of("0123456789.eE+-", i), text.size());
            const std::string number = text.substr(i, end - i);
            i                        = end - 1;
            if (number.size() <= 15 && number.find_first_of("eE") == std::string::npos) {
                continue;
            }
            const json read    = json::parse(number, nullptr, false);
            const auto written = read_decimal(number), kept = read_decimal(read.dump());
            if (read.is_number() && (!written || !kept || compare(*written, *kept) != 0)) {
                inexact.insert(read.get<double>());
                inexact.insert(-read.get<double>());
            }
        }
    }
}

json document::parse(const std::string & text) {
    if (is_deeper(text, n_max_depth)) {
        throw refusal("it is nested more than " + std::to_string(n_max_depth) + " levels deep");
    }
    find_inexact(text);
    try {
        return json::parse(text);
    } catch (const json::exception & e) {
        throw refusal(e.what());
    }
}

document::document(const std::string & text) : tree(parse(text)) {
    if (!tree.is_object() && !tree.is_boolean()) {
        throw refusal(std::string("it is ") + tree.type_name() + "; it must be an object or a boolean");
    }
    const std::string drafts[]  = {"draft-03", "draft-04", "draft-06", "draft-07", "2019-09", "2020-12"};
    const int         numbers[] = {3, 4, 6, 7, 2019, 2020};
    if (tree.is_object() && tree.contains("$schema")) {
        if (!tree["$schema"].is_string()) {
            throw refusal(std::string("/$schema: ") + tree["$schema"].type_name() + " is no address");
        }
        const auto name = tree["$schema"].get<std::string>();
        for (size_t i = 0; i < 6; i++) {
            number = name.find(drafts[i]) != std::string::npos ? numbers[i] : number;
        }
    }
    leave_out_newer(tree);
    index(tree, {std::make_shared<const std::string>()}, 0);
    named.emplace("", &tree);
}

const json & document::add(const std::string & text, const std::string & path) {
    parts.push_back(parse(text));
    index(parts.back(), {place_of(tree).base, nullptr, path}, 0);
    return parts.back();
}

void document::index(const json & schema, place at, int depth) {
    if (!schema.is_object() || depth > 4 * n_max_depth || places.count(&schema) > 0) {
        places.emplace(&schema, std::move(at));
        return;
    }
    const bool ignored = number <= 7 && schema.contains("$ref");
    for (const char * const key : {"$id", "id"}) {
        const bool known = key[0] == '$' || number <= 4;
        if (ignored || !known || !schema.contains(key) || !schema[key].is_string()) {
            continue;
        }
        const std::string id = resolved(*at.base, schema[key].get<std::string>());
        if (id.size() > n_max_address) {
            throw refusal(std::string(key) + ": an address of more than " + std::to_string(n_max_address) +
                          " bytes");
        }
        if (id.find('#') == std::string::npos || id.back() == '#') {
            at.base = std::make_shared<const std::string>(without_fragment(id));
            named.emplace(*at.base, &schema);
        } else {
            named.emplace(id, &schema); // in older drafts a fragment is an anchor
        }
        break;
    }
    for (const char * const key : {"$anchor", "$dynamicAnchor"}) {
        if (schema.contains(key) && schema[key].is_string()) {
            named.emplace(*at.base + "#" + schema[key].get<std::string>(), &schema);
            if (key[1] == 'd') {
                dynamic[schema[key].get<std::string>()].push_back(&schema);
            }
        }
    }
    index_below(schema, places.emplace(&schema, std::move(at)).first->second, depth);
}

static const std::set<std::string> & keywords_of_values() {
    static const std::set<std::string> rows = {"enum",     "const",    "default", "examples",   "example",
                                               "required", "$comment", "title",   "description"};
    return rows;
}

static const std::set<std::string> & keywords_of_maps() {
    static const std::set<std::string> rows = {"properties",  "patternProperties", "$defs",
                                               "definitions", "dependentSchemas",  "dependencies"};
    return rows;
}

// Removes what a later draft has brought: in an older one it is a name without a meaning.
void document::leave_out_newer(json & schema) {
    static const std::map<std::string, int> first = {
        {"const", 6},
        {"contains", 6},
        {"propertyNames", 6},
        {"if", 7},
        {"then", 7},
        {"else", 7},
        {"dependentRequired", 2019},
        {"dependentSchemas", 2019},
        {"minContains", 2019},
        {"maxContains", 2019},
        {"unevaluatedItems", 2019},
        {"unevaluatedProperties", 2019},
        {"prefixItems", 2020},
        {"$dynamicRef", 2020},
    };
    if (number >= 2020) {
        return;
    }
    if (schema.is_array()) {
        std::for_each(schema.begin(), schema.end(), [this](json & one) { leave_out_newer(one); });
    }
    if (!schema.is_object()) {
        return;
    }
    for (const auto & [keyword, draft] : first) {
        if (number < draft && schema.contains(keyword)) {
            schema.erase(keyword);
            newer.insert(keyword);
        }
    }
    for (auto & [key, value] : schema.items()) {
        if (keywords_of_maps().count(key) > 0 && value.is_object()) {
            std::for_each(value.begin(), value.end(), [this](json & one) { leave_out_newer(one); });
        } else if (keywords_of_values().count(key) == 0) {
            leave_out_newer(value);
        }
    }
}

void document::index_below(const json & schema, const place & at, int depth) {
    for (const auto & [key, value] : schema.items()) {
        if (keywords_of_values().count(key) > 0) {
            continue;
        }
        const std::string below = pointer_part(key);
        if (value.is_array()) {
            for (size_t i = 0; i < value.size(); i++) {
                index(value[i], {at.base, &at, below + "/" + std::to_string(i)}, depth + 1);
            }
        } else if (keywords_of_maps().count(key) > 0 && value.is_object()) {
            for (const auto & [name, one] : value.items()) {
                index(one, {at.base, &at, below + pointer_part(name)}, depth + 1);
            }
        } else {
            index(value, {at.base, &at, below}, depth + 1);
        }
    }
}

const json * document::find(const json & from, const std::string & reference) {
    const std::string base     = *place_of(from).base;
    const std::string uri      = resolved(base, reference);
    const size_t      mark     = uri.find('#');
    const std::string fragment = mark == std::string::npos ? "" : uri.substr(mark + 1);
    if (const auto whole = named.find(uri); whole != named.end()) {
        return whole->second;
    }
    const auto resource = named.find(without_fragment(uri));
    if (resource == named.end()) {
        return nullptr;
    }
    if (fragment.empty()) {
        return resource->second;
    }
    if (fragment[0] != '/') {
        const auto anchor = named.find(without_fragment(uri) + "#" + unescaped(fragment));
        return anchor == named.end() ? nullptr : anchor->second;
    }
    const json *  at   = resource->second;
    const place * here = &place_of(*at);
    for (const std::string & part : pointer_parts(unescaped(fragment))) {
        if (at->is_object() && at->contains(part)) {
            at = &(*at)[part];
        } else if (at->is_array() && !part.empty() && part.size() < 9 &&
                   part.find_first_not_of("0123456789") == std::string::npos &&
                   (size_t) std::stoi(part) < at->size()) {
            at = &(*at)[(size_t) std::stoi(part)];
        } else {
            return nullptr;
        }
        const auto known = places.find(at);
        if (known == places.end()) {
            others.push_back({here->base, here, pointer_part(part)});
        }
        here = known == places.end() ? &others.back() : &known->second;
    }
    if (!at->is_object() && !at->is_boolean()) {
        return nullptr;
    }
    if (places.count(at) == 0) {
        index(*at, *here, 0);
    }
    return at;
}

const json * document::find_dynamic(const std::string & name) const {
    const auto found = dynamic.find(name);
    return found != dynamic.end() && found->second.size() == 1 ? found->second[0] : nullptr;
}

// A part that is not known, as one that stands too deep, has the root's.
const document::place & document::place_of(const json & schema) const {
    const auto found = places.find(&schema);
    return found == places.end() ? places.at(&tree) : found->second;
}

std::string document::path(const json & schema) const {
    const auto               found = places.find(&schema);
    std::vector<std::string> parts_of;
    for (const place * at = found == places.end() ? nullptr : &found->second; at != nullptr; at = at->above) {
        parts_of.push_back(shortened(at->part));
    }
    std::string out;
    std::for_each(parts_of.rbegin(), parts_of.rend(), [&out](const std::string & part) { out += part; });
    return out;
}

} // namespace schema
