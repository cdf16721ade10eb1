// Schemas of each kind: which values they admit, or why they are refused.
#include "cases.h"

#include "grammar/automaton.h"
#include "grammar/schema/compile.h"

#include <nlohmann/json.hpp>

using json = indexed_json;

namespace {

struct schema_row {
    const char * name;
    const char * schema;
    const char * yes; // a list of the values that are admitted
    const char * no;  // of those that are not
    bool         open = true;
};

const schema_row rows[] = {
    {"a list of types", R"({"type": ["integer", "null"]})", R"([1, -5, null])", R"([1.5, "1", true, {}])"},
    {"an enum beside a type", R"({"enum": ["a", 1, {"b": [1]}, null], "type": ["string", "object"]})",
     R"(["a", {"b": [1]}])", R"([1, null, "b", {}])"},
    {"a constant with names of keywords", R"({"const": {"pattern": "x", "$ref": "y"}})",
     R"([{"pattern": "x", "$ref": "y"}])", R"([{}, {"pattern": "x"}])"},
    {"bounds of integers", R"({"type": "integer", "minimum": -12, "exclusiveMaximum": 105})",
     R"([-12, -9, 0, 7, 104])", R"([-13, -100, 105, 200, 1000])"},
    {"bounds of decimals", R"({"type": "number", "minimum": -0.5, "maximum": 1.25})",
     R"([-0.5, -0.25, 0, 1, 1.25, 0.001])", R"([-0.51, -1, 1.251, 1.3, 2])"},
    {"exclusive bounds of draft 4",
     R"({"$schema": "http://json-schema.org/draft-04/schema#", "type": "number", "minimum": 2,
         "exclusiveMinimum": true})",
     R"([2.5, 3])", R"([2, 1])"},
    {"both kinds of bounds", R"({"type": "integer", "minimum": 3, "exclusiveMinimum": 5, "maximum": 9})",
     R"([6, 9])", R"([3, 5, 10])"},
    {"multiples", R"({"type": "integer", "multipleOf": 7, "minimum": 0})", R"([0, 7, 49, 700])",
     R"([1, 8, 701])"},
    {"what fits both of two is none of them, whichever types are named beside them",
     R"({"type": ["object", "null"], "oneOf": [{"properties": {"k": {"const": 1}}, "required": ["k"]},
                                               {"properties": {"k": {"const": 2}}, "required": ["k"]}]})",
     R"([{"k": 1}, {"k": 2}])", R"([null, {}, {"k": 3}])", false},
    {"bounds beside another type",
     R"({"type": ["integer", "null"], "oneOf": [{"maximum": 0}, {"minimum": 1}]})", R"([0, 1])", R"([null])",
     false},
    {"a reference beside which draft 7 ignores all, in an opposite",
     R"({"$schema": "http://json-schema.org/draft-07/schema#", "type": "string",
         "not": {"type": "array", "$ref": "#/definitions/x"}, "definitions": {"x": {"pattern": "^a"}}})",
     R"(["b"])", R"(["a"])"},
    {"first items as a later draft writes them",
     R"({"$schema": "http://json-schema.org/draft-07/schema#", "type": "array",
         "prefixItems": [{"type": "integer"}], "items": {"type": "string"}})",
     R"([[], ["a"]])", R"([[1], [1, "a"]])"},
    {"a format that holds fewer texts than its standard, in an opposite",
     R"({"type": "string", "not": {"format": "hostname"}})", R"(["a b", "a_b"])",
     R"(["a--b.com", "example.org", "a"])"},
    {"a condition alone evaluates, too",
     R"({"type": "object", "if": {"properties": {"a": {"type": "string"}}, "required": ["a"]},
         "unevaluatedProperties": false})",
     R"([{"a": "x"}, {}])", R"([{"a": 1}, {"b": 1}])"},
    {"items that contains may find", R"({"type": "array", "contains": {"const": "a"}, "minContains": 0,
         "unevaluatedItems": false})",
     R"([[], ["a"], ["a", "a"]])", R"([["b"]])"},
    {"a schema that two unevaluated keywords see",
     R"({"type": "object", "allOf": [{"$ref": "#/$defs/B"}, {"$ref": "#/$defs/A"}],
         "$defs": {"A": {"type": "object", "properties": {"a": {}}},
                   "B": {"$ref": "#/$defs/A", "unevaluatedProperties": false}}})",
     R"([{"a": "x"}, {}])", R"([{"b": 1}, {"a": 1, "b": 1}])"},
    {"the same in an array", R"({"type": "array", "if": {"$ref": "#/$defs/A"}, "then": {"maxItems": 3},
         "anyOf": [{"maxItems": 0}, {"$ref": "#/$defs/A", "unevaluatedItems": false}],
         "$defs": {"A": {"prefixItems": [{"exclusiveMaximum": 5}]}}})",
     R"([[], [1], ["a"]])", R"([[1, 2], [9]])"},
    {"numbers of 17 digits", R"({"enum": [0.30000000000000004, 1e19]})", R"([0.30000000000000004, 1e19])",
     R"([0.3])"},
    {"no multiples", R"({"type": "number", "not": {"multipleOf": 2.5}})", R"([1, 2.25, 5.01, 100.1])",
     R"([5, 5.0, 2.5, -7.5, 0])"},
    {"one of two formats", R"({"type": "string", "oneOf": [{"format": "date"}, {"format": "date-time"}]})",
     R"(["2024-02-29", "2024-02-29T00:00:00Z"])", R"(["x"])"},
    {"the opposite of a condition",
     R"({"type": "object", "not": {"if": {"required": ["a"]}, "then": {"required": ["b"]}}})",
     R"([{"a": 1}, {"a": 1, "c": 2}])", R"([{}, {"b": 1}, {"a": 1, "b": 2}])"},
    {"the opposite of names that depend", R"({"type": "object", "not": {"dependentRequired": {"a": ["b"]}}})",
     R"([{"a": 1}])", R"([{}, {"b": 1}, {"a": 1, "b": 2}])"},
    {"the opposite of properties of any name",
     R"({"type": "object", "properties": {"": {}, "0": {}},
         "not": {"properties": {"": {"type": "null"}, "0": {"type": "null"}}}})",
     R"([{"": 1}, {"": null, "0": 1}, {"0": 1}])", R"([{}, {"": null}, {"": null, "0": null}])"},
    {"the opposite of closed objects to which any name may come",
     R"({"type": "object", "not": {"properties": {"x": {}}, "additionalProperties": false}})",
     R"([{"y": 1}, {"x": 1, "y": 1}])", R"([{}, {"x": 1}])"},
    {"the opposite of names by patterns: of equal names the last one counts",
     R"({"type": "object", "properties": {"xa": {}}, "maxProperties": 2,
         "not": {"required": ["a"], "patternProperties": {"^x": {"type": "string"}, "^z": true}}})",
     R"([{}, {"b": 1}, {"x": 1, "a": 1}, {"xa": 1, "x": "s"}, {"x": "s", "xb": 1}])",
     R"([{"a": 1, "x": "s"}, {"a": 1}])"},
    {"the opposites of several names",
     R"({"type": "object", "required": ["a"],
         "allOf": [{"not": {"propertyNames": {"maxLength": 1}}}, {"not": {"additionalProperties": {"type": "integer"}}}]})",
     R"([{"a": 1, "bc": "s"}, {"a": "s", "bc": 1}, {"a": 1, "b": "s", "bc": 1}])",
     R"([{"a": "s"}, {"a": 1, "bc": 1}])"},
    {"the opposite of names, where objects are closed",
     R"({"type": "object", "properties": {"a": {}, "bc": {}}, "not": {"propertyNames": {"maxLength": 1}}})",
     R"([{"a": 1, "bc": 1}, {"bc": 1}])", R"([{}, {"a": 1}, {"cd": 1}])", false},
    {"the opposite of unevaluated properties where nothing else evaluates",
     R"({"type": "object", "not": {"properties": {"a": {}}, "unevaluatedProperties": {"type": "integer"}}})",
     R"([{"b": "s"}, {"a": 1, "b": null}])", R"([{}, {"a": "s"}, {"b": 1}])"},
    {"the opposite of items behind the first ones",
     R"({"type": "array", "not": {"prefixItems": [true, true], "items": {"type": "integer"}}})",
     R"([[1, 1, "a"], ["a", "a", 1, 2, null]])", R"([[], ["a", "a"], ["a", "a", 1, 2]])"},
    {"items by rank that differ",
     R"({"type": "array", "prefixItems": [{"type": "boolean"}, {"enum": [1, true]}], "items": false,
         "uniqueItems": true})",
     R"([[], [true], [true, 1], [false, true]])", R"([[true, true], [1], [true, 1, 1]])"},
    {"the opposite of counts of items",
     R"({"type": "array", "not": {"contains": {"const": 1}, "minContains": 2, "maxContains": 3}})",
     R"([[], [1], [2, 1], [1, 1, 1, 1]])", R"([[1, 1], [1, 2, 1, 1]])"},
    {"the opposite of first items",
     R"({"type": "array", "not": {"prefixItems": [{"type": "integer"}, {"type": "string"}]}})",
     R"([["a"], [1, 1], [1, 1, 1]])", R"([[], [1], [1, "a"]])"},
    {"items that contains has found are evaluated",
     R"({"type": "array", "prefixItems": [{"type": "integer"}], "contains": {"type": "string"},
         "unevaluatedItems": {"type": "null"}})",
     R"([[1, "a"], [1, null, "a"]])", R"([[1], [1, 2, "a"]])"},
    {"properties of two schemas that hold at once",
     R"({"type": "object", "unevaluatedProperties": false,
         "anyOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]},
                   {"properties": {"b": {"type": "integer"}}, "required": ["b"]}]})",
     R"([{"a": 1}, {"b": 1}, {"a": 1, "b": 1}])", R"([{}, {"a": 1, "c": 1}, {"a": 1, "b": "x"}])"},
    {"an inner keyword evaluates all", R"({"type": "object", "allOf": [{"unevaluatedProperties": true}],
         "unevaluatedProperties": false})",
     R"([{}, {"a": 1}])", R"([1])"},
    {"bounds that no number comes near",
     R"({"type": "number", "minimum": -3.4028234663852886e38, "maximum": 1.7976931348623157e308})",
     R"([0, -5, 1e15])", R"(["1"])"},
    {"multiples of a decimal", R"({"type": "number", "multipleOf": 0.05})", R"([0.05, 1, 2.35])",
     R"([0.01, 2.36])"},
    {"lengths that cross, where another type fits",
     R"({"type": ["string", "null"], "maxLength": 2, "allOf": [{"minLength": 3}]})", R"([null])",
     R"(["", "ab", "abc"])"},
    {"lengths in characters", R"({"type": "string", "minLength": 2, "maxLength": 3})",
     R"(["ab", "äöü", "😀😀"])", R"(["a", "abcd", "😀"])"},
    {"a pattern and lengths", R"({"type": "string", "pattern": "^[a-c]+$", "minLength": 2, "maxLength": 4})",
     R"(["ab", "abca"])", R"(["a", "abcab", "ad"])"},
    {"a pattern in the midst", R"j({"type": "string", "pattern": "o(?:x|\\.)"})j", R"(["fox", "o.k"])",
     R"(["of", "o"])"},
    {"a look ahead", R"({"type": "string", "pattern": "^(?!no)[a-z]+$"})", R"(["yes", "n"])",
     R"(["no", "nobody"])"},
    {"dates", R"({"type": "string", "format": "date"})", R"(["2024-02-29", "1999-12-31"])",
     R"(["2023-02-29", "2024-13-01", "24-01-01"])"},
    {"names of hosts", R"({"type": "string", "format": "hostname"})", R"(["a--b.com", "xn.org", "a-b"])",
     R"(["ab--c.com", "ab-c-.d", "xn--9n2bp8q", "-a", "a-", "a..b"])"},
    {"names of hosts in other scripts", R"({"type": "string", "format": "idn-hostname"})",
     R"(["실례.테스트", "bücher。example", "παράδειγ.com"])", R"(["Bücher", "a·b", "b--ü", "ü-"])"},
    {"addresses", R"({"type": "string", "format": "ipv4"})", R"(["127.0.0.1"])", R"(["256.0.0.1", "1.2.3"])"},
    {"required names without a schema", R"({"type": "object", "properties": {"a": {}}, "required": ["b"]})",
     R"([{"b": 1}, {"a": 1, "b": 2}])", R"([{}, {"a": 1}])"},
    {"names of all kinds",
     R"({"type": "object", "properties": {"": {"type": "null"}, "\\": {}, "\n": {}, "]": {}},
         "required": ["", "\\", "\n", "]"], "additionalProperties": false})",
     R"([{"": null, "\\": 1, "\n": 2, "]": 3}])", R"([{}, {"": 1, "\\": 1, "\n": 2, "]": 3}])"},
    {"absent additionalProperties are closed", R"({"type": "object", "properties": {"a": {}}})",
     R"([{}, {"a": 1}])", R"([{"b": 1}])", false},
    {"an object without names is open", R"({"type": "object"})", R"([{}, {"a": {"b": 1}}])", R"([1, []])",
     false},
    {"additionalProperties with a schema",
     R"({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "integer"}})",
     R"([{"a": "x", "b": 1}, {}])", R"([{"a": 1}, {"b": "x"}])"},
    {"patternProperties",
     R"({"type": "object", "patternProperties": {"^x": {"type": "integer"}, "y$": {"minimum": 5}},
         "additionalProperties": false})",
     R"([{"x": 1}, {"xy": 5}, {"ay": 6}])", R"([{"xy": 4}, {"xy": "a"}, {"b": 1}])"},
    {"propertyNames", R"({"type": "object", "propertyNames": {"maxLength": 2, "pattern": "^[a-z]*$"}})",
     R"([{"ab": 1}, {}])", R"([{"abc": 1}, {"A": 1}])"},
    {"counts of properties",
     R"({"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "minProperties": 1, "maxProperties": 2,
         "additionalProperties": false})",
     R"([{"a": 1}, {"b": 1, "c": 1}])", R"([{}, {"a": 1, "b": 1, "c": 1}])"},
    {"dependentRequired", R"({"type": "object", "dependentRequired": {"a": ["b"]}})",
     R"([{}, {"b": 1}, {"a": 1, "b": 1}])", R"([{"a": 1}])"},
    {"dependentSchemas",
     R"({"type": "object", "dependentSchemas": {"a": {"properties": {"b": {"const": 1}}}}})",
     R"([{"b": 2}, {"a": 1, "b": 1}])", R"([{"a": 1, "b": 2}])"},
    {"a required name that only a choice within a choice evaluates",
     R"({"type": "object", "required": ["a"], "unevaluatedProperties": false,
         "anyOf": [{"anyOf": [{"properties": {"a": {}}}, {"additionalProperties": true}]}],
         "if": {"required": ["b"]}, "then": {"dependentSchemas": {"c": {"properties": {"b": {}}}}}})",
     R"([{"a": 1}, {"a": 1, "b": 2}])", R"([{}, {"b": 1}])"},
    {"the opposite of oneOf: none holds, or two",
     R"({"type": "string", "not": {"oneOf": [{"pattern": "^a"}, {"maxLength": 2}, {"minLength": 4}]}})",
     R"(["ab", "abcd", "bcd"])", R"(["abc", "b", "bcde"])"},
    {"a list and an object that must be other ones", R"({"not": {"enum": [[1, 2], {"a": 1}, 3]}})",
     R"([[1], [1, 3], [2, 2], [1, 2, 3], {}, {"a": 2}, {"a": 1, "b": 2}, {"b": 1}, 4, "x"])",
     R"([[1, 2], {"a": 1}, 3])"},
    {"conditions that ask for one member",
     R"({"type": ["object", "null"], "unevaluatedProperties": false, "allOf": [
         {"if": {"properties": {"k": {"const": "a"}}, "required": ["k"]}, "then": {"properties": {"x": {}}}},
         {"if": {"properties": {"k": {"enum": ["a", "b"]}}}, "then": {"required": ["k"]}, "else": {"properties": {"k": {}, "y": {}}}},
         {"if": {"properties": {"k": {"const": "c"}}, "type": "object"}, "then": {"required": ["y"]}, "else": true}]})",
     R"([null, {"k": "a"}, {"k": "a", "x": 1}, {"k": "b"}, {"k": "c", "y": 1}, {"k": 1, "y": 1}])",
     R"([{}, {"y": 1}, {"k": "c"}, {"k": "b", "x": 1}, {"k": "a", "y": 1}])"},
    {"multiples of a large number", R"({"type": "integer", "multipleOf": 1999})", R"([0, 1999, -3998])",
     R"([1, 1998, 19990001])"},
    {"closed objects: what opposites and names that depend speak of does not close one",
     R"({"type": "object", "not": {"required": ["a"]}, "dependentRequired": {"b": ["c"]}})",
     R"([{}, {"d": 1}, {"b": 1, "c": 1, "d": 1}])", R"([{"a": 1}, {"b": 1}])", false},
    {"the opposite of a closed object beside names that a choice brings",
     R"({"type": "object", "properties": {"a": {}}, "anyOf": [{"properties": {"b": {}}}, {"maxProperties": 0}],
         "not": {"properties": {"a": {}}, "additionalProperties": false}})",
     R"([{"b": 1}, {"a": 1, "b": 1}])", R"([{}, {"a": 1}, {"c": 1}])", false},
    {"unevaluatedProperties",
     R"({"allOf": [{"properties": {"a": {}}}], "properties": {"b": {}}, "type": "object",
         "unevaluatedProperties": false})",
     R"([{"a": 1, "b": 1}])", R"([{"c": 1}])"},
    {"tuples", R"({"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}})",
     R"([[], [1], [1, "a", "b"]])", R"([["a"], [1, 2]])"},
    {"tuples of draft 7",
     R"({"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [{"type": "integer"}],
         "additionalItems": false})",
     R"([[], [1]])", R"([["a"], [1, 2]])"},
    {"counts of items", R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3})",
     R"([[1, 2], [1, 2, 3]])", R"([[1], [1, 2, 3, 4], []])"},
    {"contains", R"({"type": "array", "contains": {"const": 5}, "minContains": 2, "maxContains": 3})",
     R"([[5, 5], [1, 5, 2, 5], [5, 5, 5]])", R"([[5], [], [5, 5, 5, 5]])"},
    {"several contains, through allOf",
     R"({"type": "array", "maxItems": 4, "items": {"enum": ["a", "b", "c", 1]}, "contains": {"const": "a"},
         "allOf": [{"contains": {"type": "string"}, "maxContains": 2}, {"contains": {"enum": ["b", 1]}, "minContains": 2}]})",
     R"([["a", 1, 1], ["a", "b", 1], [1, 1, 1, "a"]])",
     R"([["a"], ["a", "b", "c", 1], ["b", 1], ["a", "c", 1, 1, 1]])"},
    {"different items of an enum",
     R"({"type": "array", "items": {"enum": ["a", "b", 1]}, "uniqueItems": true})",
     R"([[], ["b", "a"], [1, "a", "b"]])", R"([["a", "a"], ["c"]])"},
    {"different items of which some must be found",
     R"({"type": "array", "items": {"enum": ["a", "b", 1, 2]}, "uniqueItems": true,
         "contains": {"type": "integer"}, "maxContains": 1})",
     R"([[1], ["a", 2, "b"]])", R"([[], ["a", "b"], [1, 2], [1, 1]])"},
    {"names that propertyNames lists are counted",
     R"({"type": "object", "propertyNames": {"enum": ["a", "b", "c"]}, "minProperties": 3})",
     R"([{"a": 1, "b": 2, "c": 3}])", R"([{"a": 1, "b": 2}, {"a": 1, "b": 2, "d": 3}])"},
    {"allOf of what is no object",
     R"({"allOf": [{"type": "string", "maxLength": 3}, {"minLength": 2}], "default": "ab"})",
     R"(["ab", "abc"])", R"(["a", "abcd", 1])"},
    {"siblings of anyOf",
     R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
         "anyOf": [{"required": ["a"]}, {"required": ["b"]}], "additionalProperties": false})",
     R"([{"a": 1}, {"b": "x"}, {"a": 1, "b": "x"}])", R"([{}, {"a": "x"}, {"b": 1}])"},
    {"oneOf whose alternatives overlap",
     R"({"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 2}]})", R"([1, 2.5])", R"([3, 1.5])"},
    {"oneOf by required names",
     R"({"type": "object", "properties": {"a": {}, "b": {}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
         "additionalProperties": false})",
     R"([{"a": 1}, {"b": 1}])", R"([{}, {"a": 1, "b": 1}])"},
    {"oneOf of closed objects",
     R"({"type": "object", "oneOf": [{"properties": {"n": {}}, "required": ["n"], "additionalProperties": false},
         {"properties": {"n": {}, "t": {}}, "required": ["n", "t"], "additionalProperties": false}]})",
     R"([{"n": 1}, {"n": 1, "t": 2}])", R"([{}, {"t": 1}])"},
    {"oneOf of closed objects that may both be empty",
     R"({"oneOf": [{"type": "object", "properties": {"a": {}}, "additionalProperties": false},
         {"type": "object", "properties": {"b": {}}, "additionalProperties": false}]})",
     R"([{"a": 1}, {"b": 1}])", R"([{}, {"a": 1, "b": 1}])"},
    {"expressions", R"({"type": "string", "format": "regex"})",
     R"(["^[a-zA-Z0-9_]{3,16}$", "(?:a|b)+\\d?", ""])", R"(["a**", "(", "[", "a{3,1}", "\\"])"},
    {"oneOf by a discriminator",
     R"({"oneOf": [{"type": "object", "properties": {"t": {"const": "x"}, "v": {"type": "integer"}}, "required": ["t"]},
         {"type": "object", "properties": {"t": {"const": "y"}, "v": {"type": "string"}}, "required": ["t"]}]})",
     R"([{"t": "x", "v": 1}, {"t": "y", "v": "a"}])", R"([{"t": "x", "v": "a"}, {"t": "z"}, {}])"},
    {"not of values", R"({"type": ["string", "integer"], "not": {"enum": ["a", 5]}})", R"(["b", "", 50, 4])",
     R"(["a", 5])"},
    {"not of a pattern", R"({"type": "string", "not": {"pattern": "^x-"}})", R"(["x", "y-"])",
     R"(["x-", "x-a"])"},
    {"not of required names", R"({"type": "object", "not": {"required": ["a"]}})", R"([{}, {"b": 1}])",
     R"([{"a": 1}])"},
    {"if, then, else",
     R"({"type": "object", "properties": {"k": {"enum": ["a", "b"]}}, "required": ["k"],
         "if": {"properties": {"k": {"const": "a"}}}, "then": {"required": ["x"]}, "else": {"required": ["y"]}})",
     R"([{"k": "a", "x": 1}, {"k": "b", "y": 1}])", R"([{"k": "a", "y": 1}, {"k": "b"}])"},
    {"references and their siblings",
     R"({"$defs": {"n": {"type": "integer"}}, "$ref": "#/$defs/n", "maximum": 3})", R"([3, -1])",
     R"([4, "a"])"},
    {"draft 7 ignores siblings of references",
     R"({"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"n": {"type": "integer"}},
         "$ref": "#/definitions/n", "maximum": 3})",
     R"([3, 4])", R"(["a"])"},
    {"references with escapes", R"({"$defs": {"a/b c": {"type": "integer"}}, "$ref": "#/$defs/a~1b%20c"})",
     R"([1])", R"(["a"])"},
    {"anchors", R"({"$defs": {"x": {"$anchor": "n", "type": "integer"}}, "$ref": "#n"})", R"([1])",
     R"(["a"])"},
    {"a schema that names itself",
     R"({"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": false})",
     R"([{}, {"next": {"next": {}}}])", R"([{"next": 1}, {"a": 1}])"},
    {"boolean schemas", R"({"type": "object", "properties": {"a": true, "b": false}})", R"([{"a": [1]}, {}])",
     R"([{"b": 1}])"},
    {"lengths that no string has",
     R"({"anyOf": [{"type": "string", "minLength": 3, "maxLength": 2}, {"type": "null"}]})", R"([null])",
     R"(["", "abc"])"},
};

