"""Prompts that are too long for a limit are cut from the left, as some dialects promise; it is said how much.

Asks the engine for tokens and templates; knows neither dialects nor HTTP.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import orjson

from llama_srb.request.fields import CHAT, CompletionRequest, Limit

Command: TypeAlias = Callable[..., Awaitable[Mapping[str, Any]]]
"""pool.command: an engine's answer to tokenize, detokenize, template."""


@dataclass(frozen=True, slots=True)
class _Room:
    """Tokens of a prompt: up to `most` it stays whole, of a longer one `kept` are left."""

    limit: int
    most: int
    kept: int

    @staticmethod
    def of(limit: Limit, context: int, request: CompletionRequest) -> _Room:
        """An answer without a limit of its own gets a quarter, but only where something must be cut."""
        both = min(limit.tokens or context, context)
        wanted = max([request.max_tokens, *(one.max_tokens for one in request.sequences)])
        kept = max(1, both - min(wanted if wanted >= 0 else both // 4, both // 2))
        return _Room(both, kept if wanted >= 0 else max(1, both - 1), kept)


async def fitted(
    request: CompletionRequest, limit: Limit, context: int, command: Command
) -> CompletionRequest:
    """The request with so much of its prompt as fits, and a warning if that is not all."""
    room = _Room.of(limit, context, request)
    if request.continue_ is not None or _is_short(request, room):
        return request
    cut = _messages_cut if request.messages is not None else _prompt_cut
    changed, n = await cut(request, limit, room, command)
    if not n:
        return request
    warning = (
        f"{n} tokens at the prompt's beginning were cut: prompt and answer have {room.limit} together "
        f"({limit.name if limit.tokens == room.limit else 'the context'})"
    )
    return request.model_copy(update={**changed, "warnings": (*request.warnings, warning)})


def _is_short(request: CompletionRequest, room: _Room) -> bool:
    """Whether it cannot be too long: a token is a byte at least, and one may stand before all."""
    if request.messages is not None:
        said = request.messages + (request.tools or "")
        return len(said.encode()) < room.most // 2  # a template adds to each message
    return isinstance(request.prompt, str) and len(request.prompt.encode()) < room.most


async def _prompt_cut(
    request: CompletionRequest, limit: Limit, room: _Room, command: Command
) -> tuple[dict[str, Any], int]:
    prompt = request.prompt
    ids = await _ids(prompt, command) if isinstance(prompt, str) else list(prompt)
    if len(ids) <= room.most:
        return {}, 0
    head = (
        min(_common(ids, await _ids(limit.head, command)), room.kept // 2) if isinstance(prompt, str) else 0
    )
    n = len(ids) - room.kept
    return {"prompt": (*ids[:head], *ids[head + n :])}, n


async def _ids(text: str, command: Command) -> list[int]:
    """With the token that stands before all, if the model has one."""
    return list((await command("tokenize", text=text, add_special=True))["tokens"])


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    return next((i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(other))


async def _messages_cut(
    request: CompletionRequest, limit: Limit, room: _Room, command: Command
) -> tuple[dict[str, Any], int]:
    """Without its oldest messages, but for the system's and the last; what of that is too long goes, too."""
    assert request.messages is not None
    messages = orjson.loads(request.messages)
    droppable = [i for i, one in enumerate(messages[:-1]) if one["role"] != "system"]

    async def length(dropped: int) -> int:
        return await _chat_length(request, _without(messages, droppable[:dropped]), command)

    whole = await length(0)
    if whole <= room.most:
        return {}, 0
    fewest = await _least(len(droppable), room.kept, length)
    left, now = _without(messages, droppable[:fewest]), await length(fewest)
    if now > room.kept:
        left[-1] = await _shortened(left[-1], now - room.kept, command)
        now = await _chat_length(request, left, command)
    return {"messages": orjson.dumps(left).decode()}, whole - now


async def _least(most: int, limit: int, length: Callable[[int], Awaitable[int]]) -> int:
    """The smallest number up to most for which length is within the limit, else most."""
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if await length(middle) <= limit else (middle + 1, high)
    return min(low, most)


def _without(messages: list[Any], places: Sequence[int]) -> list[Any]:
    return [one for i, one in enumerate(messages) if i not in set(places)]


async def _chat_length(request: CompletionRequest, messages: list[Any], command: Command) -> int:
    chat = request.model_copy(update={"messages": orjson.dumps(messages).decode()})
    fields = {name: value for name, value in chat.engine_fields().items() if name in CHAT}
    return len(await _ids((await command("template", **fields))["prompt"], command))


async def _shortened(message: Any, n: int, command: Command) -> Any:
    """Without its first n tokens; a content in parts stays."""
    if not isinstance(message["content"], str):
        return message
    ids = (await command("tokenize", text=message["content"], add_special=False))["tokens"]
    text = (await command("detokenize", tokens=ids[n:]))["text"] if n < len(ids) else ""
    return message | {"content": text}


async def shortened(text: str | list[int], most: int, command: Command) -> tuple[str | list[int], int]:
    """A text to be embedded without its end, if that is too long, and how many tokens went."""
    if not isinstance(text, str) or len(text.encode()) < most:
        return text, 0
    ids = (await command("tokenize", text=text, add_special=False))["tokens"]
    kept = most - 2  # a model may put one before and one behind
    if len(ids) <= kept:
        return text, 0
    return (await command("detokenize", tokens=ids[:kept]))["text"], len(ids) - kept
