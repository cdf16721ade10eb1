"""All n texts obey grammars, schemas, regexes and choices, and hostile ones of these block no other request."""

# ruff: noqa: E501 (tables)

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.real.test_cli import complete
from tests.support.chats import HELLO, tool
from tests.support.lines import LIMIT, Answer, Lines
from tests.support.rows import each_row
from tests.support.serving import serving

Request = dict[str, Any]

# Every allowed token is nearly as likely as any other, so that the corners of a grammar are visited.
WILD: Request = {"temperature": 100, "samplers": ["temperature"], "seed": 3}
ONCE: Request = {"prompt": "Once upon a time", "n": 8, "max_tokens": 60, "sampling": {"seed": 3}}


@pytest.fixture(scope="module")
def engine() -> Iterator[Lines]:
    with Lines("-np", "16", "-t", "1") as engine:
        yield engine


@pytest.fixture(scope="module")
def exact(bigram: Path) -> Iterator[Lines]:
    """An engine whose tokens depend on settings, seed and index only."""
    with Lines("-np", "16", "-c", "8192", "-t", "1", model=bigram) as engine:
        yield engine


def finished(answer: Answer) -> list[str]:
    """The texts that max_tokens has not cut off."""
    pairs = list(zip(answer.texts, answer.stops, strict=True))
    for _, stop in pairs:
        assert (stop["finish_reason"], stop["stop"]) in (("stop", 1), ("length", 0))
    return [text for text, stop in pairs if stop["stop"]]


def all_of(engine: Lines, **structure: str) -> set[str]:
    """All texts of a small language, by so many draws that none is missed."""
    answer = engine.generate(prompt="x", n=500, max_tokens=20, sampling=WILD, **structure)
    assert len(finished(answer)) == 500
    return set(answer.texts)


# Languages of a few texts: all of them are generated, and no others


REGEXES = [  # and the letters that texts of up to four letters are made of
    ("a", "ab"), ("a{1,3}", "a"), ("a{2}", "a"), ("a{,2}b", "ab"), ("ab?c?", "abc"), ("(a|bc)d", "abcd"),
    ("(?:a|b){2}", "ab"), ("a|b|cd", "abcd"), ("a(|b)c", "abc"), ("[a-d]x", "abcdex"), ("[c-ex]?y", "bcdefxy"),
    (r"\d", "0123456789a"), (r"[\d_]\.", "0123456789_."), ("[^\x01-`d-\U0010ffff\x00]", "abcde"), ("[-a]", "-a"),
    ("[a-]", "-a"), ("[]a]", "]a"), (r"\x41\u0042", "AB"), (r"a\|b", "a|b"), (r"[\]\\^]", "]\\^"), ("^(a|b)$", "ab"),
    ("^a|b$", "ab"), ("a??b", "ab"), ("(a{0,1}?b){1,2}", "ab"), ("((a|b)(a|b)){1}", "ab"), ("é[à-ã]?", "éàáâã"),
    ("\U0001f600|x", "\U0001f600x"), (r"\t\n", "\t\n"), ("a{0}b", "ab"), ("(a?){2}", "a"), ("(a?c?){2}", "ac"),
    ("[\u07fe-\u0801]", "\u07fe\u07ff\u0800\u0801"), ("[\uffff-\U00010001]", "\uffff\U00010000\U00010001"),
    ("[\ud7fe-\ue001]", "\ud7fe\ud7ff\ue000\ue001"), ("", "a"), ("(a|a)(b|b)?", "ab"),
    (re.escape(" \n#"), " \n#"), (r"a\ b[\ -]", "ab -"),
]  # fmt: skip


@each_row(("pattern", "letters"), REGEXES)
def test_a_regex_takes_the_texts_that_python_takes(engine: Lines, pattern: str, letters: str) -> None:
    tried = itertools.chain.from_iterable(itertools.product(letters, repeat=n) for n in range(5))
    expected = {text for text in map("".join, tried) if re.fullmatch(pattern, text, re.ASCII)}
    assert expected
    assert all_of(engine, regex=pattern) == expected