struct refusal_row {
    const char * name;
    const char * schema;
    const char * why; // the beginning
};

const refusal_row refusals[] = {
    {"items that must differ",
     R"({"properties": {"a": {"type": "array", "items": {"type": "string"}, "uniqueItems": true}}})",
     "/properties/a/uniqueItems: items that must differ have a rule only where they are an enum"},
    {"a reference that leaves the document", R"({"properties": {"a": {"$ref": "http://x/y"}}})",
     "/properties/a/$ref: \"http://x/y\" is not in this document"},
    {"a back-reference", R"({"type": "string", "pattern": "(a)\\1"})",
     R"(/pattern: "(a)\1": at character 6: a back-reference has no rule here)"},
    {"counts of names that nobody gives", R"({"type": "object", "minProperties": 3})",
     "/minProperties: 3 names that nobody gives must differ, which has no rule"},
    {"a schema that no value fits", R"({"type": "string", "enum": [1]})", "no value fits it"},
    {"a value without an end", R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})",
     "/properties/a: no value fits it"},
    {"objects that must all be other ones",
     R"({"type": "object", "not": {"enum": [{"a": 1}, {"b": 1}, {"c": 1}, {"d": 1}]}})",
     "/not: the opposite of a list or an object"},
    {"a number with too many digits", R"({"const": {"id": 100000000000000000001}})",
     "/const: {\"id\":1e+20} has a number with more digits"},
    {"items by rank that are no list", R"({"type": "array", "prefixItems": {"type": "integer"}})",
     "/prefixItems: object is no list of schemas"},
    {"branches that a keyword within them lets hold at once",
     R"({"type": "object", "oneOf": [{"$ref": "#/$defs/E", "unevaluatedProperties": false},
         {"allOf": [{"$ref": "#/$defs/E"}, {"$ref": "#/$defs/F"}]}], "$defs": {"A": {"properties": {"a": {}}},
         "C": {"allOf": [{"$ref": "#/$defs/A"}], "properties": {"c": {}}},
         "E": {"$ref": "#/$defs/C", "unevaluatedProperties": {"type": "integer"}},
         "F": {"properties": {"b": {}}, "required": ["b"]}}})",
     "/$defs/E/unevaluatedProperties: the opposite of this keyword"},
    {"a number that a server has rounded", R"({"const": 1e20})",
     "/const: 1e+20 has a number with more digits"},
    {"a property that draft 3 requires",
     R"({"$schema": "http://json-schema.org/draft-03/schema#", "properties": {"a": {"required": true}}})",
     "/properties/a/required: the required of draft 3"},
    {"a format that has no opposite", R"({"type": "string", "not": {"format": "regex"}})",
     "/not/format: the opposite of"},
    {"a required member without a value",
     R"({"type": "object", "required": ["a", "b"], "properties": {"a": {"type": "object", "required": ["c"],
         "properties": {"c": {"type": "string", "minLength": 3, "maxLength": 2}}}, "b": {"enum": []}}})",
     "/properties/b: no value fits it"},
    {"an opposite that has no rule, beside one that has",
     R"({"type": "array", "not": {"maxItems": 3, "uniqueItems": true}})",
     "/not/uniqueItems: the opposite of"},
    {"names of members that nobody can write, which counted",
     R"({"type": "object", "minProperties": 3,
         "properties": {"a": {"type": "string", "minLength": 3, "maxLength": 2}, "b": {}}})",
     "/minProperties: 3 names that nobody gives must differ, which has no rule"},
    {"different items by rank", R"({"prefixItems": [{"enum": [1, 2]}], "uniqueItems": true})",
     "/uniqueItems: items that must differ have a rule only where they are an enum of at most 8 values"},
    {"definitions that are none", R"({"$defs": 5})", "/$defs: 5 is no object of schemas"},
    {"an address that is none", R"({"allOf": [{"$id": 5}]})", "/allOf/0/$id: 5 is no name"},
    {"an object in place of a list of schemas", R"({"allOf": {"type": "string"}})",
     "/allOf: object is no list of schemas"},
    {"a list of names in place of a schema", R"({"dependentSchemas": {"a": ["b"]}})",
     "/dependentSchemas/a: array is no schema"},
    {"an expression that is none, in an opposite", R"({"not": {"pattern": 5}})",
     "/not/pattern: number is no"},
    {"names that are none, in an opposite", R"({"not": {"dependentRequired": {"a": [1]}}})",
     "/not/dependentRequired/a: [1] is no list of names"},
    {"a list of names that is none", R"({"properties": {"a": {"required": true}}})",
     "/properties/a/required: true is no list of names"},
    {"names that are none", R"({"required": ["a", 1]})", "/required: [\"a\",1] is no list of names"},
    {"names that depend, and are none", R"({"dependentRequired": {"a/b": [1]}})",
     "/dependentRequired/a~1b: [1] is no list of names"},
    {"a type that is not known, among others", R"({"type": ["string", "any"]})", "/type: \"any\" is no type"},
    {"a format that is none", R"({"format": 5})", "/format: 5 is no name"},
    {"no flag", R"({"uniqueItems": "true"})", "/uniqueItems: \"true\" is neither"},
    {"multiples of 0", R"({"multipleOf": 0})", "/multipleOf: 0 is not above 0"},
    {"a draft that is none", R"({"$schema": 5})", "/$schema: number is no address"},
    {"a keyword of the wrong type", R"({"type": "string", "minLength": "a"})",
     "/minLength: \"a\" is no count"},
    {"two references to each other",
     R"({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}})",
     "/$defs/b/$ref: \"#/$defs/a\" leads back to itself without an end"},
    {"a reference to itself by alternatives",
     R"({"properties": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/properties/a"}]}}})",
     "/properties/a/anyOf/1/$ref: \"#/properties/a\" leads back to itself without an end"},
    {"multiples of what has too many remainders",
     R"({"properties": {"a": {"type": "number", "multipleOf": 0.123456789}}})",
     "/properties/a/multipleOf: a multiple of 0.123456789 has too many remainders"},
};

