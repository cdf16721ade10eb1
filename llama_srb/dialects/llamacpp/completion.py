"""llama.cpp's server: /completion and /infill in llama-server's own form. Pure.

A frame has `index` and `content` at its top level; a body is an object, or a list of n objects. Shapes:
tools/server/README.md and server-task.cpp of llama.cpp.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NotRequired, TypeAlias

from typing_extensions import TypedDict

from llama_srb.dialects.common.fields import switch, text_of
from llama_srb.dialects.common.infill import INFILL, infill_prompt
from llama_srb.dialects.common.reply import (
    Json,
    Reply,
    ServerInfo,
    TokenLogprob,
    token_json,
)
from llama_srb.dialects.common.response_types import (
    NO_SIZE,
    Count,
    Cut,
    Frames,
    PromptSize,
    Told,
    as_json,
    cut_of,
    size_in,
)
from llama_srb.dialects.common.timings import PromptProgress, Stopwatch, Timings, timings_of
from llama_srb.engine.events import Error, Event, Stop, Stream
from llama_srb.request.parse import request_from
from llama_srb.request.values import RequestError, wrong

N, MAX_TOKENS = 1, -1  # llama-server's defaults
READ_HERE = frozenset({
    "stream", "model", "return_tokens", "response_fields", "input_prefix", "input_suffix", "input_extra",
    "timings_per_token", "return_progress",
})  # fmt: skip
KINDS = {  # error types by status; any other status is the client's error below 500, the server's above
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    501: "not_supported_error",
    503: "unavailable_error",
}
StopType: TypeAlias = Literal["eos", "word", "limit", "none"] | Cut
STOP_TYPES: Mapping[str, StopType] = {
    "length": "limit",
    "timeout": "limit",
    "cancelled": "none",
    "error": "none",
}
SNIPPET = "\n\n--- snippet ---\n\n"  # before a file, for a model without a separator token


# ----------------------------------------------------------------------------------------------------
# Answers
# ----------------------------------------------------------------------------------------------------


class LlamacppErrorFields(PromptSize):
    code: int
    message: str
    type: str


class LlamacppError(TypedDict):
    error: LlamacppErrorFields


class DrawnToken(TypedDict):
    id: Count
    token: str
    bytes: list[Count]
    prob: float


class TokenProbability(DrawnToken):
    """A token with its alternatives, if post_sampling_probs is set."""

    top_probs: list[DrawnToken]


class Probabilities(TypedDict, total=False):
    completion_probabilities: list[TokenLogprob | TokenProbability]


class LlamacppPiece(Probabilities):
    """A frame with new text of one sequence."""

    index: Count
    content: str
    tokens: list[Count]
    stop: Literal[False]
    id_slot: Count
    tokens_predicted: Count
    tokens_evaluated: Count
    timings: NotRequired[Timings]
    prompt_progress: NotRequired[PromptProgress]


class LlamacppText(Told, Probabilities):
    """A complete text, or the frame that ends a sequence; with response_fields only the named fields."""

    index: Count
    content: str
    tokens: list[Count]
    id_slot: Count
    stop: Literal[True]
    model: str
    tokens_predicted: Count
    tokens_evaluated: Count
    generation_settings: dict[str, Any]
    prompt: str
    has_new_line: bool
    truncated: bool
    stop_type: StopType
    stopping_word: str
    tokens_cached: Count
    timings: NotRequired[Timings]


TEXTS = Frames(
    LlamacppPiece | LlamacppText | LlamacppError,
    "Frames `data: <LlamacppPiece>`, each of one sequence; a LlamacppText ends a sequence.",
)

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
) -> LlamacppError:
    """An error as llama-server writes it."""
    other = "invalid_request_error" if status < 500 else "server_error"
    kind = "exceed_context_size_error" if code == "context_exceeded" else KINDS.get(status, other)
    return {"error": {"code": status, "message": message, "type": kind, **size}}


class Completion(Reply):
    """The answer of /completion and /infill."""

    def __init__(self, body: Mapping[str, Any], about: ServerInfo, *, stream: bool) -> None:
        defaults = about.defaults_of(N, MAX_TOKENS, stream=stream)
        request = request_from({**body, "prompt": one_prompt(body.get("prompt"))}, defaults, known=READ_HERE)
        self._has_logprobs = request.logprobs is not None
        self._token = token_json if request.logprobs_mode == "raw" else _drawn_token
        self._paths = _paths(body)
        self._stopwatch = Stopwatch()
        self._has_timings = switch(body, "timings_per_token", False)
        self._has_progress = switch(body, "return_progress", False)
        if body.get("return_tokens") and request.logprobs is None:
            request = request.model_copy(
                update={"logprobs": 0}
            )  # without logprobs the engine sends no tokens
        super().__init__(request, about, stream=stream)

    def messages(self, event: Event) -> Iterator[Mapping[str, Any]]:
        if self._has_progress or self._has_timings:
            self._stopwatch.take(event)
        if self._has_progress and (progress := self._stopwatch.progress):
            yield {**self._piece(0, "", ()), "prompt_progress": progress}
        yield from super().messages(event)

    def piece(self, event: Stream) -> Iterator[LlamacppPiece]:
        yield self._piece(event.index, event.text, event.tokens)

    def _piece(self, index: int, content: str, tokens: Iterable[Mapping[str, Any]]) -> LlamacppPiece:
        made: LlamacppPiece = {
            "index": index,
            "content": content,
            "tokens": [token["id"] for token in tokens],
            "stop": False,
            "id_slot": index,
            "tokens_predicted": self.texts[index].length,
            "tokens_evaluated": self.prompt_tokens,
        }
        if logprobs := self._probabilities(tokens):
            made["completion_probabilities"] = logprobs
        if self._has_timings:
            made["timings"] = self._stopwatch.timings(index)
        return made

    def end(self, index: int, stop: Stop) -> Iterator[Mapping[str, Any]]:
        yield self._chosen(self._final(index, "", ()))

    def body(self) -> Any:
        finals = [self._chosen(self._whole(i, place)) for place, i in enumerate(self.ordered)]
        return finals if len(finals) > 1 else finals[0]

    def _whole(self, index: int, place: int) -> LlamacppText:
        text = self.texts[index]
        final = self._final(index, text.text, text.tokens)
        final["index"] = place
        if logprobs := self._probabilities(text.tokens):
            final["completion_probabilities"] = logprobs
        return final

    def failure(self, error: Error) -> LlamacppError:
        return error_body(500, error.message, code=error.code, size=size_in(error))

    def _probabilities(self, tokens: Iterable[Mapping[str, Any]]) -> list[TokenLogprob | TokenProbability]:
        return [as_json(self._token(token)) for token in tokens] if self._has_logprobs else []

    def _chosen(self, final: LlamacppText) -> Mapping[str, Any]:
        """The fields that response_fields names, each under its path."""
        return {path: value for path in self._paths for value in _at(path, final)} if self._paths else final

    def _final(self, index: int, content: str, tokens: Iterable[Mapping[str, Any]]) -> LlamacppText:
        text, prompt = self.texts[index], self.request.prompt
        assert text.stop is not None
        final: LlamacppText = {
            "index": index,
            "content": content,
            "tokens": [token["id"] for token in tokens],
            "id_slot": index,
            "stop": True,
            "model": self.about.model,
            "tokens_predicted": text.length,
            "tokens_evaluated": self.prompt_tokens,
            "generation_settings": self._settings(index),
            "prompt": prompt if isinstance(prompt, str) else "",
            "has_new_line": text.has_new_line,
            "truncated": False,
            "stop_type": _stop_type(text.stop),
            "stopping_word": text.stop.stop_text,
            "tokens_cached": self.prompt_tokens + text.length,
        }
        if self.done:
            final["timings"] = timings_of(self.done, text.length)
        return {**final, **self.told}

    def _settings(self, index: int) -> Json:
        request = self.request
        own = {"seed": request.seed_of(index, self.start.seed)} if self.start else {}
        mine = {"n_predict": request.max_tokens, "max_tokens": request.max_tokens, "stop": request.stop}
        return request.sampling.model_dump(mode="json") | mine | {"stream": self.stream} | own


def _stop_type(stop: Stop) -> StopType:
    return cut_of(stop) or STOP_TYPES.get(stop.finish_reason) or ("word" if stop.stop_text else "eos")


def _drawn_token(token: Mapping[str, Any]) -> TokenProbability:
    """A token with probabilities in place of logprobs, for post_sampling_probs."""
    return {**_drawn(token), "top_probs": list(map(_drawn, token.get("top", ())))}


def _drawn(token: Mapping[str, Any]) -> DrawnToken:
    one = token_json(token)
    return {
        "id": one["id"],
        "token": one["token"],
        "bytes": one["bytes"],
        "prob": math.exp(one["logprob"]),
    }


def _paths(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Reads response_fields, a list of paths: content, timings/prompt_n, …"""
    paths = body.get("response_fields") or []
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise wrong("response_fields", paths, "a list of names of fields")
    return tuple(paths)