GBNFS = [
    ('root ::= "a" "b"', "ab"),
    ('root ::= "a" | "b" "c"\n', "a bc"),
    ('root ::= x{2} # twice\nx ::= "a" |\n  "b"\n\n', "aa ab ba bb"),
    ("root ::= (\n [a-c] \n) [^\\x00-wy-\\U0010FFFF]", "ax bx cx"),
    ('root ::= "a"{0,2} "\\"" [\\]\\-]', '"] a"] aa"] "- a"- aa"-'),
    ('root ::= "\\x41\\u00e9\\U0001F600"', "Aé\U0001f600"),
    ('root ::= ("a" | "b"?) "c" "d"*{0}', "ac bc c"),
    ('\r\nroot::=a-1\r\n# end\r\na-1::=("x")("y")?', "x xy"),
    ('root ::= n\nn ::= "(" ("a" | n2) ")"\nn2 ::= "[" n3? "]"\nn3 ::= "b"', "(a) ([]) ([b])"),
    ('root ::= <[66]> | !<[67]>{0} "z"', "b z"),
    ('root ::= "a" <|endoftext|>', "a"),
    ('start: x~1..2 "b"i\nx: [A]\nA: "a"', "b B ab aB aab aaB"),
    ('start: "a" <|endoftext|> | <[66]> "x" | <[67-68]>', "a bx c d"),
    ('start: %json {"enum": [1, "}"]} | "!" %regex {"substring_chunks": ["a", "bc"]}', '1 "}" ! !a !bc !abc'),
]


@each_row(("grammar", "texts"), GBNFS)
def test_a_grammar_generates_exactly_its_texts(engine: Lines, grammar: str, texts: str) -> None:
    assert all_of(engine, grammar=grammar) == set(texts.split())


@pytest.mark.parametrize("grammar", ['root ::= !<[66]> "z"', 'start: (<[^66,67]> | <[*]>) "z"'])
def test_an_end_of_the_text_is_no_other_token(engine: Lines, grammar: str) -> None:
    texts = finished(engine.generate(prompt="x", n=500, max_tokens=20, sampling=WILD, grammar=grammar))
    assert len(set(texts)) > 50
    assert all(text.endswith("z") for text in texts)


def test_a_grammar_may_be_recursive(engine: Lines) -> None:
    answer = engine.generate(
        prompt="x", n=100, max_tokens=40, sampling=WILD, grammar='root ::= "(" (root | "a")* ")"'
    )
    texts = finished(answer)
    assert len(set(texts)) > 5
    for text in texts:
        while shorter := re.sub(r"\(a*\)", "", text):
            assert len(shorter) < len(text), text
            text = shorter


def test_a_choice_is_one_of_the_list(engine: Lines) -> None:
    choices = ["yes", "no", "yes and no", "ünï", " a\nb"]
    answer = engine.generate(prompt="x", n=200, max_tokens=20, sampling=WILD, choice=choices)
    assert set(finished(answer)) == set(choices)
    assert len(answer.texts) == 200


# Larger languages: every generated text is one of the language


LONGER = [
    r"( \w+){3}\.", r"[A-Z][a-zé€]{2,9}, \d{1,3}(\.\d\d)?", r"(\w+ ?){1,9}[.!?]", r".{20}", r"\S+\s\S+", r"\W\w\D\d",
    r"[^aeiou]{8}", r"(the|a) (cat|dog)( and (the|a) (cat|dog)){0,3}", r"\+?\d{3}-\d{4}", r"(.|\n){5,9}",
]  # fmt: skip