// What is left out of a lenient schema; all that the exact one would admit is admitted.
struct lenient_row {
    const char * name;
    const char * schema;
    const char * yes;
    const char * no;
    const char * warnings; // the beginnings
};

const lenient_row lenient_rows[] = {
    {"items that must differ",
     R"({"type": "array", "items": {"type": "string"}, "uniqueItems": true, "maxItems": 2})",
     R"([[], ["a", "b"], ["a", "a"]])", R"([[1], ["a", "b", "c"]])",
     R"(["/uniqueItems: items that must differ"])"},
    {"a reference that leaves the document",
     R"({"type": "object", "properties": {"a": {"$ref": "http://x/y"}, "b": {"not": {"$ref": "http://x/y"}}},
         "additionalProperties": false})",
     R"([{"a": 1, "b": "x"}])", R"([{"c": 1}])",
     R"(["/properties/a/$ref: \"http://x/y\" is not in this", "/properties/b/not/$ref: "])"},
    {"values beside an expression that is not known",
     R"({"enum": ["a", "bb", "ccc"], "maxLength": 2, "not": {"pattern": "(a)\\1"}})", R"(["a", "bb"])",
     R"(["ccc"])", R"(["/not/pattern: "])"},
    {"an alternative beside one that is not known",
     R"({"oneOf": [{"enum": ["a", "b"], "pattern": "(a)\\1"}, {"const": "b"}]})", R"(["a", "b"])", R"(["c"])",
     R"(["/oneOf/0/pattern: "])"},
    {"names beside an expression that is not known",
     R"({"type": "object", "patternProperties": {"(a)\\1": {"type": "integer"}}, "additionalProperties": false})",
     R"([{"aa": 1}, {}])", R"([1])", R"(["/patternProperties: "])"},
    {"references to each other",
     R"({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a", "type": "integer"}}, "$ref": "#/$defs/a"})",
     R"([1])", R"(["a"])", R"(["/$defs/b/$ref: "])"},
    {"keywords of the wrong type",
     R"({"type": "string", "minLength": "a", "maxLength": 2, "allOf": {"a": 1}, "enum": 5})", R"(["", "ab"])",
     R"(["abc", 1])",
     R"(["/allOf: object is no list", "/enum: number is no list", "/minLength: \"a\" is no count"])"},
    {"what is not known may have evaluated all",
     R"({"type": "object", "properties": {"a": {}}, "required": ["b"],
         "anyOf": [{"$ref": "http://x/y"}, {"required": ["c"]}], "unevaluatedProperties": false})",
     R"([{"b": 1}, {"a": 1, "b": 1, "d": 1}])", R"([{"a": 1}])",
     R"(["/anyOf/0/$ref: ", "/unevaluatedProperties: beside what is left out"])"},
    {"a condition that is left out", R"({"type": "array", "contains": {"const": 1}, "minContains": "a"})",
     R"([[], [2], [1]])", R"(["a"])", R"(["/minContains: "])"},
    {"a branch without a condition", R"({"type": "string", "then": {"maxLength": 1}})", R"(["ab"])", R"([1])",
     R"(["/then: without an if it says nothing"])"},
    {"a format that is not known", R"({"type": "string", "format": "colour"})", R"(["red"])", R"([1])",
     R"(["/format: \"colour\" is not known here"])"},
};

