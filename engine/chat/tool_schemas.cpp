#include "chat/tool_schemas.h"

#include "util/indexed_json.h"
#include "util/json.h"
#include "util/utf8.h"

#include <json-schema-to-grammar.h> // llama.cpp's common/

#include <algorithm>
#include <map>
#include <set>

using json = nlohmann::json;

//
// in the subprocess
//

namespace {

// What has been asked for, in the order of the marks.
struct asked_for {
    json                          documents = json::array(), list = json::array();
    std::map<std::string, size_t> known_documents, known; // by their texts
};

asked_for & asked() {
    static asked_for all;
    return all;
}

std::string answer(const common_chat_schema_document & doc, const common_chat_schema & node,
                   const common_json & form) {
    const std::string whole = doc.source.dump(), part = node.source.dump();
    if (whole == json{{"const", schema_mark}}.dump()) {
        return gbnf_format_literal(part.substr(part.find(':') + 1, part.size() - part.find(':') - 2));
    }
    const auto [document, is_new] = asked().known_documents.emplace(whole, asked().documents.size());
    if (is_new) {
        asked().documents.push_back(whole);
    }
    const bool is_root        = doc.root.get() == &node;
    const json one            = {{"document", document->second},
                                 {"part", is_root ? "" : part},
                                 {"path", is_root ? "" : node.path.substr(1)}, // behind the #
                                 {"form", form.is_null() ? json() : json::parse(form.dump())}};
    const auto [entry, added] = asked().known.emplace(one.dump(), asked().list.size());
    if (added) {
        asked().list.push_back(one);
    }
    return gbnf_format_literal(tool_mark(entry->second));
}

} // namespace

void keep_schemas() {
    common_chat_schema_to_gbnf = answer;
}

json made_schemas() {
    return {{"documents", asked().documents}, {"list", asked().list}};
}

//
// behind it
//

static schema::call_form read_form(const json & made) {
    schema::call_form form;
    form.before       = made["before"];
    form.after        = made["after"];
    form.after_text   = made["after_text"];
    form.close        = made["close"];
    form.separator    = made["separator"];
    form.quote        = made["quote"];
    form.space        = made["space"];
    form.cdata        = made["cdata"];
    form.at_least_one = made["at_least_one"];
    for (const json & one : made["members"]) {
        schema::call_form::member m;
        m.name     = one["name"];
        m.required = one["required"];
        m.written  = one["value"] == "text"    ? schema::call_form::text
                     : one["value"] == "mixed" ? schema::call_form::mixed
                                               : schema::call_form::json;
        m.types    = one["types"].get<std::set<std::string>>();
        form.members.push_back(m);
    }
    return form;
}

namespace {

// A tool as the client has sent it.
struct sent_tool {
    std::string name; // in messages; where its schema stands differs between the APIs
    std::string document;
    bool        strict = false, held = false;
};

// Its schema as llama.cpp keeps it.
std::string document_of(const indexed_json & function) {
    const auto given = function.find("parameters");
    const bool none  = given == function.end() || given->is_null() || (given->is_object() && given->empty());
    return none ? R"({"type":"object","properties":{}})" : given->dump();
}

std::vector<sent_tool> read_tools(const std::string & text) {
    std::vector<sent_tool> out;
    const auto             tools = indexed_json::parse(text.empty() ? "[]" : text);
    for (const auto & tool : tools) {
        const auto &      function = tool.at("function");
        const std::string name     = shortened(function.at("name").get<std::string>());
        const auto        strict   = function.value("strict", indexed_json());
        if (!strict.is_boolean() && !strict.is_null()) {
            invalid("tools", "the tool \"" + name + "\": strict is " + shortened(strict.dump()) +
                                 "; it must be true or false");
        }
        out.push_back({"the tool \"" + name + "\"", document_of(function), strict == true});
    }
    return out;
}

} // namespace

void read_tool_schemas(std::vector<tool_schema> & out, std::vector<std::string> & warnings, const json & made,
                       const std::string & tools, const std::string & grammar) {
    if (grammar.empty()) {
        return;
    }
    std::vector<sent_tool>                          sent = read_tools(tools);
    std::vector<std::shared_ptr<const std::string>> documents;
    for (const json & text : made["documents"]) {
        documents.push_back(std::make_shared<const std::string>(text.get<std::string>()));
    }
    for (const json & one : made["list"]) {
        tool_schema schema;
        schema.call.document = documents[one["document"].get<size_t>()];
        schema.call.part     = one["part"];
        schema.call.path     = one["path"];
        if (!one["form"].is_null()) {
            schema.call.form = read_form(one["form"]);
        }
        const bool is_used = grammar.find(tool_mark(out.size())) != std::string::npos;
        for (sent_tool & tool : sent) {
            if (tool.document == *schema.call.document) {
                schema.name   = schema.name.empty() ? tool.name : schema.name;
                schema.strict = schema.strict || tool.strict;
                tool.held     = tool.held || (is_used && schema.call.part.empty());
            }
        }
        out.push_back(std::move(schema));
    }
    const auto is_held = [](const sent_tool & tool) { return tool.held; };
    if (grammar.find(schema_mark) != std::string::npos && std::none_of(sent.begin(), sent.end(), is_held)) {
        for (const sent_tool & tool : sent) { // all of the text is the answer
            warnings.push_back(tool.name +
                               ": beside a schema of the answer the model's template has no calls");
        }
        return;
    }
    for (const sent_tool & tool : sent) {
        const std::string why =
            tool.name + ": the model's template writes calls in a form that a schema cannot hold";
        if (tool.strict && !tool.held) {
            invalid("tools", why + "; the tool may not be strict");
        }
        if (!tool.held) {
            warnings.push_back(why + " as a whole");
        }
    }
}
