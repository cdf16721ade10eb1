"""Ollama: /api/generate and /api/chat. Pure.

Lines of JSON. With n > 1 a line has `index`. `done` is true only in the last line of all sequences, since
clients stop reading there; a line with `done_reason` ends its sequence. A client that joins all lines to one
text gets only the lines of the first; its last line has all texts as `choices`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal, NotRequired, TypeAlias

import orjson
from typing_extensions import TypedDict

from llama_srb.dialects.common.fields import switch, text_of
from llama_srb.dialects.common.infill import can_infill, infill_prompt
from llama_srb.dialects.common.reply import (
    Json,
    Reply,
    ServerInfo,
    Text,
    TokenLogprob,
    arguments_of,
    token_json,
)
from llama_srb.dialects.common.response_types import (
    NO_SIZE,
    Count,
    Finish,
    Frames,
    PromptSize,
    Told,
    as_json,
    finish_of,
)
from llama_srb.dialects.ollama.body import message_of, request_of, think_of
from llama_srb.engine.events import Done, Error, Event, Stop, Stream
from llama_srb.request.fields import limit_of
from llama_srb.request.values import RequestError, wrong

# ----------------------------------------------------------------------------------------------------
# Answers
# ----------------------------------------------------------------------------------------------------


DoneReason: TypeAlias = Finish | Literal["load", "unload"]


class OllamaError(TypedDict):
    error: str


class CalledFunction(TypedDict):
    name: str
    arguments: dict[str, Any]


class OllamaCall(TypedDict):
    function: CalledFunction


class OllamaMessage(TypedDict):
    role: Literal["assistant"]
    content: str
    thinking: NotRequired[str]
    tool_calls: NotRequired[list[OllamaCall]]


class OllamaText(TypedDict):
    """A text, or a piece of one, of /api/generate."""

    response: str
    thinking: NotRequired[str]


class OllamaTurn(TypedDict):
    """A text, or a piece of one, of /api/chat."""

    message: OllamaMessage


class OllamaHead(TypedDict):
    model: str
    created_at: str


class Logprobs(TypedDict, total=False):
    logprobs: list[TokenLogprob]


class Durations(Told):
    """Counts of tokens, over all sequences; durations in nanoseconds."""

    total_duration: Count
    load_duration: Count
    prompt_eval_count: Count
    prompt_eval_duration: Count
    eval_count: Count
    eval_duration: Count


class OllamaPiece(OllamaHead, Logprobs):
    """index: only with n > 1. done_reason: the sequence has ended."""

    index: NotRequired[Count]
    done: Literal[False]
    done_reason: NotRequired[Finish]


class GeneratedPiece(OllamaPiece, OllamaText):
    pass


class TurnPiece(OllamaPiece, OllamaTurn):
    pass


class OllamaChoice(Logprobs):
    index: Count
    done_reason: Finish


class GeneratedChoice(OllamaChoice, OllamaText):
    pass


class TurnChoice(OllamaChoice, OllamaTurn):
    pass


class OllamaEnd(OllamaHead, Logprobs, Durations):
    """The last line. index: only with n > 1. choices: all texts, for clients that read only the first."""

    index: NotRequired[Count]
    done: Literal[True]
    done_reason: Finish


class GeneratedEnd(OllamaEnd, OllamaText):
    choices: NotRequired[list[GeneratedChoice]]


class TurnEnd(OllamaEnd, OllamaTurn):
    choices: NotRequired[list[TurnChoice]]


class OllamaAnswer(OllamaHead, Logprobs, Durations):
    done: Literal[True]
    done_reason: DoneReason


class Generated(OllamaAnswer, OllamaText):
    """The first text; with n > 1 all of them are in choices."""

    choices: NotRequired[list[GeneratedChoice]]


class ChatAnswer(OllamaAnswer, OllamaTurn):
    """The first answer; with n > 1 all of them are in choices."""

    choices: NotRequired[list[TurnChoice]]


TEXT_LINES = Frames(GeneratedPiece | GeneratedEnd | OllamaError, "Lines of JSON, each of one sequence.")
TURN_LINES = Frames(TurnPiece | TurnEnd | OllamaError, "Lines of JSON, each of one sequence.")

JOINING = "ollama-python/"  # the beginning of the User-Agent of a client that joins all lines of a stream

# ----------------------------------------------------------------------------------------------------
# Answers from events
# ----------------------------------------------------------------------------------------------------


def error_body(
    status: int,
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
    size: PromptSize = NO_SIZE,
) -> OllamaError:
    """An error as Ollama writes it."""
    return {"error": message}


class Lines(Reply):
    """The answer of /api/generate."""

    content_type = "application/x-ndjson"
    pause = b""  # a line must be JSON
    loading = ""  # the done_reason of a request without a prompt: load or unload

    def __init__(self, body: Mapping[str, Any], about: ServerInfo, beginning: Json) -> None:
        stream = switch(body, "stream", True)
        request = request_of(body, about, beginning, stream)
        self._is_first_only = stream and request.n > 1 and about.agent.startswith(JOINING)
        super().__init__(request, about, stream=stream, keeps_texts=self._is_first_only)
        self.limit = (
            limit_of(body.get("options") or {}, "num_ctx") if switch(body, "truncate", True) else None
        )
        self._head: OllamaHead = {"model": about.name, "created_at": time_of(about.now)}

    def render(self, events: Iterable[Event]) -> Iterator[bytes]:
        """Lines for these events; the one with `done` has no text, since LiteLLM reads none there.

        SillyTavern reads one object at a time, so with n = 1 a write has one line.
        """
        lines = [data for event in events for data in self.messages(event)]
        pieces = [line for line in lines if not line.get("done")]
        if len(pieces) > 1 and all("response" in line for line in pieces) and len(self.texts) == 1:
            pieces = [_merged(pieces)]
        ends = [line for line in lines if line.get("done")]
        return iter([b"".join(map(self.frame, part)) for part in (pieces, ends) if part])

    def text_fields(self, text: str, thought: str, calls: list[OllamaCall]) -> OllamaText | OllamaTurn:
        """The fields of a text, or of a piece of one."""
        return {"response": text, "thinking": thought} if thought else {"response": text}

    def piece(self, event: Stream) -> Iterator[Json]:
        if self._is_first_only and event.index:
            return
        if event.text or event.reasoning or event.tokens:
            fields = self.text_fields(event.text, event.reasoning, [])
            yield self._line(event.index, fields) | self._logprobs(event.tokens) | {"done": False}

    def end(self, index: int, stop: Stop) -> Iterator[Json]:
        if self._is_first_only:
            yield from self._all_ended()
            return
        if calls := _calls(self.texts[index]):  # Ollama's clients get a call as one piece
            yield self._line(index, self.text_fields("", "", calls)) | {"done": False}
        yield self._line(index, self.text_fields("", "", [])) | self._end(stop)

    def _all_ended(self) -> Iterator[Json]:
        """The end of a stream of the first text alone: one line, when all sequences have ended."""
        first = self.texts[0]
        if self.done is None or first.stop is None:
            return
        if calls := _calls(first):
            yield self._line(0, self.text_fields("", "", calls)) | {"done": False}
        yield self._line(0, self.text_fields("", "", [])) | self._end(first.stop) | self._choices()

    def failure(self, error: Error) -> OllamaError:
        return {"error": error.message}

    def frame(self, data: Mapping[str, Any]) -> bytes:
        return orjson.dumps(data, option=orjson.OPT_APPEND_NEWLINE)

    def body(self) -> Any:
        """The first text in Ollama's form; with n > 1 all texts are in choices."""
        first = self.texts[0].stop
        assert first is not None
        loaded = {"done_reason": self.loading} if self.loading else {}
        many = self._choices() if len(self.texts) > 1 else {}
        return self._head | self._text(self.ordered[0]) | self._end(first) | loaded | many

    def _text(self, index: int) -> Json:
        """A whole text and why it ended."""
        one = self.texts[index]
        return {
            **self.text_fields(one.text, "".join(one.thoughts), _calls(one)),
            **self._logprobs(one.tokens),
            "done_reason": finish_of(one.stop),
        }

    def _choices(self) -> Json:
        """All texts, best first if they are ranked."""
        return {"choices": [{"index": i} | self._text(index) for i, index in enumerate(self.ordered)]}

    def _line(self, index: int, fields: OllamaText | OllamaTurn) -> Json:
        named = {"index": index} if len(self.texts) > 1 and not self._is_first_only else {}
        return {**self._head, **fields, **named}

    def _logprobs(self, tokens: Iterable[Mapping[str, Any]]) -> Logprobs:
        made = [as_json(token_json(token)) for token in tokens]
        return {"logprobs": made} if made else {}

    def _end(self, stop: Stop) -> Json:
        if self.done is None:
            return {"done": False, "done_reason": finish_of(stop)}
        return {"done": True, "done_reason": finish_of(stop), **self._durations(self.done)}

    def _durations(self, done: Done) -> Durations:
        ns = {name: round(1e6 * value) for name, value in done.timings.items() if name.endswith("_ms")}
        return {
            "total_duration": sum(ns.values()),
            "load_duration": ns.get("queued_ms", 0),
            "prompt_eval_count": done.prompt_tokens,
            "prompt_eval_duration": ns.get("prompt_ms", 0),
            "eval_count": done.completion_tokens,
            "eval_duration": ns.get("decode_ms", 0),
            **self.told,
        }