// The arguments of calls that are not JSON.
struct call_row {
    const char *             name;
    const char *             document;
    schema::call_form        form;
    std::vector<std::string> yes, no;
};

schema::call_form tags(bool mixed = false, bool cdata = false) {
    schema::call_form form;
    form.before = "<a=", form.after = ">", form.after_text = " text>", form.close = "\n</a>\n",
    form.space   = true;
    form.cdata   = cdata;
    const auto s = mixed ? schema::call_form::mixed : schema::call_form::text;
    form.members = {{"n", false, schema::call_form::json, {}},
                    {"s", true, s, {"number", "null", "array"}},
                    {"t", false, s, {"number"}}};
    return form;
}

schema::call_form of_gemma() {
    schema::call_form form;
    form.quote = "<|>";
    return form;
}

const call_row calls[] = {
    {"what must come comes first, and once",
     R"({"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}, "s": {"type": "string"}}, "required": ["s"]})",
     tags(),
     {"<a=s text>x\n</a>\n", "<a=s text>\n</a>\n <a=n>9\n</a>\n", "<a=s text>a</a>\n\n</a>\n"},
     {"", "<a=n>1\n</a>\n", "<a=s text>x\n</a>\n<a=n>10\n</a>\n", "<a=s text>x\n</a>\n<a=s text>x\n</a>\n",
      "<a=s text>x\n</a>\n<a=t text>x\n</a>\n"}},
    {"texts obey lengths and expressions",
     R"({"type": "object", "properties": {"s": {"type": "string", "pattern": "^[a-c]+$", "maxLength": 3}}, "required": ["s"]})",
     tags(),
     {"<a=s text>abc\n</a>\n"},
     {"<a=s text>\n</a>\n", "<a=s text>abca\n</a>\n", "<a=s text>ad\n</a>\n"}},
    {"a text does not end itself",
     R"({"type": "object", "properties": {"s": {}}, "required": ["s"]})",
     tags(),
     {"<a=s text>\n</a\n</a>\n"},
     {"<a=s text>\n</a>\n</a>\n", "<a=s text>\n</a>\n</a>\nb\n</a>\n"}},
    {"allOf, names that must come with others, counts",
     R"({"type": "object", "allOf": [{"properties": {"s": {"enum": ["x", "y"]}}}, {"properties": {"t": {"const": "z"}}}],
         "required": ["s"], "dependentRequired": {"t": ["n"]}, "properties": {"n": {"type": "boolean"}}, "maxProperties": 2})",
     tags(),
     {"<a=s text>x\n</a>\n", "<a=s text>y\n</a>\n<a=n>true\n</a>\n"},
     {"<a=s text>z\n</a>\n", "<a=s text>x\n</a>\n<a=t text>z\n</a>\n",
      "<a=s text>x\n</a>\n<a=n>true\n</a>\n<a=t text>z\n</a>\n"}},
    {"a text that reads as JSON is JSON",
     R"({"type": "object", "properties": {"s": {"anyOf": [{"type": "string"}, {"type": "integer", "maximum": 5}, {"type": "null"}]}},
         "required": ["s"]})",
     tags(true),
     {"<a=s>5\n</a>\n", "<a=s>null\n</a>\n", "<a=s text>6 a\n</a>\n", "<a=s text>true\n</a>\n"},
     {"<a=s>6\n</a>\n", "<a=s text>6\n</a>\n", "<a=s text>null\n</a>\n", "<a=s text>[\n</a>\n",
      "<a=s text>\"a\"\n</a>\n"}},
    {"texts in CDATA",
     R"({"type": "object", "properties": {"s": {"type": "string"}}, "required": ["s"]})",
     tags(false, true),
     {"<a=s text><![CDATA[\n</a>\n]]>\n</a>\n", "<a=s text>a\n</a>\n"},
     {"<a=s text><![CDATA[a\n</a>\n", "<a=s text><![CDATA[]]>]]>\n</a>\n"}},
    {"the notation of Gemma",
     R"({"type": "object", "properties": {"s": {"type": "string", "maxLength": 2}, "o": {"type": "object", "patternProperties": {"^x": {"type": "integer"}}}},
         "required": ["s"]})",
     of_gemma(),
     {"{s:<|>ab<|>}", "{s:<|>\"<|>,o:{x1:2,xy:3}}", "{s:<|><<|>}"},
     {"{}", "{s:<|>abc<|>}", "{\"s\":<|>ab<|>}", "{s:\"ab\"}", "{s:<|>a<|>,o:{y:1}}", "{s:<|><|><|>}"}},
};

