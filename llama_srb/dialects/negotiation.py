"""Chooses the form of the answer to a completion request: OpenAI's, or the event stream. Pure.

Six rules stand in one table, which docs/api.md shows. The first rule that applies decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

AnswerForm: TypeAlias = Literal["events", "openai"]

HEADER = "X-Form-Rule"  # answer header with the name of the rule, if it is a guess, as the last three are
OPENAI_PREFIX = "/openai/v1/"

CLIENT_MARKS = {
    "api_type": "SillyTavern",
    "api_server": "SillyTavern",
    "truncation_length": "SillyTavern, clients of text-generation-webui",
    "include_reasoning": "SillyTavern, clients of OpenRouter",
    "legacy_api": "older SillyTavern",
    "user": "clients of OpenAI",
}
"""Fields without effect on the event stream, and the clients that send them. None may be a field of ours."""

GENERIC_AGENT = "node-fetch"  # the User-Agent of node-fetch 3, which SillyTavern uses
GENERIC_ALWAYS = frozenset({"max_tokens", "temperature", "top_p", "frequency_penalty", "presence_penalty"})
GENERIC_FIELDS = frozenset({
    "model", "prompt", "stream", "temperature", "top_p", "frequency_penalty", "presence_penalty", "stop",
    "seed", "logit_bias", "logprobs", "max_tokens", "n", "best_of",
})  # fmt: skip
"""All fields that SillyTavern 1.19.0 sends to a server of the type Generic (its constant OPENAI_KEYS)."""


@dataclass(frozen=True, slots=True)
class NegotiationInput:
    """The parts of a request that the rules read. given: its fields that are not null."""

    path: str
    given: frozenset[str]
    accept: str
    agent: str
    default: AnswerForm


@dataclass(frozen=True, slots=True)
class Rule:
    """One row. form: the table's text. decide: returns the form, or None if the rule does not apply.

    is_guess: the client has not asked for the form, so the answer names the rule.
    """

    name: str
    when: str
    form: str
    decide: Callable[[NegotiationInput], AnswerForm | None]
    is_guess: bool = False


def _by_path(asked: NegotiationInput) -> AnswerForm | None:
    if asked.path == "/v1/events":
        return "events"
    return "openai" if asked.path.startswith(OPENAI_PREFIX) else None


def _by_body(asked: NegotiationInput) -> AnswerForm | None:
    return "openai" if asked.given & {"stream", "model"} else None


def _by_accept(asked: NegotiationInput) -> AnswerForm | None:
    named = accepted(asked.accept)
    if "application/json" in named:
        return "openai"
    return "events" if "text/event-stream" in named else None


def _by_marks(asked: NegotiationInput) -> AnswerForm | None:
    return "openai" if asked.given & CLIENT_MARKS.keys() else None


def _as_generic(asked: NegotiationInput) -> AnswerForm | None:
    is_generic = asked.agent == GENERIC_AGENT and GENERIC_ALWAYS <= asked.given <= GENERIC_FIELDS
    return "openai" if is_generic else None


def _by_default(asked: NegotiationInput) -> AnswerForm:
    return asked.default


def accepted(header: str) -> set[str]:
    """The media types that an Accept header names, except those with q=0."""
    return {kind for kind, quality in map(_media_range, header.split(",")) if quality > 0}


def _media_range(text: str) -> tuple[str, float]:
    """A media type and its q, which is 1 if it is absent or unreadable."""
    kind, *parameters = (part.strip().lower() for part in text.split(";"))
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            return kind, _number(value.strip())
    return kind, 1.0


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 1.0


# fmt: off
RULES = (
    Rule("path", "its path is `/v1/events`, or begins with `/openai/v1/`", "events; OpenAI's", _by_path),
    Rule("body", "`stream` (true or false) or `model` is in the body", "OpenAI's", _by_body),
    Rule("accept", "`Accept` names `application/json` with q > 0, else `text/event-stream`; `*/*` is no name",
        "OpenAI's; events", _by_accept),
    Rule("client-marks",
        "one of these is in the body: " + ", ".join(f"`{name}`" for name in CLIENT_MARKS),
        "OpenAI's", _by_marks, is_guess=True),
    Rule("generic",
        f"`User-Agent` is `{GENERIC_AGENT}`, and the body has all of "
        + ", ".join(f"`{name}`" for name in sorted(GENERIC_ALWAYS)) + ", and beyond them only "
        + ", ".join(f"`{name}`" for name in sorted(GENERIC_FIELDS - GENERIC_ALWAYS - {"model", "stream"})),
        "OpenAI's", _as_generic, is_guess=True),
    Rule("default", "none of these holds", "that of `--default-form`: events", _by_default, is_guess=True),
)
# fmt: on


def negotiate(
    path: str, body: Mapping[str, Any], *, accept: str = "", agent: str = "", default: AnswerForm
) -> tuple[AnswerForm, Rule]:
    """The form of the answer, and the rule that decided.

    accept and agent are the headers Accept and User-Agent; default is --default-form.
    """
    given = frozenset(name for name, value in body.items() if value is not None)
    asked = NegotiationInput(path, given, accept, agent, default)
    for rule in RULES:
        form = rule.decide(asked)
        if form is not None:
            return form, rule
    raise AssertionError("the last rule always decides")
