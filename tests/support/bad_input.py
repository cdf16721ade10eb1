"""Every bad input of the API and the answer to it, as tables. A test sends them; docs/refusals.md shows them.

The settings are the defaults (--max-body 16MiB, --max-n 1024), the context is the bundled model's.
"""

# ruff: noqa: E501 (a table)
from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from llama_srb.request.steps import SAMPLER_NAMES

MAX_BODY = 16 << 20


@dataclass(frozen=True)
class Case:
    """One request that is refused. Bytes are sent as they are, any other body as JSON."""

    what: str
    body: Any
    message: str
    param: str | None = None
    status: int = 400
    method: str = "POST"
    path: str = "/v1/completions"
    code: str | None = None
    size: tuple[int, int] | None = None  # tokens of a prompt that is too long, and of the context

    @property
    def data(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


def field(what: str, message: str, *, param: str = "", **fields: Any) -> Case:
    """A body with a valid prompt and one invalid field: `param`, or else the first of `fields`."""
    return Case(what, {"prompt": "x", **fields}, message, param or next(iter(fields)))


def number(name: str, low: str, high: str, *values: Any) -> list[Case]:
    """A case for each of these values, which are out of the field's bounds or of a wrong type."""
    return [
        field(
            f"{name} {json.dumps(value)}",
            f"{name} is {json.dumps(value)}; it must be {wanted}",
            **{name: value},
        )
        for value in values
        for wanted in [f"{'' if type(value) in (int, float) else 'a number '}between {low} and {high}"]
    ]


def raw(what: str, body: bytes, message: str, param: str | None = None, status: int = 400) -> Case:
    return Case(what, body, message, param, status)


N = "a whole number between 1 and 1024"
RANKERS = "one of logprob, typical, diversity, medoid, certainty, {vote: {regex}}, {judge: {prompt, answers}}, {following: {text}}, {reward: {model}}"
MARKS = "a list of 1 to 16 rising numbers of tokens"
SAMPLERS = ", ".join(SAMPLER_NAMES)
PAIRS = "an object {id: bias} or a list of [id or text, bias or false]"
SEED = "between -9223372036854775808 and 18446744073709551615"

BODIES = [
    raw("an empty body", b"", "the body is empty; it must be a JSON object"),
    raw("not JSON", b"prompt=Once", "the body is not JSON: unexpected character, expected a JSON value (line 1, column 1)"),
    raw("JSON that ends early", b'{"prompt":', "the body is not JSON: unexpected end of data (line 1, column 11)"),
    raw("a list", b"[1]", "the body is [1]; it must be a JSON object"),
    raw("a text", b'"Once"', 'the body is "Once"; it must be a JSON object'),
    raw("null", b"null", "the body is null; it must be a JSON object"),
    raw("not UTF-8", b'{"prompt":"\xff"}', "the body is not UTF-8 (byte 11)"),
    raw("20,000 lists in each other", b"[" * 20_000 + b"]" * 20_000,
        "the body is nested over 300 levels deep; it must be at most 64"),
    raw("20,000 objects in each other", b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
        "the body is nested over 300 levels deep; it must be at most 64"),
    raw("a body above --max-body", b" " * (MAX_BODY + 1), f"the body is larger than --max-body, {MAX_BODY} bytes",
        status=413),
    raw("temperature NaN", b'{"prompt":"x","temperature":NaN}', "temperature is NaN; JSON has no such number",
        "temperature"),
    raw("top_p Infinity", b'{"prompt":"x","top_p":Infinity}', "top_p is Infinity; JSON has no such number", "top_p"),
    raw("temperature 1e999", b'{"prompt":"x","temperature":1e999}', "temperature is Infinity; JSON has no such number",
        "temperature"),
    raw("a lone surrogate in prompt", b'{"prompt":"a\\ud800"}', "prompt holds a lone surrogate, which is no character",
        "prompt"),
    raw("a lone surrogate in stop", b'{"prompt":"x","stop":["\\udc00"]}',
        "stop holds a lone surrogate, which is no character", "stop"),
]  # fmt: skip

WRONG_PROMPTS: tuple[Any, ...] = (7, True, [], {}, [1, "x"], [-1], [1.5])
PROMPTS = [
    Case("no prompt", {}, "prompt is missing", "prompt"),
    Case("prompt null", {"prompt": None}, "prompt is missing", "prompt"),
    *(
        Case(f"prompt {json.dumps(value)}", {"prompt": value},
             f"prompt is {json.dumps(value)}; it must be a text or a list of token ids", "prompt")
        for value in WRONG_PROMPTS
    ),
    Case("two prompts for one prefix", {"prompt": ["a", "b"]},
         "prompt is a list of 2 prompts; it must be one", "prompt", path="/v1/prefix"),
    Case("a thousand prompts", {"prompt": ["a"] * 1000, "stream": False},
         "prompt has 1000 prompts; it may have 256", "prompt"),
    Case("of two prompts a wrong one", {"prompt": ["a", 7], "stream": False},
         "prompt is 7; it must be a text or a list of token ids", "prompt"),
    Case("two prompts that continue one", {"prompt": ["a", "b"], "stream": False, "continue": {"id": "17", "index": 0}},
         "continue names one sequence, so prompt must be one text", "continue"),
    Case("a prompt of 4,000 words", {"prompt": "word " * 4000},
         "the prompt has at least 1333 tokens; with one more it exceeds the available context size of 1024 tokens per sequence",
         "prompt", code="context_length_exceeded", size=(1333, 1024)),
    Case("a token id above the vocabulary", {"prompt": [99_999]},
         "tokens is 99999; it must be between 0 and 4095", "prompt", code="invalid_request"),
]  # fmt: skip

COUNTS = [
    *(field(f"n {json.dumps(n)}", f"n is {n}; it must be between 1 and 1024", n=n) for n in (0, -1, 1025)),
    *(field(f"n {json.dumps(n)}", f"n is {json.dumps(n)}; it must be {N}", n=n) for n in (1.5, "8", True, [8])),
    field("max_tokens -2", "max_tokens is -2; it must be between -1 and 2147483647", max_tokens=-2),
    field('max_tokens "9"', 'max_tokens is "9"; it must be a whole number between -1 and 2147483647', max_tokens="9"),
    field("max_tokens 2147483648", "max_tokens is 2147483648; it must be between -1 and 2147483647",
          max_tokens=2**31),
    field("min_tokens above max_tokens", "min_tokens is 9; it must be at most max_tokens, 3", min_tokens=9, max_tokens=3),
    field("logprobs 10000000", "logprobs is 10000000; it must be between 0 and 100", logprobs=10_000_000),
    field("prompt_logprobs -1", "prompt_logprobs is -1; it must be between 0 and 100", prompt_logprobs=-1),
    field("return_token_ids 1", "return_token_ids is 1; it must be true or false", return_token_ids=1),
    field("return_entropies 1", "return_entropies is 1; it must be true or false", return_entropies=1),
    *(field(f"{name} 1", f"{name} is 1; it must be true or false", **{name: 1})
      for name in ("return_tokens_as_token_ids", "include_stop_str_in_output", "skip_special_tokens")),
    field('logprobs_mode "cooked"', 'logprobs_mode is "cooked"; it must be "raw", "processed" or "both"', logprobs_mode="cooked"),
    field("repetition_detection 3", "repetition_detection is 3; it must be an object: min_pattern_size, max_pattern_size, "
          "min_count", repetition_detection=3),
    field("repetition_detection once", "repetition_detection.min_count is 1; it must be between 2 and 8192",
          param="repetition_detection.min_count", repetition_detection={"max_pattern_size": 4, "min_count": 1}),
    field("repetition_detection long", "repetition_detection.max_pattern_size is 8193; it must be between 0 and 8192",
          param="repetition_detection.max_pattern_size", repetition_detection={"max_pattern_size": 8193}),
    field("repetition_detection upside down", "repetition_detection.min_pattern_size is 9; it must be at most "
          "max_pattern_size, 4", param="repetition_detection.min_pattern_size",
          repetition_detection={"min_pattern_size": 9, "max_pattern_size": 4, "min_count": 2}),
    field("loop_detect_window 8193", "loop_detect_window is 8193; it must be between 0 and 8192", loop_detect_window=8193),
    field('loops "stop"', 'loops is "stop"; it must be one of end, rewind', loops="stop"),
    field("phrase_bias a", 'phrase_bias is "a"; it must be a list of objects: text, bias, finish, once', phrase_bias="a"),
    field("phrase_bias many", "phrase_bias has 257 phrases; it may have 256", phrase_bias=[{"text": "a", "bias": 1}] * 257),
    *(field(f"phrase_bias {what}", message, param="phrase_bias", phrase_bias=[{"text": "a", "bias": 1} | given])
      for what, given, message in (
          ("empty", {"text": ""}, 'phrase_bias[0].text is ""; it must be a text of 1 to 1000 bytes'),
          ("1001", {"bias": 1001}, "phrase_bias[0].bias is 1001; it must be a number between -1000 and 1000"),
          ("once 1", {"once": 1}, "phrase_bias[0].once is 1; it must be true or false"),
          ("odd", {"a": 1}, 'phrase_bias[0] has no field "a", only text, bias, finish, once'))),
    field("stop_token_ids many", "stop_token_ids has 1001 token ids; it may have 1000", stop_token_ids=[*range(1001)]),
    field("stop_token_ids 17", "stop_token_ids is 17; it must be a list of token ids", stop_token_ids=17),
    field("allowed_token_ids of texts", 'allowed_token_ids is ["a"]; it must be a list of token ids',
          allowed_token_ids=["a"]),
    field("allowed_tokens of texts", 'allowed_token_ids is "1,a"; it must be a list of token ids',
          param="allowed_token_ids", allowed_tokens="1,a"),
    field("cache_salt empty", 'cache_salt is ""; it must be a text of 1 to 1024 characters', cache_salt=""),
    field("truncate_prompt_tokens 0", "truncate_prompt_tokens is 0; it must be -1 or at least 1",
          truncate_prompt_tokens=0),
    field("truncate_prompt_tokens -2",
          "truncate_prompt_tokens is -2; it must be between -1 and 2147483647", truncate_prompt_tokens=-2),
    field("truncation_side middle", 'truncation_side is "middle"; it must be one of left, right',
          truncation_side="middle"),
    field("continue.exact 1", "continue.exact is 1; it must be true or false", param="continue.exact",
          **{"continue": {"id": "17", "index": 0, "exact": 1}}),
    field("logprobs true", "logprobs is true; it must be a whole number between 0 and 100", logprobs=True),
]  # fmt: skip

SAMPLER_CASES = [
    *number("temperature", "0", "100", -0.1, 100.5, "hot", True),
    *number("top_p", "0", "1", -0.1, 1.5),
    field("top_p {}", 'top_p is {}; it must be a number, a list of n numbers, or {"from": 0.5, "to": 1}', top_p={}),
    *number("min_p", "0", "1", 2, "0.1"),
    *number("repeat_penalty", "0.01", "100", 0),
    *number("presence_penalty", "-100", "100", 101),
    *number("xtc_probability", "0", "1", 1.1),
    *number("dry_multiplier", "0", "100", -1),
    *number("mirostat_tau", "0", "100", -1),
    *number("smoothing_factor", "0", "100", -0.1),
    *number("smoothing_curve", "0", "10", 11),
    *(field(f"penalty_alpha {json.dumps(value)}",
            f"penalty_alpha is {json.dumps(value)}; it must be 0, which is off: contrastive search is not done here: for each token it would "
            "compute k rows more, to compare the hidden states of the k likeliest tokens with those of the text, and undo all but one",
            penalty_alpha=value)
      for value in (0.6, "0.6", False)),
    *number("skew", "-10", "10", -10.5),
    *number("top_a", "0", "1", 1.1),
    *number("tfs", "0", "1", -0.1, "x"),
    *number("epsilon_cutoff", "0", "10000", -3),
    *number("eta_cutoff", "0", "10000", 10_001),
    *number("rep_pen_slope", "0", "10", -1),
    *number("encoder_repetition_penalty", "0.01", "100", 0),
    field("repetition_decay -1", "repetition_decay is -1; it must be between 0 and 2147483647", repetition_decay=-1),
    field("no_repeat_ngram_size 1.5", "no_repeat_ngram_size is 1.5; it must be a whole number between 0 and 100",
          no_repeat_ngram_size=1.5),
    *(field(f"{name} 1", f"{name} is 1; it must be true or false", **{name: 1})
      for name in ("temperature_last", "do_sample")),
    field("top_k -2", "top_k is -2; it must be between -1 and 2147483647", top_k=-2),
    field("top_k 1.5", "top_k is 1.5; it must be a whole number between -1 and 2147483647", top_k=1.5),
    field("mirostat 3", "mirostat is 3; it must be between 0 and 2", mirostat=3),
    field("seed of 65 bits", f"seed is 36893488147419103232; it must be {SEED}", seed=2**65),
    field("seed below 64 bits", f"seed is -18446744073709551616; it must be {SEED}", seed=-(2**64)),
    field("ignore_eos 1", "ignore_eos is 1; it must be true or false", ignore_eos=1),
    *(field(f"samplers {json.dumps(chain)}", message, samplers=chain)
      for chain, message in (
          (["top_k", "top_q"], f'samplers[1] is "top_q"; it must be one of {SAMPLERS}'),
          ("dry > top_k:-2", 'samplers[1] is "top_k:-2"; its top_k must be a whole number between -1 and 2147483647'),
          ("top_k:1.5", 'samplers[0] is "top_k:1.5"; its top_k must be a whole number between -1 and 2147483647'),
          ("temp:1:101", 'samplers[0] is "temperature:1:101"; its dynatemp_range must be a number between 0 and 100'),
          ("skew > top_p:", 'samplers[1] is "top_p:"; its top_p must be a number'),
          (["top_p:nan"], 'samplers[0] is "top_p:nan"; its top_p must be a number'),
          ("xtc:1:0.1:3", 'samplers[0] is "xtc:1:0.1:3"; it must be xtc:XTC_PROBABILITY:XTC_THRESHOLD, or fewer of these'),
          ("infill:1", 'samplers[0] is "infill:1"; it must be infill'),
          ("presence_penalty:1", 'samplers[0] is "presence_penalty:1"; it must be penalties:REPEAT_PENALTY:REPEAT_LAST_N:FREQUENCY_PENALTY:PRESENCE_PENALTY, or fewer of these'),
          ("adaptive_p:0.1 > adaptive_p:0.2", 'samplers[0] is "adaptive_p:0.1"; adaptive_p draws the token: it may stand there once'))),
    field("samplers 7", "samplers is 7; it must be a list of sampler names", samplers=7),
    field("stop 7", "stop is 7; it must be a text or a list of texts", stop=7),
    field("stop [7]", "stop is [7]; it must be a text or a list of texts", stop=[7]),
    field("a stop of 5,000 bytes", "stop has a text of 5000 bytes; it may have 4096", stop="x" * 5000),
    field("2,000 stops", "stop has 2000 texts; it may have 1024", stop=["x"] * 2000),
    field("logit_bias 4", f"logit_bias is 4; it must be {PAIRS}", logit_bias=4),
    field('logit_bias {"5": "x"}', 'logit_bias for 5 is "x"; it must be a number between -1e9 and 1e9, or false',
          logit_bias={"5": "x"}),
    field('logit_bias {"5": 1e10}', "logit_bias for 5 is 10000000000.0; it must be a number between -1e9 and 1e9, "
          "or false", logit_bias={"5": 1e10}),
    field("dry_sequence_breakers 7", "dry_sequence_breakers is 7; it must be a list of texts", dry_sequence_breakers=7),
    *(field(f"banned_strings {json.dumps(value)}", message, banned_strings=value)
      for value, message in (
          (7, 'banned_strings is 7; it must be a text, {"regex": a text}, or a list of these'),
          (["a", {"regexp": "a"}], 'banned_strings[1] is {"regexp": "a"}; it must be a text, or {"regex": a text}'),
          ([{"regex": ""}], 'banned_strings[0] is {"regex": ""}; it must be a text, or {"regex": a text}'),
          ({"regex": "a"*4097}, "banned_strings has a text of 4097 bytes; it may have 4096"))),
]  # fmt: skip

PER_SEQUENCE = [
    field("3 temperatures for n = 2", "temperature is a list of 3; it must have n, 2", temperature=[1, 2, 3], n=2),
    field("temperature [0.5, -1] for n = 2", "sequences[1].temperature is -1; it must be between 0 and 100",
          param="sequences[1].temperature", temperature=[0.5, -1], n=2),
    field("1 entry of sequences for n = 2", "sequences has 1 entries; it must have n, 2", sequences=[{}], n=2),
    field("sequences 7", "sequences is 7; it must be a list of objects, one per sequence", sequences=7),
    field("sequences[1].top_k -2", "sequences[1].top_k is -2; it must be between -1 and 2147483647",
          param="sequences[1].top_k", sequences=[{}, {"top_k": -2}], n=2),
]  # fmt: skip

FORMS = [
    field("model 7", "model is 7; it must be a text", model=7),
    field('stream "yes"', 'stream is "yes"; it must be true or false', stream="yes"),
    Case("stream_options 7", {"prompt": "x", "stream": True, "stream_options": 7},
         "stream_options is 7; it must be an object", "stream_options"),
    Case("include_usage 1", {"prompt": "x", "stream": True, "stream_options": {"include_usage": 1}},
         "stream_options.include_usage is 1; it must be true or false", "stream_options.include_usage"),
    Case("GET on a POST route", b"", "/v1/completions takes POST, not GET", None, 405, "GET"),
    Case("POST on a GET route", {}, "/health takes GET, HEAD, not POST", None, 405, "POST", "/health"),
    Case("an unknown path", {}, "there is no /v1/nothing here", None, 404, "POST", "/v1/nothing"),
    Case("an id that is not running", b"", "no request 17 is running", "id", 404, "DELETE", "/v1/completions/17"),
]  # fmt: skip

NAMED = "an object: id, index, at, exact"
CONTINUED = [
    field("continue 7", f"continue is 7; it must be {NAMED}", **{"continue": 7}),
    field("continue without id", "continue.id is missing", param="continue.id", **{"continue": {"index": 0}}),
    field("continue without index", "continue.index is missing", param="continue.index", **{"continue": {"id": "17"}}),
    field("continue.id 17", "continue.id is 17; it must be the id of a request", param="continue.id",
          **{"continue": {"id": 17, "index": 0}}),
    field("continue.index -1", "continue.index is -1; it must be between 0 and 100000", param="continue.index",
          **{"continue": {"id": "17", "index": -1}}),
    field('continue.at "3"', 'continue.at is "3"; it must be a whole number between 0 and 2147483647',
          param="continue.at", **{"continue": {"id": "17", "index": 0, "at": "3"}}),
    field("continue with n", 'continue has no field "n", only id, index, at, exact', **{"continue": {"id": "17", "n": 0}}),
    Case("continue of an unknown request", {"continue": {"id": "17", "index": 3}},
         "continue names sequence 3 of request 17, which is not known here (any more); send its text as the prompt",
         "continue", code="invalid_request"),
    Case("a prefix without prompt", {}, "prompt is missing", "prompt", path="/v1/prefix"),
    Case("a prefix of a number", {"prompt": 7}, "prompt is 7; it must be a text or a list of token ids", "prompt",
         path="/v1/prefix"),
    Case("a prefix with continue", {"continue": {"id": "17", "index": 0}},
         "continue has no prefix to compute; send the text as the prompt", "continue", path="/v1/prefix"),
    Case("a prefix of 4,000 words", {"prompt": "word " * 4000},
         "the prompt has at least 1333 tokens; with one more it exceeds the available context size of 1024 tokens per sequence",
         "prompt", path="/v1/prefix", code="context_length_exceeded", size=(1333, 1024)),
]  # fmt: skip


FORMATS = 'an object whose type is "text", "json_object", "json_schema" or "structural_tag"'


def structure(name: str, text: Any, message: str) -> Case:
    """A structure with a fault that only the engine can find."""
    return Case(
        f"{name} {json.dumps(text)}"[:60], {"prompt": "x", name: text}, message, name, code="invalid_request"
    )


STRUCTURES = [
    field("grammar 7", "grammar is 7; it must be a text", grammar=7),
    field("regex [\"a\"]", 'regex is ["a"]; it must be a text', regex=["a"]),
    field("json_schema 7", "json_schema is 7; it must be an object, or one as text", json_schema=7),
    field("json_schema '{'", "json_schema: line 1, column 2: unexpected end of data", json_schema="{"),
    field("choice []", "choice is []; it must be a list of texts, at least one, none of them empty", choice=[]),
    field('choice ["a", ""]', 'choice is ["a", ""]; it must be a list of texts, at least one, none of them empty',
          choice=["a", ""]),
    field("grammar and regex", "only one of grammar and regex may be given", param="regex", grammar="x", regex="x"),
    field("response_format 7", f"response_format is 7; it must be {FORMATS}", response_format=7),
    field("response_format of type xml", f'response_format is {{"type": "xml"}}; it must be {FORMATS}',
          response_format={"type": "xml"}),
    field("response_format without a schema", "response_format.json_schema.schema is missing",
          response_format={"type": "json_schema"}),
    field("response_format and json_schema", "only one of response_format and json_schema may be given",
          response_format={"type": "json_object"}, json_schema={}),
    field("structured_outputs 7", "structured_outputs is 7; it must be an object: json, regex, choice, grammar, "
          "structural_tag",
          structured_outputs=7),
    structure("grammar", 'root ::= "a', 'grammar: line 1, column 10: the text has no closing "'),
    structure("grammar", 'root ::= "a"\nb = "c"', 'grammar: line 2, column 3: expected ::=, found "="'),
    structure("grammar", "root ::= x\n", "grammar: line 1, column 10: there is no rule x"),
    structure("grammar", 'x ::= "a"\n', "grammar: line 2, column 1: there is no rule root"),
    structure("grammar", 'root ::= root "a"', "grammar: line 1, column 1: no text fits it"),
    structure("grammar", 'start: "a" NAME\n%ignore " "',
              "grammar: line 2, column 1: %ignore says what a lexer leaves out between terminals; there is no lexer here: "
              "write it into the rules"),
    structure("grammar", 'start: A\nA.2: "a"', "grammar: line 2, column 2: a priority says which of two readings a lexer "
              "takes; there is no lexer here, and all readings are allowed"),
    structure("grammar", "start: /a(?=b)/",
              "grammar: line 1, column 10: a group is (…), (?:…) or (?flags:…) with the flags i and s; no look-around, "
              "no names"),
    structure("grammar", 'start: %json {"type": "word"}', 'grammar: line 1, column 8: %json: /type: "word" is no type; with "lenient": true it is left out'),
    structure("structural_tag", {"format": {"type": "sequence", "elements": [{"type": "word"}]}},
              "structural_tag: /format/elements/0/type: word is not read here; there are any_text, any_tokens, "
              "const_string, dispatch, exclude_token, grammar, json_schema, optional, or, plus, regex, repeat, sequence, "
              "star, tag, tags_with_separator, token, token_dispatch, token_triggered_tags, triggered_tags"),
    structure("structural_tag", {"format": {"style": "qwen_xml", "type": "json_schema", "json_schema": {}}},
              "structural_tag: /format/style: arguments are written as json here, in no other style"),
    structure("structural_tag", {"format": {"type": "json_schema", "json_schema": {"properties": {"a": {"type": "b"}}}}},
              'structural_tag: /format/json_schema/properties/a/type: "b" is no type; with "lenient": true it is left out'),
    structure("structural_tag", {"structures": [{"begin": "<a>", "schema": {}, "end": "</a>"}], "triggers": ["<b"]},
              "structural_tag: /structures/0/begin: no trigger begins it"),
    field("structural_tag 7", "structural_tag is 7; it must be an object, or one as text", structural_tag=7),
    structure("regex", "a(b", "regex: line 1, column 2: the group has no closing )"),
    structure("regex", "ab(?=c)",
              "regex: line 1, column 3: a group is (…) or (?:…); no look-around, no names, no flags"),
    structure("regex", "x" * 70_000, "regex has 70000 bytes; it may have 65536"),
    structure("regex", "(a?){100000}", "regex: line 1, column 1: it is too ambiguous: at one place the text can be read "
              "in more than 16384 ways"),
    structure("json_schema", {"properties": {"a": {"type": "word"}}}, 'json_schema: /properties/a/type: "word" is no type; with "lenient": true it is left out'),
    structure("json_schema", {"type": "string", "pattern": r"(a)\1"},
              r'json_schema: /pattern: "(a)\1": at character 6: a back-reference has no rule here; with "lenient": true it is left out'),
]  # fmt: skip


STORY_FIELDS = "memory, note, lore, summary, budget, search, separator"
ENTRY_FIELDS = "keys, also, text, name, always, order, search, budget, meaning"


def story(what: str, message: str, param: str, value: Any) -> Case:
    """A wrong field of a story; param: its name."""
    return field(f"story with {what}", f"story.{message}", param=f"story.{param}", story=value)


STORIES = [
    field("token_healing 1", "token_healing is 1; it must be true or false", token_healing=1),
    field("story 7", f"story is 7; it must be an object: {STORY_FIELDS}", story=7),
    field("story of other fields", f'story has no field "memry", only {STORY_FIELDS}', story={"memry": "x"}),
    story("memory 7", "memory is 7; it must be a text", "memory", {"memory": 7}),
    story("a note without text", "note.text is missing", "note.text", {"note": {"depth": 3}}),
    story("depth -1", "note.depth is -1; it must be between 0 and 2147483647", "note.depth",
          {"note": {"text": "x", "depth": -1}}),
    story("lore 7", f"lore is 7; it must be a list of objects: {ENTRY_FIELDS}", "lore", {"lore": 7}),
    story("1001 entries", "lore has 1001 entries; it may have 1000", "lore", {"lore": [{"text": "x"}] * 1001}),
    story("keys 7", "lore[1].keys is 7; it must be a text or a list of texts", "lore[1].keys",
          {"lore": [{"text": "x"}, {"text": "x", "keys": 7}]}),
    story("a key of 501 characters", "lore[0].keys has a key of 501 characters; it may have 500", "lore[0].keys",
          {"lore": [{"text": "x", "keys": "x" * 501}]}),
    story("an open group", "lore[0].keys[0] is no regular expression: missing ): a(b", "lore[0].keys[0]",
          {"lore": [{"text": "x", "keys": "/a(b/"}]}),
    story("meaning 2", "lore[0].meaning is 2; it must be a number between 0 and 1", "lore[0].meaning",
          {"lore": [{"text": "x", "meaning": 2}]}),
    story("meaning without an embedding model",
          "lore has entries with meaning, but no embedding model is loaded that you may use: load one, or give "
          "keys instead", "lore", {"lore": [{"text": "x", "meaning": 0.5}]}),
    story("search 0", "search is 0; it must be between 1 and 1000000", "search", {"search": 0}),
    story("budget -1", "budget is -1; it must be between 0 and 2147483647", "budget", {"budget": -1}),
    Case("a story of token ids", {"prompt": [1, 2], "story": {}},
         "story is given with a prompt of token ids or parts; with story the prompt is a text", "prompt"),
    Case("a chat with a story", {"messages": [{"role": "user", "content": "x"}], "story": {}},
         "only one of messages and story may be given: a story is one text, the prompt", "story",
         path="/v1/events"),
]  # fmt: skip

THEN_FIELDS = "text, grammar, json_schema, regex, choice, structural_tag, max_tokens, stop, return_free"


def then(what: str, message: str, param: str = "text", **fields: Any) -> Case:
    """A wrong field of then; param: its name."""
    about = {"then": {"text": "So:", **fields}}
    return field(f"then with {what}", f"then.{message}", param=f"then.{param}", **about)


THEN = [
    field("then 7", f"then is 7; it must be an object: {THEN_FIELDS}", then=7),
    field("then '{'", f'then is "{{"; it must be an object: {THEN_FIELDS}', then="{"),
    field("then without text", "then.text is missing", param="then.text", then={"regex": "a"}),
    field("then of other fields", f'then has no field "temperature", only {THEN_FIELDS}',
          then={"text": "", "temperature": 1}),
    then("text 7", "text is 7; it must be a text", text=7),
    then("max_tokens 0", "max_tokens is 0; it must be -1 or at least 1", "max_tokens", max_tokens=0),
    then("max_tokens -2", "max_tokens is -2; it must be between -1 and 2147483647", "max_tokens", max_tokens=-2),
    then("stop 7", "stop is 7; it must be a text or a list of texts", "stop", stop=7),
    then("choice []", "choice is []; it must be a list of texts, at least one, none of them empty", "choice", choice=[]),
    then("return_free 1", "return_free is 1; it must be true or false", "return_free", return_free=1),
    field("then with grammar and regex", "only one of then.grammar and then.regex may be given", param="then.regex",
          then={"text": "", "grammar": "x", "regex": "x"}),
    Case("then with a wrong regex", {"prompt": "x", "then": {"text": "", "regex": "a(b"}},
         "then.regex: line 1, column 2: the group has no closing )", "then.regex", code="invalid_request"),
    Case("then without room for a token", {"prompt": "x", "then": {"text": "a " * 1024}},
         "prompt and then.text have 1027 tokens; with one more it exceeds the available context size of 1024 tokens per "
         "sequence", "then", code="context_length_exceeded", size=(1027, 1024)),
    field("then and echo", "only one of then and echo may be given: the second answer does not follow the prompt",
          param="then", echo=True, then={"text": "So:"}),
    field("then and dedupe",
          "only one of then and dedupe may be given: equal second answers may belong to different free answers",
          param="then", dedupe=True, then={"text": "So:"}),
    field("best_of and then.return_free",
          "only one of best_of and then.return_free may be given: only second answers are compared",
          param="then.return_free", n=2, best_of=4, then={"text": "So:", "return_free": True}),
]  # fmt: skip


DIVERSITY = [
    field('diversity "beam"', 'diversity is "beam"; it must be one of none, arithmetic', diversity="beam"),
    field("arithmetic with mirostat", 'diversity is "arithmetic", which is not possible with mirostat',
          diversity="arithmetic", mirostat=2),
    field("arithmetic with adaptive-p", 'diversity is "arithmetic", which is not possible with adaptive_p',
          diversity="arithmetic", adaptive_target=0.3),
    field("arithmetic with two temperatures",
          'diversity is "arithmetic", which is not possible with temperature of one choice', n=2,
          param="diversity", diversity="arithmetic", temperature=[0.5, 1]),
    field("first_token true", "first_token is true; it must be one of any, distinct", first_token=True),
    field("distinct first tokens with two top_k",
          'first_token is "distinct", which is not possible with top_k of one choice', n=2,
          param="first_token", first_token="distinct", top_k=[5, 6]),
    field("best_of -1", "best_of is -1; it must be at least 0", best_of=-1),
    field("best_of 3 for n = 4", "best_of is 3; it must be 0, 1, or between n, 4, and 1024", best_of=3, n=4),
    field("best_of 1025", "best_of is 1025; it must be 0, 1, or between n, 8, and 1024", best_of=1025),
    field("best_of 3 for 2 temperatures", "best_of is 3, more than the n, 2, that have settings of their own",
          best_of=3, n=2, temperature=[0.5, 1]),
    field('rank_by "best"', f'rank_by is "best"; it must be {RANKERS}', rank_by="best"),
    field("rank_by vote without its object", 'rank_by.vote.regex is missing', param="rank_by.vote.regex", rank_by="vote"),
    field("rank_by with two keys", 'rank_by has 2 keys ("vote", "medoid"); it must have one', rank_by={"vote": {}, "medoid": {}}),
    field("rank_by {}", "rank_by has 0 keys (none); it must have one", rank_by={}),
    field("rank_by [1]", f"rank_by is [1]; it must be {RANKERS}", rank_by=[1]),
    field("rank_by medoid 1", "rank_by.medoid is 1; it must be an object", rank_by={"medoid": 1}),
    field("rank_by medoid by sound", 'rank_by.medoid.by is "sound"; it must be one of overlap, embeddings',
          param="rank_by.medoid.by", rank_by={"medoid": {"by": "sound"}}),
    field("rank_by medoid with a regex", 'rank_by.medoid has no field "regex", only by, model', rank_by={"medoid": {"regex": "a"}}),
    field("rank_by logprob by embeddings", 'rank_by.logprob takes no fields, but "by" is given', rank_by={"logprob": {"by": "embeddings"}}),
    field("rank_by overlap with a model", "rank_by.medoid.model is given, but by is overlap; only embeddings need a model",
          param="rank_by.medoid.model", rank_by={"medoid": {"model": "a"}}),
    field("rank_by embeddings without a model",
          "rank_by.medoid.by is embeddings, but no embedding model is loaded; by model you may name one of storyteller",
          param="rank_by.medoid.by", rank_by={"medoid": {"by": "embeddings"}}),
    field("rank_by embeddings of an unknown model",
          'rank_by.diversity.model is "no"; it must be a loaded model that computes embeddings, of which you may use: storyteller',
          param="rank_by.diversity.model", rank_by={"diversity": {"by": "embeddings", "model": "no"}}),
    *(field(f"rank_by vote {pattern}", f'rank_by.vote.regex is {json.dumps(pattern)}, which RE2 refuses: {reason}',
            param="rank_by.vote.regex", rank_by={"vote": {"regex": pattern}})
      for pattern, reason in [("(", "missing ): ("), (r"(a)\1", r"invalid escape sequence: \1"), ("(?=a)", "invalid perl operator: (?="),
                              (r"\pL{500}", "pattern too large - compile failed")]),
    field("rank_by vote with a long pattern", "rank_by.vote.regex has 1001 characters; it may have 1000",
          param="rank_by.vote.regex", rank_by={"vote": {"regex": "a" * 1001}}),
    field("rank_by vote 1", "rank_by.vote.regex is 1; it must be a regular expression", param="rank_by.vote.regex",
          rank_by={"vote": {"regex": 1}}),
    field("rank_by vote with dedupe", "only one of rank_by.vote and dedupe may be given: each of two equal texts has its vote",
          param="dedupe", rank_by={"vote": {"regex": "a"}}, dedupe=True),
    field("rank_by judge without {text}",
          'rank_by.judge.prompt is "x"; it must be a text with {text} in the place of the text that is judged',
          param="rank_by.judge.prompt", rank_by={"judge": {"prompt": "x", "answers": ["a", "b"]}}),
    field("rank_by judge with many {text}", "rank_by.judge.prompt has {text} 5 times; it may have it 4 times",
          param="rank_by.judge.prompt", rank_by={"judge": {"prompt": "{text}" * 5, "answers": ["a", "b"]}}),
    field("rank_by judge without answers", "rank_by.judge.answers is missing", param="rank_by.judge.answers",
          rank_by={"judge": {"prompt": "{text}"}}),
    field("rank_by judge with equal answers",
          'rank_by.judge.answers is ["a", "a"]; it must be two different texts, the praise first',
          param="rank_by.judge.answers", rank_by={"judge": {"prompt": "{text}", "answers": ["a", "a"]}}),
    field("finish 1", "finish is 1; it must be an object: first, vote_decided", finish=1),
    field("finish with an unknown field", 'finish has no field "last", only first, vote_decided', finish={"last": 1}),
    field("finish.first 0", "finish.first is 0; it must be between 1 and 100000", param="finish.first", finish={"first": 0}),
    field('finish.first "2"', 'finish.first is "2"; it must be a whole number between 1 and 100000', param="finish.first",
          finish={"first": "2"}),
    field("finish.first above n", "finish.first is 9; it must be between 1 and the number of texts, 4", param="finish.first",
          finish={"first": 9}, n=4),
    field("finish.vote_decided 1", "finish.vote_decided is 1; it must be true or false", param="finish.vote_decided",
          finish={"vote_decided": 1}),
    field("finish.vote_decided without a vote",
          "finish.vote_decided is true, but rank_by is not a vote: give rank_by.vote.regex",
          param="finish.vote_decided", finish={"vote_decided": True}),
    field("prune 1", "prune is 1; it must be an object: at, keep, by", prune=1),
    field("prune without marks", "prune.at is missing", param="prune.at", prune={"keep": 1}),
    field("prune without keep", "prune.keep is missing", param="prune.keep", prune={"at": [4]}),
    field("prune.at falls", f"prune.at is [8, 4]; it must be {MARKS}", param="prune.at", prune={"at": [8, 4], "keep": 1}),
    field("prune.at []", f"prune.at is []; it must be {MARKS}", param="prune.at", prune={"at": [], "keep": 1}),
    field("prune.at 4", f"prune.at is 4; it must be {MARKS}", param="prune.at", prune={"at": 4, "keep": 1}),
    field("prune.at [0]", "prune.at is 0; it must be between 1 and 2147483647", param="prune.at",
          prune={"at": [0], "keep": 1}),
    field("prune.keep above n", "prune.keep is 9; it must be between 1 and the number of texts, 4", param="prune.keep",
          prune={"at": [4], "keep": 9}, n=4),
    field("prune.by length", 'prune.by is "length"; it must be one of certainty, logprob', param="prune.by",
          prune={"at": [4], "keep": 1, "by": "length"}),
    field("diversity_stats 1", "diversity_stats is 1; it must be true or false", diversity_stats=1),
    field("dedupe 1", "dedupe is 1; it must be true or false", dedupe=1),
]  # fmt: skip


def extension(what: str, message: str, param: str, status: int = 400, **fields: Any) -> Case:
    return Case(what, fields, message, param, status, path="/v1/completions/17/extend")


EXTENSIONS = [
    extension("extend what is not running",
              'no request 17 is running: it has ended (a request with "continue" goes on from it), waits for its model, or is unknown', "id", 404, add=1),
    extension("add -1", "add is -1; it must be between 0 and 100000", "add", add=-1),
    extension("add true", "add is true; it must be a whole number between 0 and 100000", "add", add=True),
    extension("max_tokens -2 in extend", "max_tokens is -2; it must be between -1 and 2147483647", "max_tokens",
              max_tokens=-2),
    extension("fork 2", "fork is 2; it must be an object: index, at", "fork", fork=2),
    extension("fork with id", 'fork has no field "id", only index, at', "fork", fork={"id": "17", "index": 0}),
    extension("fork.at -1", "fork.at is -1; it must be between 0 and 2147483647", "fork.at",
              fork={"index": 0, "at": -1}),
]  # fmt: skip

CHAT, HI = "/v1/chat/completions", [{"role": "user", "content": "Hi"}]


def chat(what: str, message: str, *, param: str = "messages", **fields: Any) -> Case:
    return Case(what, {"messages": HI, **fields}, message, param, path=CHAT)


CHATS = [
    Case("a chat without messages", {"prompt": "x"}, "messages is missing", "messages", path=CHAT),
    chat("an empty chat", "messages is []; it must be a list of messages, at least one", messages=[]),
    chat(
        "a message that is a text",
        'messages[0] is "Hi"; it must be an object: role, content',
        messages=["Hi"],
    ),
    chat(
        "a message without a role",
        "messages[0].role is null; it must be a text",
        messages=[{"content": "Hi"}],
    ),
    chat(
        "a message whose content is a number",
        "messages[0].content is 7; it must be a text or a list of parts of type text",
        messages=[{"role": "user", "content": 7}],
    ),
    chat(
        "a picture in a message",
        'messages[0].content is {"type": "image_url"}; it must be a part of type text, the only type here',
        messages=[{"role": "user", "content": [{"type": "image_url"}]}],
    ),
    chat(
        "a tool without a name",
        'tools is [{"type": "function"}]; it must be a list of {"type": "function", "function": {"name", …}}',
        tools=[{"type": "function"}],
        param="tools",
    ),
    chat(
        "tool_choice 7",
        "tool_choice is 7; it must be one of auto, none, required",
        tool_choice=7,
        param="tool_choice",
    ),
    chat(
        "top_logprobs alone", "top_logprobs is given without logprobs", top_logprobs=2, param="top_logprobs"
    ),
    chat("a prompt beside messages", "only one of messages and prompt may be given", prompt="x"),
    field(
        "tools without messages",
        "tools is given without messages",
        tools=[{"type": "function", "function": {"name": "x"}}],
    ),
    Case(
        "messages in OpenAI's completions",
        {"messages": HI, "stream": True},
        "messages belongs to /v1/chat/completions or the event stream",
        "messages",
    ),
]

GROUPS = {
    "The body": BODIES,
    "Prompts": PROMPTS,
    "Numbers of texts and tokens": COUNTS,
    "Samplers and stop strings": SAMPLER_CASES,
    "Settings of single sequences": PER_SEQUENCE,
    "Paths and forms": FORMS,
    "Continue and prefix": CONTINUED,
    "Structures": STRUCTURES,
    "Two answers": THEN,
    "Stories": STORIES,
    "Diversity, ranking, ends": DIVERSITY,
    "Extensions": EXTENSIONS,
    "Chats": CHATS,
}
CASES = [case for group in GROUPS.values() for case in group]
