"""A task's prompt: between texts that may have control tokens, a client's text stays text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, TypeAlias

import orjson

from llama_srb.request.fields import CHAT, CompletionRequest, Recalled
from llama_srb.request.parse import Defaults
from llama_srb.request.shapes import Part
from llama_srb.request.then import Then, read_then
from llama_srb.request.values import RequestError, shown, wrong
from llama_srb.tasks.task import Task

Kind: TypeAlias = Literal["prelude", "recall", "prefix", "prompt", "postfix", "answer", "system"]
USER, ANSWER = "user", "assistant"
SYSTEM = ("system", "developer")
MAX_SEARCHED = 500_000_000  # characters, for each private token anew: two seconds of the worst texts
SEARCHED = 1 << 20  # characters at once: 4 ms


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a task's prompt. special: the names of control tokens in it are these tokens."""

    kind: Kind
    text: str
    special: bool = False


def applied(
    task: Task, request: CompletionRequest, defaults: Defaults | None = None, *, is_beginning: bool = False
) -> CompletionRequest:
    """The request with the task's text around its prompt or its messages, and its private tokens.

    defaults: with which it was read; if not given the task's. is_beginning: the prompt is to be continued,
    so it has no postfix.
    """
    private = tuple(dict.fromkeys((*task.private_tokens, *request.private_tokens)))
    for name in ("logprobs", "prompt_logprobs"):
        if task.private_tokens and (count := getattr(request, name)):
            raise wrong(name, count, f"0: alternatives may be private tokens of the task {task.name}")
    defaults = defaults or task.over(Defaults())
    then = _harmless_then(request.then, defaults, private)
    is_plain = request.negative_prompt not in _operators(defaults, "negative_prompt")
    if is_plain:
        _refuse_private(private, [Part(request.negative_prompt)], "negative_prompt")
    changed = {"private_tokens": private, "then": then, "negative_is_plain": is_plain}
    request = request.model_copy(update=changed)
    if request.messages is not None and not task.has_turns:
        messages = _with_system_message(task, orjson.loads(request.messages), request.recalled)
        return request.model_copy(update={"messages": orjson.dumps(messages).decode(), "plain_content": True})
    made = pieces_of(task, request, is_beginning=is_beginning)
    parts = tuple(Part(piece.text, piece.special) for piece in made if piece.text)
    _refuse_private(private, parts)
    return _without_tools(task, request).model_copy(update={**dict.fromkeys(CHAT), "prompt": parts or ""})


def _refuse_private(private: Sequence[str], parts: Sequence[Part], name: str = "prompt") -> None:
    """RequestError if a client's text has a private token: the engine sees only ids of a truncated prompt."""
    length = sum(len(part.text) for part in parts if not part.special)
    if (work := len(private) * length) > MAX_SEARCHED:
        message = f"{len(private)} private_tokens are searched in {length} characters, {work} in all"
        raise RequestError(
            f"{message}; it may be {MAX_SEARCHED}: send a shorter {name}, or fewer of them", param=name
        )
    for special, group in groupby(parts, lambda part: part.special):
        text = "" if special else "".join(part.text for part in group)
        if (found := next((one for one in private if _has(text, one)), None)) is not None:
            raise RequestError(f"{name} has {shown(found)}, which is one of private_tokens", param=name)


def _has(text: str, token: str) -> bool:
    """Whether the text has the token, looked at in pieces: a search holds the interpreter."""
    ends = ((at, at + SEARCHED + len(token) - 1) for at in range(0, len(text), SEARCHED))
    return any(text.find(token, begin, end) >= 0 for begin, end in ends)


def _operators(defaults: Defaults, name: str) -> list[Any]:
    """What the operator gives a field: in the task's settings and in presets."""
    return [one.get(name) for one in (defaults.operator, *defaults.presets.values())]


def _harmless_then(then: Then | None, defaults: Defaults, private: Sequence[str]) -> Then | None:
    """The field `then`, whose text stays text if it is none of the operator's: a client's."""
    if then is None:
        return None
    if then in map(read_then, _operators(defaults, "then")):
        return then
    _refuse_private(private, [Part(then.text)], "then.text")
    return dataclasses.replace(then, special=False)


def harmless(found: Sequence[Recalled], private: Sequence[str], asked: str) -> tuple[Recalled, ...]:
    """The chunks that can stand before a client's text: with them the prompt has no more private tokens.

    A private token may begin in a chunk and end in the text behind it.
    """
    taken, before = list[Recalled](), ""
    behind = asked[: max(map(len, private), default=0)]
    for one in found:
        text = before + recalled_text(one)
        if not any(token in text + behind for token in private):
            taken, before = [*taken, one], text
    return tuple(taken)