@pytest.mark.parametrize("sampling", [{"seed": 1}, WILD, {"mirostat": 2, "seed": 2}, {"temperature": 0}])
def test_all_n_match_the_regex(engine: Lines, sampling: Request) -> None:
    requests = [ONCE | {"regex": pattern, "sampling": sampling} for pattern in LONGER]
    for pattern, answer in zip(LONGER, engine.generate_all(*requests), strict=True):
        for text in finished(answer):
            assert re.fullmatch(pattern, text, re.ASCII), (pattern, text)


def schema(**properties: Any) -> Request:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


NAME = {"type": "string", "maxLength": 12}
SCHEMAS: list[Request] = [
    schema(name=NAME, age={"type": "integer", "minimum": 3, "maximum": 99}, happy={"type": "boolean"}),
    schema(z=NAME, a={"enum": ["b", 3, None]}, m={"const": {"x": [1]}}),
    {"type": "array", "items": {"type": "integer", "minimum": -5, "maximum": 5}, "minItems": 2, "maxItems": 4},
    {"anyOf": [{"type": "null"}, schema(day={"type": "string", "format": "date"})]},
    {"$ref": "#/$defs/list", "$defs": {"list": schema(next={"anyOf": [{"type": "null"}, {"$ref": "#/$defs/list"}]})}},
    schema(a={"type": "string", "pattern": r'^[a-c"\\]{2,4}-\\.$'}, b={"type": "string", "pattern": r"^\d{3}.{2}$"}),
    {"type": "string", "pattern": "red|^blue|gr[ae]y$", "description": "anywhere in it"},
    {"type": "object", "properties": {"a": NAME, "b": {"type": "number"}}, "additionalProperties": False},
]  # fmt: skip


@pytest.mark.parametrize("as_text", [True, False])
def test_all_n_fit_the_schema(engine: Lines, as_text: bool) -> None:
    given: list[Any] = [json.dumps(one) if as_text else one for one in SCHEMAS]
    requests = [ONCE | {"max_tokens": 200, "json_schema": one} for one in given]
    n_finished = 0
    for one, answer in zip(SCHEMAS, engine.generate_all(*requests), strict=True):
        for text in finished(answer):
            n_finished += 1
            Draft202012Validator(one).validate(json.loads(text))
    assert n_finished > 4 * len(SCHEMAS)


def test_properties_come_in_the_order_of_a_schema_that_is_text(engine: Lines) -> None:
    one = schema(z={"type": "null"}, b={"type": "null"}, a={"type": "null"})
    for text in finished(engine.generate(**ONCE | {"json_schema": json.dumps(one)})):
        assert list(json.loads(text)) == ["z", "b", "a"]


# Free text with parts that obey

CALL = {"begin": "e[", "content": {"type": "json_schema", "json_schema": {"enum": [1, "]"]}}, "end": "]"}
OPEN = r'(?:e(?:\[(?:1|"(?:\](?:")?)?)?)?)?'  # the beginning of a call
TAGS: list[tuple[Request, str]] = [
    ({"type": "triggered_tags", "triggers": ["e"], "tags": [CALL]}, r'(?:[^e]|e\[(?:1|"\]")\])*'),
    ({"type": "triggered_tags", "triggers": ["e"], "tags": [CALL], "at_least_one": True, "excludes": ["a"]},
     r'e\[(?:1|"\]")\](?:[^ea]|e\[(?:1|"\]")\])*'),
    ({"type": "any_text", "excludes": ["e", "th"]}, r"(?:(?!th)[^e])*"),
    ({"type": "tag", "begin": "[", "content": {"type": "any_text"}, "end": "e"}, r"\[[^e]*e?"),
]  # fmt: skip


@pytest.mark.parametrize("sampling", [{"seed": 1}, WILD])
def test_free_text_has_parts_that_obey_again_and_again(engine: Lines, sampling: Request) -> None:
    own = {"max_tokens": 80, "sampling": sampling | {"ignore_eos": True}}
    repeated = 0
    for given, pattern in TAGS:
        for text in engine.generate(**ONCE | own | {"structural_tag": {"format": given}}).texts:
            assert re.fullmatch(f"(?:{pattern}){OPEN}", text, re.DOTALL), text
            repeated += text.count("e[") > 1
    assert repeated > 4


