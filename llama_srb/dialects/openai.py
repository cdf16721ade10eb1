"""OpenAI's completions: chunks that end in `data: [DONE]`, or one JSON body. Pure.

One choice a frame, its text always a string: clients append it unseen. usage counts all choices. Why a
sequence ended is said in OpenAI's words: what was cancelled is "length", since its text is not finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, ClassVar, TypeAlias

import orjson

from llama_srb.dialects.common.reply import OneText, Text, Transcript, as_json
from llama_srb.engine.events import Again, Done, Error, Event, Extend, Prompt, Queued, Start, Stop, Stream
from llama_srb.request.fields import CompletionRequest, Limit, limit_of
from llama_srb.request.parse import Defaults, request_from
from llama_srb.request.values import MAX_PROMPTS, RequestError, wrong

N, MAX_TOKENS = 1, 16  # OpenAI's defaults
READ_HERE = frozenset({"stream", "stream_options", "model", "user", "suffix"})
END = b"data: [DONE]\n\n"
NO_INFILL = "suffix is not used: the model has no tokens for what stands between two texts"
INFILL = ("prefix", "suffix", "middle")  # tokens that it takes
SCORES = ("logprob", "mean_logprob", "length", "distinct_2")  # of a choice, with best_of or rank_by
UNFINISHED = "length"  # finish_reason of all that did not end by itself: OpenAI's clients know no "cancelled"

KIND, PREFIX = "text_completion", "cmpl-"  # of answers and of their ids

REPEATED = (Prompt, Extend, Again)  # events after which choices are told the prompt, if it is to be echoed

Lists: TypeAlias = dict[str, list[Any]]
Fields: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Form:
    """How the client wants its answer, and of which model; None is "whichever there is".

    limit: where text-generation-webui's clients want a prompt that is too long to be cut; else it is refused.
    """

    stream: bool = False
    include_usage: bool = False
    model: str | None = None
    limit: Limit | None = None


def parse(
    body: Mapping[str, Any], defaults: Defaults, infill: Mapping[str, str] = {}
) -> tuple[CompletionRequest, Form]:
    """A body with one prompt as a request and a form; RequestError names what is wrong.

    infill: the model's tokens for that, if it has any.
    """
    form = form_of(body)
    if body.get("messages") is not None:
        raise RequestError("messages belongs to /v1/chat/completions or the event stream", param="messages")
    ours = replace(defaults, n=N, max_tokens=MAX_TOKENS, whole=not form.stream)
    body = _with_suffix(body, infill)
    request = request_from(body, ours, known=READ_HERE)
    if body.get("suffix"):
        request = request.model_copy(update={"warnings": (*request.warnings, NO_INFILL)})
    return request, form


def prompts(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A body a prompt: OpenAI's clients may send a list of them."""
    many = body.get("prompt")
    if not isinstance(many, list) or not many or not isinstance(many[0], str | list):
        return [body]
    if len(many) > MAX_PROMPTS:
        raise RequestError(f"prompt has {len(many)} prompts; it may have {MAX_PROMPTS}", param="prompt")
    return [{**body, "prompt": one} for one in many]


def _with_suffix(body: Mapping[str, Any], infill: Mapping[str, str]) -> Mapping[str, Any]:
    """What stands between prompt and suffix is asked for by the model's own tokens."""
    prompt, suffix = body.get("prompt"), body.get("suffix")
    if not isinstance(suffix, str | None):
        raise wrong("suffix", suffix, "a text")
    if not suffix or not can_infill(infill) or not isinstance(prompt, str):
        return body
    return {**body, "prompt": infill_prompt(infill, prompt, suffix), "suffix": None}


def can_infill(tokens: Mapping[str, str]) -> bool:
    """Whether a model with these tokens can say what stands between two texts."""
    return all(tokens.get(name) for name in INFILL)


def infill_prompt(tokens: Mapping[str, str], prefix: str, suffix: str) -> str:
    """The prompt for what stands between two texts."""
    return tokens["prefix"] + prefix + tokens["suffix"] + suffix + tokens["middle"]


