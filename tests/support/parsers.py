"""The parser of each path that takes a body: it turns a body into a line for the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llama_srb.dialects import embeddings, events, koboldai, llamacpp, ollama, openai, scores, textgen
from llama_srb.dialects.common.reply import ServerInfo
from llama_srb.dialects.openai import chat
from llama_srb.dialects.vectors import VECTORS
from llama_srb.engine.commands import encode, encode_generate
from llama_srb.request.parse import Defaults, extension_from
from llama_srb.tasks import Task, applied

ABOUT = ServerInfo("m", context=4096)


def of_openai(body: dict[str, Any]) -> None:
    for one in openai.prompts(body):
        encode_generate("1", openai.parse(one, Defaults())[0])


def reply(make: Callable[..., Any]) -> Callable[[dict[str, Any]], Any]:
    return lambda body: encode_generate("1", make(body, ABOUT).request)


def of_task(task: Task) -> Callable[[dict[str, Any]], Any]:
    return lambda body: encode_generate("1", applied(task, events.parse(body, task.over(Defaults()))))


def question(one: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda body: encode(one.op_for(body), "1", **one.arguments(body))


PARSERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "events": lambda body: encode_generate("1", events.parse(body, Defaults())),
    "openai": of_openai,
    "chat": lambda body: encode_generate("1", chat.parse(body, Defaults())[0]),
    "embeddings": lambda body: encode("embed", "1", **embeddings.parse(body).engine_fields()),
    "scores": lambda body: encode("score", "1", **scores.parse(body).engine_fields()),
    "task": of_task(Task("t", prelude="a", prefix="b", postfix="c", private_tokens=("x",), locked=("n",))),
    "task with the model's template": of_task(Task("t", prelude="a")),
    "extend": lambda body: extension_from(body, strict=False),
}  # fmt: skip
for dialect in (llamacpp, koboldai, ollama, textgen):
    PARSERS |= {path: reply(make) for path, make in getattr(dialect, "REPLIES", {}).items()}
    PARSERS |= {path: question(one) for path, one in dialect.INFO_ENDPOINTS.items() if one.op}
PARSERS |= {path: (lambda body, make=make: make(body, ABOUT)) for path, make in VECTORS.items()}