def test_free_text_may_end_where_its_format_does(engine: Lines) -> None:
    given = {
        "format": {"type": "triggered_tags", "triggers": ["e"], "tags": [CALL], "stop_after_first": True}
    }
    texts = finished(
        engine.generate(prompt="x", n=500, max_tokens=200, sampling=WILD, structural_tag=json.dumps(given))
    )
    assert len({text[-1:] == "]" for text in texts}) == 2
    for text in texts:
        assert re.fullmatch(r'[^e]*(?:e\[(?:1|"\]")\])?', text, re.DOTALL), text


LEGACY = {"structures": [{"begin": "e[", "schema": {"enum": [1, "]"]}, "end": "]"}], "triggers": ["e"]}


def test_each_api_takes_a_structural_tag() -> None:
    tag = {"type": "structural_tag", "format": TAGS[0][0]}
    few: Request = {"n": 8, "max_tokens": 60, "seed": 3, "stop": "."}
    prompt, chat = few | {"prompt": "Once"}, few | {"messages": HELLO}
    bodies: list[tuple[str, Request]] = [
        ("/v1/completions", prompt | {"stream": False, "structural_tag": tag}),
        ("/openai/v1/completions", prompt | {"structured_outputs": {"structural_tag": json.dumps(tag)}}),
        ("/v1/chat/completions", chat | {"response_format": tag}),
        ("/v1/chat/completions", chat | {"response_format": {"type": "structural_tag", **LEGACY}}),
    ]
    with serving() as server:
        streamed = server.events(prompt | {"structural_tag": tag})
        texts = ["".join(one.get("text", "") for one in streamed if one.get("index") == i) for i in range(8)]
        for path, body in bodies:
            status, answer = server.json("POST", path, body)
            assert status == 200, answer
            texts += [
                one["message"]["content"] if "message" in one else one["text"] for one in answer["choices"]
            ]
    assert len(texts) == 40
    assert sum("e[" in text for text in texts) > 20
    for text in texts:
        assert re.fullmatch(TAGS[0][1] + OPEN, text, re.DOTALL), text


# Over HTTP and on the command line


def test_a_response_format_is_obeyed_over_http() -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMAS[0]}}
    body = {
        "prompt": "Once",
        "n": 8,
        "max_tokens": 120,
        "stream": False,
        "seed": 3,
        "response_format": wanted,
    }
    with serving() as server:
        status, answer = server.json("POST", "/v1/completions", body)
    assert status == 200
    done = [choice["text"] for choice in answer["choices"] if choice["finish_reason"] == "stop"]
    assert done
    for text in done:
        Draft202012Validator(SCHEMAS[0]).validate(json.loads(text))


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        (["--choice", "yes", "--choice", "no"], "yes|no"),
        (["--regex", r"\d\d"], r"\d\d"),
        (["--grammar", 'root ::= "a" | "b"'], "a|b"),
        (["--json-schema", '{"const": [1]}', "--json-whitespace", "compact"], r"\[1\]"),
    ],
)
def test_the_command_line_has_every_notation(options: list[str], pattern: str) -> None:
    for text in complete("-n", "3", "--max-tokens", "20", *options).strip().split("\n\n"):
        assert re.fullmatch(r"\[\d\] (" + pattern + ")", text), text


# The end of a text


def test_a_complete_text_ends_at_once_despite_min_tokens_and_ignore_eos(engine: Lines) -> None:
    impatient = {"min_tokens": 9, "sampling": {"ignore_eos": True, "seed": 1}, "logprobs": 0}
    answer = engine.generate(**ONCE | impatient | {"choice": ["abc"]})
    assert finished(answer) == ["abc"] * 8
    assert answer.lengths == [len(ids) for ids in answer.ids]
    assert all("".join(token["text"] for token in tokens) == "abc" for tokens in answer.tokens)