class Messages(Lines):
    """The answer of /api/chat."""

    def text_fields(self, text: str, thought: str, calls: list[OllamaCall]) -> OllamaTurn:
        message: OllamaMessage = {"role": "assistant", "content": text}
        if thought:
            message["thinking"] = thought
        if calls:
            message["tool_calls"] = calls
        return {"message": message}


def _merged(lines: list[Mapping[str, Any]]) -> Json:
    """Lines of one text as one line."""
    whole: Json = {}
    for line in lines:
        for name in ("response", "thinking", "logprobs"):
            if name in line:
                whole[name] = whole[name] + line[name] if name in whole else line[name]
    return {**lines[-1], **whole}


def _calls(text: Text) -> list[OllamaCall]:
    """The tool calls of a text, with their arguments as objects."""
    return [
        {"function": {"name": call["name"], "arguments": arguments_of(call["arguments"])}}
        for _, call in sorted(text.calls.items())
    ]


def time_of(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def generate(body: Mapping[str, Any], about: ServerInfo) -> Reply:
    """/api/generate."""
    prompt, suffix = text_of(body, "prompt", ""), text_of(body, "suffix", "")
    if not prompt and not suffix:
        return _loaded(Lines, body, about)
    if suffix:
        if not can_infill(about.infill):
            raise RequestError(f"{about.name} does not support insert", param="suffix")
        prompt = infill_prompt(about.infill, prompt, suffix)
    elif about.chat_template and not switch(body, "raw", False):
        system = text_of(body, "system", "")
        messages = [{"role": "system", "content": system}] * bool(system) + [
            {"role": "user", "content": prompt}
        ]
        return Lines(body, about, {"messages": messages} | think_of(body))
    return Lines(body, about, {"prompt": prompt})


def chat(body: Mapping[str, Any], about: ServerInfo) -> Reply:
    """/api/chat."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise wrong("messages", messages, "a list of messages")
    if not messages:
        return _loaded(Messages, body, about)
    return Messages(body, about, {"messages": list(map(message_of, messages))} | think_of(body))


def _loaded(kind: type[Lines], body: Mapping[str, Any], about: ServerInfo) -> Lines:
    """Answers a request without a prompt, which in Ollama loads or unloads the model.

    Here the model is loaded as long as the server runs.
    """
    named = {name: body[name] for name in ("model", "name") if name in body}
    free = replace(about, defaults=about.defaults.of_the_dialect())
    reply = kind({**named, "stream": False}, free, {"prompt": "", "max_tokens": 0})
    reply.loading = "unload" if body.get("keep_alive") in (0, "0", "0s") else "load"
    return reply


REPLIES = {"/api/generate": generate, "/api/chat": chat}
