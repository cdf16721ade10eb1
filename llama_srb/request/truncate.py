"""Truncates prompts that exceed a limit, at their beginning, as some dialects do; a warning says how much.

Asks the engine for tokens and templates; knows neither dialects nor HTTP.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import orjson

from llama_srb.request.fields import CHAT, CompletionRequest, Limit

Command: TypeAlias = Callable[..., Awaitable[Mapping[str, Any]]]
"""As Pool.command(), for tokenize, detokenize and template."""


@dataclass(frozen=True, slots=True)
class PromptBudget:
    """Tokens for a prompt: one of at most `allowed` is not truncated, a longer one is truncated to `kept`."""

    total: int  # prompt and answer together
    allowed: int
    kept: int

    @staticmethod
    def of(limit: Limit, context: int, request: CompletionRequest) -> PromptBudget:
        """The answer gets its max_tokens, at most half of the total; without max_tokens a quarter.

        So do the text and second answer of `then`, and what `rank_by` scores behind each text. Without
        max_tokens a prompt that leaves one token for the answer is not truncated.
        """
        total = min(limit.tokens or context, context)
        answer = max([request.max_tokens, *(one.max_tokens for one in request.sequences)])
        second = sum(one.most_tokens for one in (request.then, request.rank_by) if one is not None)
        kept = max(1, total - min(second + (answer if answer >= 0 else total // 4), total // 2))
        return PromptBudget(total, kept if answer >= 0 or second else max(1, total - 1), kept)


async def truncate_prompt(
    request: CompletionRequest, limit: Limit, context: int, command: Command, shared: int = 0
) -> CompletionRequest:
    """Truncates the request's prompt, with a warning, if it is too long.

    shared: tokens beyond the context that it may have if its head is kept, whose cells are there.
    """
    budget = PromptBudget.of(limit, context + shared, request)
    if shared > budget.kept // 2:
        budget = PromptBudget.of(limit, context, request)
    if request.continue_ is not None or _is_short(request, budget):
        return request
    truncate = _truncate_messages if request.messages is not None else _truncate_text_or_tokens
    changed, n = await truncate(request, limit, budget, command)
    if not n:
        return request
    warning = (
        f"{n} tokens at the prompt's beginning were cut: prompt and answer have {budget.total} together "
        f"({limit.name if limit.tokens == budget.total else 'the context'})"
    )
    return request.model_copy(update={**changed, "warnings": (*request.warnings, warning)})


def _is_short(request: CompletionRequest, budget: PromptBudget) -> bool:
    """Whether the prompt is surely short enough: a token has at least one byte, and BOS may be added."""
    if request.messages is not None:
        text = request.messages + (request.tools or "")
        return len(text.encode()) < budget.allowed // 2  # the template adds text to each message
    return isinstance(request.prompt, str) and len(request.prompt.encode()) < budget.allowed


async def _truncate_text_or_tokens(
    request: CompletionRequest, limit: Limit, budget: PromptBudget, command: Command
) -> tuple[dict[str, Any], int]:
    given = request.prompt_fields()
    ids = list(given["tokens"]) if "tokens" in given else await _tokenize(given["prompt"], command)
    if len(ids) <= budget.allowed:
        return {}, 0
    head = 0
    if "tokens" not in given:
        head = min(_common_prefix(ids, await _tokenize(limit.head, command)), budget.kept // 2)
    n = len(ids) - budget.kept
    return {"prompt": (*ids[:head], *ids[head + n :])}, n


async def _tokenize(text: str | list[dict[str, Any]], command: Command) -> list[int]:
    """The tokens of a text or of parts, with BOS if the model has it."""
    return list((await command("tokenize", text=text, add_special=True))["tokens"])


def _common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    return next((i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(other))


async def _truncate_messages(
    request: CompletionRequest, limit: Limit, budget: PromptBudget, command: Command
) -> tuple[dict[str, Any], int]:
    """Drops the oldest messages, except the system's and the last, which is truncated if still needed."""
    assert request.messages is not None
    messages = orjson.loads(request.messages)
    droppable = [i for i, one in enumerate(messages[:-1]) if one["role"] not in ("system", "developer")]

    async def length(dropped: int) -> int:
        return await _chat_length(request, _without(messages, droppable[:dropped]), command)

    whole = await length(0)
    if whole <= budget.allowed:
        return {}, 0
    fewest = await _smallest(len(droppable), budget.kept, length)
    left, now = _without(messages, droppable[:fewest]), await length(fewest)
    if now > budget.kept:
        left[-1] = await _truncate_message(left[-1], now - budget.kept, command)
        now = await _chat_length(request, left, command)
    return {"messages": orjson.dumps(left).decode()}, whole - now


async def _smallest(largest: int, limit: int, length: Callable[[int], Awaitable[int]]) -> int:
    """The smallest number for which length() is within the limit; `largest` if there is none."""
    low, high = 1, largest
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if await length(middle) <= limit else (middle + 1, high)
    return min(low, largest)


def _without(messages: list[Any], indices: Sequence[int]) -> list[Any]:
    return [one for i, one in enumerate(messages) if i not in set(indices)]


async def _chat_length(request: CompletionRequest, messages: list[Any], command: Command) -> int:
    changed = request.model_copy(update={"messages": orjson.dumps(messages).decode()})
    return await chat_length(changed, command)


async def chat_length(request: CompletionRequest, command: Command) -> int:
    """The tokens of a prompt, which the model's template makes of a chat."""
    if request.messages is None:
        given = request.prompt_fields()
        return len(given["tokens"] if "tokens" in given else await _tokenize(given["prompt"], command))
    fields = {name: value for name, value in request.engine_fields().items() if name in CHAT}
    made = await command("template", **fields)
    return len(await _tokenize(made.get("parts", made["prompt"]), command))


async def _truncate_message(message: Any, n: int, command: Command) -> Any:
    """Removes the first n tokens of a message; one whose content is a list of parts stays as it is."""
    if not isinstance(message["content"], str):
        return message
    ids = (await command("tokenize", text=message["content"], add_special=False))["tokens"]
    text = (await command("detokenize", tokens=ids[n:]))["text"] if n < len(ids) else ""
    return message | {"content": text}


async def truncate_text(text: str | list[int], limit: int, command: Command) -> tuple[str | list[int], int]:
    """Truncates a text for an embedding at its end; returns it and how many tokens were removed."""
    if not isinstance(text, str) or len(text.encode()) < limit:
        return text, 0
    ids = (await command("tokenize", text=text, add_special=False))["tokens"]
    kept = limit - 2  # a model may add a token at each end
    if len(ids) <= kept:
        return text, 0
    return (await command("detokenize", tokens=ids[:kept]))["text"], len(ids) - kept