json ask(const char * schema, const json & values, bool open, bool lenient = false) {
    json line = {{"schema", schema}, {"values", json::array()}, {"open", open}, {"lenient", lenient}};
    for (const json & value : values) {
        line["values"].push_back(value.dump());
    }
    return json::parse(admit_line(line.dump()));
}

std::string said(bool admitted) {
    return admitted ? "admitted" : "refused";
}

void check(const schema_row & row) {
    for (const bool wanted : {true, false}) {
        const json values = json::parse(wanted ? row.yes : row.no);
        const json answer = ask(row.schema, values, row.open);
        expect_equal("", answer.value("error", ""), "error");
        for (size_t i = 0; i < values.size(); i++) {
            expect_equal(said(wanted), said(answer["admitted"][i]), values[i].dump());
        }
    }
}

void check(const lenient_row & row) {
    for (const bool wanted : {true, false}) {
        const json values = json::parse(wanted ? row.yes : row.no);
        const json answer = ask(row.schema, values, false, true);
        expect_equal("", answer.value("error", ""), "error");
        for (size_t i = 0; i < values.size(); i++) {
            expect_equal(said(wanted), said(answer["admitted"][i]), values[i].dump());
        }
        const json warnings = json::parse(row.warnings);
        for (size_t i = 0; i < warnings.size(); i++) {
            const std::string begin = warnings[i];
            expect_equal(begin, answer["warnings"].at(i).get<std::string>().substr(0, begin.size()));
        }
    }
}