def test_max_tokens_cuts_a_text_off(engine: Lines) -> None:
    answer = engine.generate(**ONCE | {"max_tokens": 3, "regex": "a{100}"})
    assert finished(answer) == []
    assert all(re.fullmatch("a+", text) for text in answer.texts)


def test_stop_strings_end_a_text_as_ever(engine: Lines) -> None:
    answer = engine.generate(**ONCE | {"regex": "[a-m]+[n-z ]+", "stop": ["n", " "]})
    assert all(re.fullmatch("[a-m]+[o-z]*", text) for text in answer.texts)


# Structure and preemption, rewind, fork, continue


STORY: Request = {"prompt": "Once", "n": 8, "max_tokens": 50, "sampling": {"seed": 5, "ignore_eos": True}}
WORDS = {"regex": r"([a-z]{1,9} ){3,60}"}


def test_requests_with_and_without_a_grammar_do_not_affect_each_other(exact: Lines) -> None:
    requests = [STORY, STORY | WORDS, STORY | {"choice": ["a", "b"]}]
    alone = [exact.generate(**request).texts for request in requests]
    together = [answer.texts for answer in exact.generate_all(*requests, *requests)]
    assert together == alone + alone
    assert len(set(alone[1])) == 8


@pytest.mark.parametrize("cache", [True, False])
def test_a_preempted_sequence_resumes_with_the_same_text_and_obeys(
    exact: Lines, bigram: Path, cache: bool
) -> None:
    request = STORY | WORDS | {"cache": cache}
    with Lines("-np", "8", "-c", "256", "-t", "1", model=bigram) as tiny:
        assert tiny.generate(**request).texts == exact.generate(**request).texts


def test_banned_strings_rewind_within_the_grammar(engine: Lines) -> None:
    pattern = r"( [a-z]+){4,9}\."
    usual = engine.generate(**ONCE | {"regex": pattern})
    banned = sorted({text[i : i + 3] for text in usual.texts for i in range(3, len(text) - 6, 7)})
    answer = engine.generate(**ONCE | {"regex": pattern, "banned_strings": banned})
    assert answer.texts != usual.texts
    for text in answer.texts:
        assert not any(phrase in text for phrase in banned)
    assert all(re.fullmatch(pattern, text) for text in finished(answer))


def test_a_fork_continues_the_grammar_from_its_place(engine: Lines) -> None:
    request = ONCE | {
        "op": "generate",
        "id": "forked",
        "n": 1,
        "regex": r"[a-z ]{40}\d{20}",
        "max_tokens": 80,
        "logprobs": 1000,  # unread lines of this size block the engine
    }
    engine.send(request)
    while (event := engine.read())["event"] != "stream":
        pass
    engine.send_amid({"op": "extend", "id": "forked", "add": 6, "fork": {"index": 0, "at": 1}})
    (answer,) = engine.answers(["forked"])
    assert answer.done["count"] == 7
    first = event["text"]
    for i, text in enumerate(finished(answer)):
        assert re.fullmatch(r"[a-z ]{40}\d{20}", text if i == 0 else first + text)


def test_a_continued_text_begins_its_grammar_anew(engine: Lines) -> None:
    engine.send(ONCE | {"op": "generate", "id": "first", "n": 1, "choice": ["red"]})
    engine.answers(["first"])
    answer = engine.generate(**{"continue": {"id": "first", "index": 0}}, n=4, choice=[" green", " blue"])
    assert set(finished(answer)) <= {" green", " blue"}


# Syntax errors are reported at once; structures that explode are stopped