def _at(path: str, data: Any) -> list[Any]:
    """A list of the value at this path; empty if there is none."""
    for name in path.split("/"):
        if not isinstance(data, dict) or name not in data:
            return []
        data = data[name]
    return [data]


def one_prompt(prompt: object) -> object:
    """A list of one prompt is that prompt; an object with `prompt_string` is that text."""
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list | dict):
        if len(prompt) > 1:
            raise RequestError(f"prompt is a list of {len(prompt)} prompts; it must be one", param="prompt")
        return one_prompt(prompt[0])
    if isinstance(prompt, dict):
        if media := prompt.get("multimodal_data"):
            raise wrong("multimodal_data", media, "absent: this server takes text only", param="prompt")
        return text_of(prompt, "prompt_string")
    return prompt


def complete(body: Mapping[str, Any], about: ServerInfo) -> Reply:
    """/completion."""
    return Completion(body, about, stream=switch(body, "stream", False))


def infill(body: Mapping[str, Any], about: ServerInfo) -> Reply:
    """/infill: the text between prefix and suffix; the prompt begins with the extra files."""
    if missing := [name for name in INFILL if not about.infill.get(name)]:
        raise RequestError(f"this model has no infill token for {' and '.join(missing)}", status=501)
    prefix, suffix = text_of(body, "input_prefix"), text_of(body, "input_suffix")
    prompt = _extra(body, about) + infill_prompt(about.infill, prefix, suffix) + text_of(body, "prompt", "")
    return Completion({**body, "prompt": prompt}, about, stream=switch(body, "stream", False))


def _extra(body: Mapping[str, Any], about: ServerInfo) -> str:
    files = body.get("input_extra") or []
    if not isinstance(files, list) or not all(isinstance(file, dict) for file in files):
        raise wrong("input_extra", files, "a list of {filename, text}")
    separator = about.infill.get("separator")
    heads = (f"{separator}{text_of(file, 'filename', 'tmp')}\n" if separator else SNIPPET for file in files)
    return "".join(head + text_of(file, "text") for head, file in zip(heads, files, strict=True))


REPLIES = {"/completion": complete, "/completions": complete, "/infill": infill}