void check(const call_row & row) {
    work_budget      budget;
    schema::compiled made =
        schema::compile({std::make_shared<const std::string>(row.document), "", "", row.form}, {}, budget);
    automaton machine(std::move(made.rules));
    for (const bool wanted : {true, false}) {
        for (const std::string & text : wanted ? row.yes : row.no) {
            machine.begin_step();
            const int32_t at = machine.step_by_text(automaton::first, text);
            expect_equal(said(wanted), said(at != automaton::dead && machine[at].may_end), text);
        }
    }
}

} // namespace

void add_schema_cases(std::vector<test_case> & cases) {
    for (const schema_row & row : rows) {
        cases.push_back({std::string("schemas ") + row.name, [&row] { check(row); }});
    }
    for (const lenient_row & row : lenient_rows) {
        cases.push_back({std::string("lenient schemas ") + row.name, [&row] { check(row); }});
    }
    for (const call_row & row : calls) {
        cases.push_back({std::string("calls ") + row.name, [&row] { check(row); }});
    }
    for (const refusal_row & row : refusals) {
        cases.push_back({std::string("refused schemas ") + row.name, [&row] {
                             const std::string found =
                                 ask(row.schema, json::array(), true).value("error", "");
                             expect_equal(row.why, found.substr(0, std::string(row.why).size()));
                         }});
    }
}