WRONG = [  # beyond those of tests/support/bad_input.py: field, text, place, message
    ("grammar", "", (1, 1), "no rule root"),
    ("grammar", 'root ::= "a"\n\n  )', (3, 3), "name of a rule"),
    ("grammar", 'root ::= ("a"', (1, 10), "no closing )"),
    ("grammar", 'root ::= "a" )', (1, 14), "expected the end of the line"),
    ("grammar", "root ::= [a\n# b", (1, 10), "no closing ]"),
    ("grammar", "root ::= [z-a]", (1, 11), "range"),
    ("grammar", 'root ::= "é" [^\\x00-\\U0010FFFF]', (1, 14), "no character"),
    ("grammar", 'root ::= "\\q"', (1, 11), "after \\"),
    ("grammar", 'root ::= "\\u12"', (1, 15), "4 hexadecimal digits"),
    ("grammar", 'root ::= "\\ud800"', (1, 13), "no character"),
    ("grammar", "root ::= *", (1, 10), "nothing to repeat"),
    ("grammar", 'root ::= "a"{3,1}', (1, 13), "ends before it begins"),
    ("grammar", 'root ::= "a"{9999999999}', (1, 14), "at most 2147483647"),
    ("grammar", 'root ::= "a"{x}', (1, 14), "a number"),
    ("grammar", "root ::= <no such token>", (1, 10), "no such token"),
    ("grammar", "root ::= <[4096]>", (1, 10), "no such token"),
    ("grammar", 'root ::= "a"\nroot ::= "b"', (2, 1), "is defined already"),
    ("grammar", "root ::= " + "(" * 300, (1, 210), "more than 200 deep"),
    ("regex", "a)", (1, 2), "closes no group"),
    ("regex", "*a", (1, 1), "nothing to repeat"),
    ("regex", "a**", (1, 3), "without a group"),
    ("regex", "a++", (1, 3), "without a group"),
    ("regex", "é{2,1}", (1, 2), "ends before it begins"),
    ("regex", "{", (1, 1), "nothing to repeat"),
    ("regex", "a^b", (1, 2), "only at the beginning"),
    ("regex", "(a$)", (1, 3), "only at the beginning"),
    ("regex", "x\ny[b-a]", (2, 3), "no range"),
    ("regex", "[a", (1, 1), "no closing ]"),
    ("regex", r"[^\s\S]", (1, 1), "no character"),
    ("regex", r"(a)\1", (1, 4), "no back-references"),
    ("regex", "ab\\", (1, 3), "after \\"),
    ("regex", r"\u12", (1, 5), "4 hexadecimal digits"),
    ("regex", "(?P<name>a)", (1, 1), "no names"),
]


@each_row(("field", "text", "where", "what"), WRONG)
def test_a_syntax_error_has_line_and_column(
    engine: Lines, field: str, text: str, where: tuple[int, int], what: str
) -> None:
    error = engine.generate(prompt="x", **{field: text}).events[-1]
    assert error["message"].startswith(f"{field}: line {where[0]}, column {where[1]}: "), error
    assert what in error["message"]
    assert (error["code"], error["param"]) == ("invalid_request", field)


def nested_types(depth: int) -> Request:
    one: Request = {"type": "string"}
    for _ in range(depth):
        one = {"type": ["object", "object"], "properties": {"a": one}}
    return one