def recalled_text(chunk: Recalled) -> str:
    """A chunk as it stands in a prompt."""
    return chunk.text + "\n"


def pieces_of(task: Task, request: CompletionRequest, *, is_beginning: bool = False) -> list[Piece]:
    """The parts of a prompt that needs no template; one that goes on from a sequence has no prelude."""
    prelude = [Piece("prelude", task.prelude, special=True)] if request.continue_ is None else []
    turns, asked = _turns(task, request), 0
    if is_beginning and turns and turns[-1][-1].kind == "postfix":
        turns[-1].pop()
    front, rest = list[Piece](), list[Piece]()
    for turn in turns:
        if turn[0].kind == "prefix":
            found = [Piece("recall", recalled_text(one)) for one in request.recalled.get(asked, ())]
            (front if task.recalls_in_front else rest).extend(found)
            asked += 1
        rest += turn
    return [*prelude, *front, *rest]


def last_turn(request: CompletionRequest) -> int:
    """The number of the user's last turn, for which chunks are recalled."""
    if request.messages is None:
        return 0
    return len([one for one in orjson.loads(request.messages) if one["role"] == USER]) - 1


def query_of(request: CompletionRequest) -> str:
    """The text of a client for which chunks are recalled: its prompt, or the last message of the user."""
    if request.messages is None:
        return _text_of_prompt(request)
    texts = [text_of(one) for one in orjson.loads(request.messages) if one["role"] == USER]
    return texts[-1] if texts else ""


def _turns(task: Task, request: CompletionRequest) -> list[list[Piece]]:
    """The turns of a chat; of a completion one, or none if it only goes on."""
    if request.messages is not None:
        return [_turn(task, i, message) for i, message in enumerate(orjson.loads(request.messages))]
    text = _text_of_prompt(request)
    return [_around(task, text)] if text or request.continue_ is None else []


def _around(task: Task, text: str) -> list[Piece]:
    prefix, postfix = (Piece(kind, text, special=True) for kind, text in _texts(task))
    return [prefix, Piece("prompt", text), postfix]


def _texts(task: Task) -> tuple[tuple[Kind, str], ...]:
    return ("prefix", task.prefix), ("postfix", task.postfix)


def _turn(task: Task, place: int, message: Mapping[str, Any]) -> list[Piece]:
    role, text = message["role"], text_of(message)
    if role == USER:
        return _around(task, text)
    if role == ANSWER and not message.get("tool_calls"):
        return [Piece("answer", text)]
    if role in SYSTEM:
        return [Piece("system", text)]
    what = "has tool_calls" if role == ANSWER else f"is of the role {role[:20]}"
    raise RequestError(
        f"messages[{place}] {what}; the task {task.name} has a prefix and a postfix in place of the model's "
        "template, so its chats have only messages of user, assistant and system",
        param="messages",
    )


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message, whose content is a text or a list of parts."""
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _text_of_prompt(request: CompletionRequest) -> str:
    """RequestError if the client's prompt has control tokens: as ids, or in a part with special."""
    prompt = request.prompt
    if isinstance(prompt, str):
        return prompt
    texts = [one.text for one in prompt if isinstance(one, Part) and not one.special]
    if len(texts) < len(prompt):
        message = "prompt has token ids or a part with special; the prompt of a task is text, without special"
        raise RequestError(message, param="prompt")
    return "".join(texts)


def _with_system_message(
    task: Task, messages: list[dict[str, Any]], recalled: Mapping[int, Sequence[Recalled]]
) -> list[dict[str, Any]]:
    """The messages with the prelude in front, as the system's; recalled texts are in it or in questions."""
    made, front, asked = list[dict[str, Any]](), task.prelude, 0
    for message in messages:
        if message["role"] == USER:
            found = "".join(map(recalled_text, recalled.get(asked, ())))
            asked += 1
            if found and task.recalls_in_front:
                front += found
            elif found:
                message = {**message, "content": found + text_of(message)}
        made.append(message)
    if front:
        own = text_of(made.pop(0)) if made[0]["role"] in SYSTEM else ""
        made.insert(0, {"role": "system", "content": "\n".join(filter(None, (front, own)))})
    return made


def _without_tools(task: Task, request: CompletionRequest) -> CompletionRequest:
    """Without tools, and with a warning: only a template of a model can say which tools there are."""
    if request.tools is None or request.tool_choice == "none":
        return request
    why = f"the task {task.name} has a prefix and a postfix in place of the model's template"
    if request.tool_choice == "required":
        raise RequestError(f"tools cannot be used: {why}", param="tools")
    warning = f"tools is not used: {why}"
    return request.model_copy(update={"warnings": (*request.warnings, warning)})