def form_of(body: Mapping[str, Any]) -> Form:
    model, options = body.get("model"), body.get("stream_options")
    if model is not None and not isinstance(model, str):
        raise wrong("model", model, "a text")
    if options is not None and not isinstance(options, dict):
        raise wrong("stream_options", options, "an object")
    include_usage = _switch(options or {}, "include_usage", "stream_options.include_usage")
    limit = limit_of(body, "truncation_length")
    return Form(_switch(body, "stream", "stream"), include_usage, model, limit if limit.tokens else None)


def _switch(fields: Mapping[str, Any], name: str, param: str) -> bool:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise wrong(param, value, "true or false")
    return bool(value)


def error_body(message: str, *, kind: str, param: str | None, code: str | None) -> Fields:
    """An error in the form that OpenAI's clients read."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


class _Place:
    """Where tokens stand in a text that comes in pieces, in characters.

    A piece of a character (its token's text is U+FFFD) stands where the character does, and what follows is
    looked for behind it.
    """

    def __init__(self, offset: int = 0) -> None:
        self._offset = offset  # of _text
        self._text = ""  # what no token has claimed yet

    def of(self, text: str, tokens: Iterable[str]) -> list[int]:
        """Offsets of these tokens, when this text has come since the last call."""
        self._text += text
        offsets, at, missed = [], 0, 0
        for token in tokens:
            found = self._text.find(token, at, at + missed + len(token))
            start = at if found < 0 else found
            offsets.append(self._offset + start)
            at, missed = (at, missed + len(token)) if found < 0 else (found + len(token), 0)
        self._offset, self._text = self._offset + at, self._text[at:]
        return offsets

    def skip(self) -> int:
        """The end of the text so far, where the next token stands."""
        self._offset, self._text = self._offset + len(self._text), ""
        return self._offset


def _lists(tokens: Iterable[Mapping[str, Any]], offsets: list[int]) -> Lists:
    """Tokens as OpenAI's four parallel lists; nothing predicts the first token of a prompt: null."""
    made: Lists = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": offsets}
    for token in tokens:
        known = token["logprob"] is not None
        made["tokens"].append(token["text"])
        made["token_logprobs"].append(token["logprob"])
        made["top_logprobs"].append(as_json(_by_text(token.get("top", ()))) if known else None)
    return made


def _by_text(others: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Most probable first; of tokens that read alike (pieces of characters) the first counts."""
    made: dict[str, float] = {}
    for other in others:
        made.setdefault(other["text"], other["logprob"])
    return made


@dataclass(frozen=True, slots=True)
class _Piece:
    """What one event adds to one choice."""

    index: int
    text: str
    logprobs: Lists | None = None
    stop: Stop | None = None

    def json(self) -> Fields:
        return _choice(self.index, self.text, self.logprobs, self.stop)


class _Pieces:
    """Events as what they add to choices, first to first + n - 1: chunks write the pieces one by one, a body
    adds them up.

    Choices that an extend adds begin with the prompt, too, as far as it has come by then.
    """

    def __init__(self, n: int, first: int = 0) -> None:
        self._first, self._n = first, n
        self._prompt = _Place()
        self._echoed: list[tuple[str, Lists | None]] = []  # what every choice begins with
        self._places: dict[int, _Place] = {}  # only with logprobs

    def of(self, event: Event) -> Iterator[_Piece]:
        match event:
            case Stream():
                yield _Piece(event.index, event.text, self._logprobs(event))
            case Prompt():
                offsets = self._prompt.of(event.text, _texts(event.tokens))
                self._echoed.append((event.text, _lists(event.tokens, offsets) if event.tokens else None))
                yield from (
                    _Piece(index, *self._echoed[-1]) for index in range(self._first, self._first + self._n)
                )
            case Extend():
                self._n = event.count
                new = range(event.first, event.count)
                yield from (_Piece(index, *echoed) for echoed in self._echoed for index in new)
            case Again():
                self._places.pop(event.index, None)
                yield from (_Piece(event.index, *echoed) for echoed in self._echoed)
            case Stop():
                yield _Piece(event.index, "", None, event)

    def _logprobs(self, event: Stream) -> Lists | None:
        if event.index not in self._places:
            self._places[event.index] = _Place(self._prompt.skip())
        offsets = self._places[event.index].of(event.text, _texts(event.tokens))
        return _lists(event.tokens, offsets) if event.tokens else None


def _texts(tokens: Iterable[Mapping[str, Any]]) -> list[str]:
    return [token["text"] for token in tokens]


def usage_of(done: Done) -> Fields:
    return {
        "prompt_tokens": done.prompt_tokens,
        "completion_tokens": done.completion_tokens,
        "total_tokens": done.prompt_tokens + done.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": done.cached_tokens},
    }


def _choice(index: int, text: str, logprobs: object, stop: Stop | None) -> Fields:
    choice = {"text": text, "index": index, "logprobs": logprobs, "finish_reason": None}
    if stop is None:
        return choice
    choice["finish_reason"] = "stop" if stop.finish_reason == "stop" else UNFINISHED
    return choice | marks_of(stop)


def marks_of(stop: Stop) -> Fields:
    """What ranking and dedupe say of a choice."""
    marks: Fields = {}
    if stop.mean_logprob is not None:
        marks["scores"] = {name: getattr(stop, name) for name in SCORES}
    if stop.duplicate_of is not None:
        marks["duplicate_of"] = stop.duplicate_of
    return marks


def _renumbered(stop: Stop | None, places: Mapping[int, int]) -> Stop | None:
    """A stop event whose duplicate_of is a place in the answer."""
    if stop is None or stop.duplicate_of is None:
        return stop
    return replace(stop, duplicate_of=places[stop.duplicate_of])


class Frames:
    """Events as frames of one id that end in [DONE], for one request; created is in seconds since 1970.

    A dialect writes `_pieces_of`, the frames of what an event adds to choices, and says what its answers are.
    """

    kind: ClassVar[str]
    prefix: ClassVar[str]  # of the id

    def __init__(self, request: CompletionRequest, form: Form, *, model: str, created: int) -> None:
        self._warnings = request.warnings
        self._form = form
        self._about = {"object": self.kind, "created": created, "model": model}
        self._head = b""  # made with the id of the first event; frames begin with it
        self._tail = b',"usage":null}\n\n' if form.include_usage else b"}\n\n"

    def render(self, events: list[Event]) -> bytes:
        """Frames for these events, which follow those of the last call."""
        return b"".join(map(self._frames, events))

    def _pieces_of(self, event: Event) -> bytes:
        raise NotImplementedError

    def _frames(self, event: Event) -> bytes:
        match event:
            case Queued():
                return b": queued at position %d\n\n" % event.position
            case Start():
                return self._begin(event)
            case Done():
                return self._end(event)
            case Error():
                kind = "invalid_request_error" if event.code == "invalid_request" else "server_error"
                error = error_body(event.message, kind=kind, param=event.param, code=event.code)
                return b"data: %b\n\n" % orjson.dumps(error)
        return self._pieces_of(event)

    def _name(self, id: str) -> None:
        self._head = b"data: " + orjson.dumps({"id": self.prefix + id, **self._about})[:-1]

    def _begin(self, start: Start) -> bytes:
        self._name(start.id)
        return self._warned([])

    def _warned(self, choices: list[Fields]) -> bytes:
        return self._framed({"choices": choices, "warnings": self._warnings}) if self._warnings else b""

    def _end(self, done: Done) -> bytes:
        last: Fields = {"choices": []}
        last |= {"ranking": done.ranking} if done.ranking else {}
        last |= {"usage": usage_of(done)} if self._form.include_usage else {}
        return (self._framed(last) if len(last) > 1 else b"") + END

    def _framed(self, fields: Fields) -> bytes:
        tail = b"}\n\n" if "usage" in fields else self._tail
        return b"%b,%b%b" % (self._head, orjson.dumps(fields)[1:-1], tail)


class CompletionBody(Transcript[OneText]):
    """Events folded into one JSON body, for one request; created is in seconds since 1970.

    A dialect writes `choice`, what one of them looks like, and says what its answers are.
    """

    kind: ClassVar[str]
    prefix: ClassVar[str]

    def __init__(
        self, request: CompletionRequest, new: Callable[[], OneText], *, model: str, created: int
    ) -> None:
        super().__init__(request.n, new)
        self._warnings = {"warnings": request.warnings} if request.warnings else {}
        self._about = {"object": self.kind, "created": created, "model": model}
        self._wants_logprobs = request.logprobs is not None

    def choice(self, index: int, one: OneText, stop: Stop | None) -> Fields:
        """One of them; its stop event has places of the answer."""
        raise NotImplementedError

    def fields(self) -> Fields:
        """The body; all events must have been taken."""
        assert self.done is not None
        places = {number: i for i, number in enumerate(self.ordered)}
        choices = [
            self.choice(i, self.texts[number], _renumbered(self.texts[number].stop, places))
            for number, i in places.items()
        ]
        about = {"id": self.prefix + self.done.id, **self._about}
        return about | {"choices": choices, "usage": usage_of(self.done)} | self._warnings

    def json(self) -> bytes:
        """The same as JSON."""
        return orjson.dumps(self.fields())


class Chunks(Frames):
    """Events as chunks."""

    kind, prefix = KIND, PREFIX

    def __init__(
        self, request: CompletionRequest, form: Form, *, model: str, created: int, first: int = 0
    ) -> None:
        super().__init__(request, form, model=model, created=created)
        self._pieces = _Pieces(request.n, first)
        self._plain = request.logprobs is None

    def _frames(self, event: Event) -> bytes:
        if self._plain and isinstance(event, Stream):
            # Nearly all frames are this one, so it is put together by hand.
            text = orjson.dumps(event.text)
            return b'%b,"choices":[{"text":%b,"index":%d,"logprobs":null,"finish_reason":null}]%b' % (
                self._head, text, event.index, self._tail,
            )  # fmt: skip
        return super()._frames(event)

    def frames(self, events: list[Event]) -> bytes | Iterator[bytes]:
        """The same as render(); what every choice repeats comes one by one, and only when it is wanted."""
        repeats = any(isinstance(event, REPEATED) for event in events)
        return self.each(events) if repeats else self.render(events)

    def each(self, events: list[Event]) -> Iterator[bytes]:
        """Frames by events, of what is repeated by choices."""
        for event in events:
            if isinstance(event, REPEATED):
                yield from (self._framed({"choices": [piece.json()]}) for piece in self._pieces.of(event))
            else:
                yield self._frames(event)

    def _begin(self, start: Start) -> bytes:
        self._name(start.id)
        return self._warned([_choice(0, "", None, None)])

    def _pieces_of(self, event: Event) -> bytes:
        return b"".join(self._framed({"choices": [piece.json()]}) for piece in self._pieces.of(event))


@dataclass(slots=True)
class _Text(Text):
    """A text in pieces that may begin with the prompt."""

    logprobs: Lists = field(default_factory=lambda: _lists((), []))

    def append(self, piece: _Piece) -> None:
        self.pieces.append(piece.text)
        for name, values in (piece.logprobs or {}).items():
            self.logprobs[name] += values


class Body(CompletionBody[_Text]):
    """Events folded into one body."""

    kind, prefix = KIND, PREFIX

    def __init__(self, request: CompletionRequest, *, model: str, created: int) -> None:
        super().__init__(request, _Text, model=model, created=created)
        self._pieces = _Pieces(request.n)

    def _add(self, event: Stream) -> None:
        pass  # as all that adds to a text, by its pieces

    def _take(self, event: Event) -> None:
        super()._take(event)
        for piece in self._pieces.of(event):
            self.texts[piece.index].append(piece)

    def choice(self, index: int, one: _Text, stop: Stop | None) -> Fields:
        return _choice(index, one.text, one.logprobs if self._wants_logprobs else None, stop)


# ----------------------------------------------------------------------------------------------------
# Several prompts in one request: a generation each, whose events are told apart by their id
# ----------------------------------------------------------------------------------------------------


class _Part(Chunks):
    """One of several: all bear one id, and of the ends of all only the last is an end."""

    def named(self, id: str) -> _Part:
        self._name(id)
        return self

    def _begin(self, start: Start) -> bytes:
        return self._warned([])

    def _end(self, done: Done) -> bytes:
        return b""


class ChunksOfMany:
    """Events as chunks; requests by the ids of their generations. Choices are numbered through."""

    def __init__(
        self, requests: Mapping[str, CompletionRequest], form: Form, *, model: str, created: int
    ) -> None:
        self._first = dict(
            zip(requests, accumulate((r.n for r in requests.values()), initial=0), strict=False)
        )
        about: Fields = {"model": model, "created": created}
        name, *others = requests
        quiet = {id: requests[id].model_copy(update={"warnings": ()}) for id in others}  # told once
        self._parts = {
            id: _Part(request, form, **about, first=self._first[id]).named(name)
            for id, request in ({name: requests[name]} | quiet).items()
        }
        self._done: list[Done] = []

    def render(self, events: list[Event]) -> bytes:
        """Frames for these events of one generation."""
        return b"".join(map(self._frames, events))

    def frames(self, events: list[Event]) -> bytes | Iterator[bytes]:
        """As those of one."""
        if not any(isinstance(event, REPEATED) for event in events):
            return self.render(events)
        return (frame for event in events for frame in self._each(event))

    def _each(self, event: Event) -> Iterator[bytes]:
        if isinstance(event, REPEATED):
            yield from self._parts[event.id].each([_moved(event, self._first[event.id])])
        else:
            yield self._frames(event)

    def _frames(self, event: Event) -> bytes:
        id = event.id  # type: ignore[union-attr]  # what a generation brings has one
        part = self._parts[id]
        frames = part.render([_moved(event, self._first[id])])
        if isinstance(event, Done):
            self._done.append(event)
            if len(self._done) == len(self._parts):
                frames += Chunks._end(part, _sum(self._done))
        return frames


def _moved(event: Event, by: int) -> Event:
    """An event whose choices stand behind those of other prompts."""
    match event:
        case Stop(duplicate_of=int() as other):
            return replace(event, index=event.index + by, duplicate_of=other + by)
        case Stream() | Stop() | Again():
            return replace(event, index=event.index + by)
    return event


def _sum(parts: Iterable[Done]) -> Done:
    """The counts of all; an order over several prompts there is none."""
    first, *others = parts
    for one in others:
        first = replace(
            first,
            count=first.count + one.count,
            prompt_tokens=first.prompt_tokens + one.prompt_tokens,
            cached_tokens=first.cached_tokens + one.cached_tokens,
            completion_tokens=first.completion_tokens + one.completion_tokens,
        )
    return replace(first, ranking=())


class BodyOfMany:
    """Events folded into one body; requests by the ids of their generations."""

    def __init__(self, requests: Mapping[str, CompletionRequest], *, model: str, created: int) -> None:
        self._parts = {id: Body(request, model=model, created=created) for id, request in requests.items()}
        self._done: list[Done] = []

    def take(self, events: Iterable[Event]) -> None:
        """Events of one generation, which follow those of the last call."""
        for event in events:
            self._parts[event.id].take([event])  # type: ignore[union-attr]
            self._done += [event] if isinstance(event, Done) else []

    def json(self) -> bytes:
        """The body; all events must have been taken."""
        bodies = [part.fields() for part in self._parts.values()]
        choices: list[Fields] = []
        for body in bodies:
            choices += [_moved_choice(choice, len(choices)) for choice in body["choices"]]
        return orjson.dumps(bodies[0] | {"choices": choices, "usage": usage_of(_sum(self._done))})


def _moved_choice(choice: Fields, by: int) -> Fields:
    return {
        name: value + by if name in ("index", "duplicate_of") else value for name, value in choice.items()
    }