SLOW_SCHEMA: Request = {"type": "string", "pattern": "[ab]*a[ab]{22}$"}  # takes a second to convert
EXPLODING: list[tuple[Request, str]] = [
    ({"regex": "((a{0,1000}){0,1000}){0,1000}"}, "too ambiguous"),
    ({"regex": "x((a?){200}){200}"}, "too ambiguous"),  # ambiguous only after the x
    ({"grammar": 'root ::= "x"' + ' (("a"? "b"?){150}){150}'}, "too ambiguous"),
    ({"grammar": "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1} r{i + 1}\n" for i in range(40)) + 'r40 ::= "a"?'},
     "too ambiguous"),
    ({"grammar": "root ::= " + '("a" | ' * 150 + '"b"' + ")*" * 150}, ""),
    ({"regex": "(" * 150 + "a" + "*)" * 150 + "*"}, ""),
    ({"regex": "(a|aa|aaa|a*)*"}, ""),
    ({"regex": "a{1,2000000000}"}, ""),
    ({"regex": "(.{1,100000}\\n){1,100000}"}, ""),
    ({"regex": "([a-z ]{1,99} ){1,99}"}, ""),
    ({"grammar": 'root ::= "a" root root | ""'}, ""),
    ({"choice": ["a" * i for i in range(1, 350)]}, ""),
    ({"json_schema": json.dumps(nested_types(15))}, ""),
    ({"json_schema": {"properties": {f"p{i}": {} for i in range(3000)}}}, ""),
    ({"json_schema": {"allOf": [{"$ref": "#/a"}], "a": {"$ref": "#/a"}}}, "leads back to itself"),
    ({"json_schema": {"allOf": [{"anyOf": [{"pattern": f"{i}{k}"} for k in range(9)]} for i in range(9)]}}, "too large"),
    ({"json_schema": SLOW_SCHEMA}, "too large"),
    ({"json_schema": "[" * 60_000}, "128 levels"),
    ({"choice": ["x" * 1000] * 70}, "70211 bytes"),
]  # fmt: skip


def test_a_structure_that_explodes_is_stopped_and_delays_no_other_client(exact: Lines) -> None:
    """The story is sent last, and begins while the slow schema is still being converted."""
    alone = exact.generate(**STORY).texts
    exploding = [STORY | {"client": "a"} | request for request, _ in EXPLODING]
    *answers, story = exact.generate_all(*exploding, STORY | {"client": "b"})
    slow = answers[[request.get("json_schema") for request, _ in EXPLODING].index(SLOW_SCHEMA)]
    assert story.named("stream")[0]["line"] < slow.events[-1]["line"]
    for (request, message), answer in zip(EXPLODING, answers, strict=True):
        if message:
            error = answer.events[-1]
            assert (error["event"], error["code"]) == ("error", "invalid_request"), request
            assert message in error["message"]
        else:
            finished(answer)
    assert story.texts == alone


def test_a_forked_worker_that_makes_no_progress_is_followed_by_another(chat_model: Path) -> None:
    slow = tool("t", properties={f"p{i}": {} for i in range(3000)})  # the template prints them for a while
    with Lines("-t", "1", "-c", "16384", model=chat_model) as engine:
        engine.answers(engine.send({"op": "chat", "messages": HELLO, "max_tokens": 1}))
        ids = engine.send({"op": "chat", "messages": HELLO, "tools": [slow], "max_tokens": 1})
        first = new_child(engine.pid, set())
        os.kill(
            first, signal.SIGSTOP
        )  # like a child that waits for a lock which another thread held at the fork
        new_child(engine.pid, {first})
        (answer,) = engine.answers(ids)
        assert "exceeds the available context" in answer.events[-1]["message"]  # the second one's prompt
        assert not Path(f"/proc/{first}").exists()


def new_child(parent: int, known: set[int]) -> int:
    """Waits for the next process that a thread of `parent` forks."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            for child in set(map(int, children.read_text().split())) - known:
                return child
    raise AssertionError("no other process was forked")


def test_a_text_that_no_token_can_continue_is_an_error(engine: Lines) -> None:
    banned_by: list[Request] = [
        {"banned_strings": ["az", "bz"]},
        {"sampling": {"logit_bias": [["z", False]]}},
        {"sampling": {"logit_bias": [["z", False]], "mirostat": 2}},
        {"sampling": {"logit_bias": [["z", False]], "temperature": 0}},
    ]
    for banned in banned_by:
        error = engine.generate(**ONCE | banned | {"regex": "[ab]z"}).events[-1]
        assert "no token" in error["message"], banned
    assert engine.generate(**ONCE).done


def test_only_one_structure_may_be_given(engine: Lines) -> None:
    error = engine.generate(prompt="x", grammar='root ::= "a"', choice=["a"]).events[-1]
    assert error["message"] == "only one of grammar and choice may be given"
