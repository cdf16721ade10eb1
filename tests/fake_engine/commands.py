"""Reads lines of stdin: each is answered, or becomes a request of the scheduler."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from .adapters import Adapters
from .fields import Refused, check
from .output import Output
from .scheduler import Scheduler
from .stories import joined, tokenize, tokens_of

ACCEPTED = ("chat", "prefix", "pin", "score", "embed", "rerank", "template", "load_adapter")
NOTED = (
    "lora",
    "sampling",
    "private_tokens",
    "plain_content",
    "name",
    "priority",
)  # fields that the journal repeats
ABOUT_ANOTHER = ("cancel", "extend")  # their errors must not look like the end of the request that they name


class Commands:
    def __init__(
        self, output: Output, scheduler: Scheduler, adapters: Adapters, overlooked: Sequence[str]
    ) -> None:
        self.output, self.scheduler, self.overlooked = output, scheduler, overlooked
        self.adapters = adapters
        self.lines = 0  # lines of input so far
        self.readers: dict[str, Callable[[dict[str, Any]], None]] = {
            "generate": self.generate,
            "chat": self.generate,  # the answer is content only
            "prefix": scheduler.prefix,
            "pin": scheduler.pin,
            "unpin": self.unpin,
            "score": self.score,
            "extend": scheduler.extend,
            "cancel": scheduler.cancel,
            "status": self.status,
            "limits": self.limits,
            "embed": self.embed,
            "rerank": self.rerank,
            "tokenize": self.tokenize,
            "count_tokens": self.count_tokens,
            "detokenize": self.detokenize,
            "template": self.template,
            "load_adapter": self.load_adapter,
            "unload_adapter": self.unload_adapter,
        }

    def read(self, line: bytes) -> None:
        self.lines += 1
        if not line.strip():
            return
        command: Any = None
        try:
            command = json.loads(line)
            if isinstance(command, dict) and command.get("op") in self.overlooked:
                return
            if isinstance(command, dict) and command.get("op") in ACCEPTED and command.get("id"):
                self.output.event("accepted", id=command["id"], line=self.lines)
            check(command)
            self.adapters.check(command.get("lora", []))
            more = {name: command[name] for name in NOTED if name in command}
            more |= {"parts": command["prompt"]} if isinstance(command.get("prompt"), list) else {}
            self.output.note(f"{command['op']} {command.get('index', '')}".strip(), **more)
            self.readers[command["op"]](command)
        except (Refused, ValueError, RecursionError) as error:
            self.refuse(command if isinstance(command, dict) else {}, error)

    def refuse(self, command: dict[str, Any], error: Exception) -> None:
        code, param = getattr(error, "code", "invalid_request"), getattr(error, "param", "")
        id = command.get("id", "")
        known: dict[str, Any] = ({"param": param} if param else {}) | getattr(error, "sizes", {})
        nobodys = not isinstance(id, str) or command.get("op") in ABOUT_ANOTHER
        self.output.event(
            "error", id="" if nobodys else id, code=code, message=str(error), **known, line=self.lines
        )

    def generate(self, command: dict[str, Any]) -> None:
        if command["id"] in self.scheduler.requests:
            message = f"the id {command['id']!r} is not done"
            self.output.event("error", id="", code="invalid_request", message=message, param="id",
                              line=self.lines)  # fmt: skip
        else:
            self.scheduler.generate(command)

    def score(self, command: dict[str, Any]) -> None:
        """The logprob of a word is -1 / its position, counted over the texts of one request."""
        id, prompt, n = command["id"], tokens_of(command), 0
        self.output.event(
            "start", id=id, count=len(command["texts"]), prompt_tokens=len(prompt), cached_tokens=0, seed=0
        )
        for index, text in enumerate(command["texts"]):
            ids = text if isinstance(text, list) else tokenize(text)
            words = map(str, text) if isinstance(text, list) else text.split()
            tokens = [
                {"id": token, "text": word, "logprob": -1 / (i + 1), "top": []}
                for i, (token, word) in enumerate(zip(ids, words, strict=True))
            ]
            n += len(tokens)
            self.output.event("score", id=id, index=index, count=len(tokens), greedy=False,
                              logprob=sum(token["logprob"] for token in tokens), tokens=tokens)  # fmt: skip
        self.output.event("done", id=id, count=len(command["texts"]), prompt_tokens=len(prompt),
                          cached_tokens=0, completion_tokens=n, timings={"total_ms": 1.0})  # fmt: skip

    def embed(self, command: dict[str, Any]) -> None:
        """Two numbers, made from the text's length, and zeros; the sum of their squares is 1."""
        n = 0
        for index, text in enumerate(command["input"]):
            size = len(text if isinstance(text, list) else tokenize(text))
            vector = [math.sin(size), math.cos(size), *[0.0] * (self.scheduler.flags.dimensions - 2)]
            self.output.event("embedding", id=command["id"], index=index, count=size, embedding=vector)
            n += size
        self.output.event("done", id=command["id"], count=len(command["input"]), prompt_tokens=n,
                          cached_tokens=0, completion_tokens=0, timings={})  # fmt: skip

    def rerank(self, command: dict[str, Any]) -> None:
        """The longer a document, the more relevant it is."""
        query = len(tokenize(command["query"]))
        n = 0
        for index, text in enumerate(command["documents"]):
            size = query + len(tokenize(text))
            self.output.event("embedding", id=command["id"], index=index, count=size, embedding=[size / 8])
            n += size
        self.output.event("done", id=command["id"], count=len(command["documents"]), prompt_tokens=n,
                          cached_tokens=0, completion_tokens=0, timings={})  # fmt: skip

    def tokenize(self, command: dict[str, Any]) -> None:
        self.output.event("result", id=command["id"], **told_tokens(command, joined(command["text"])))

    def count_tokens(self, command: dict[str, Any]) -> None:
        counts = [len(tokenize(text)) for text in command["texts"]]
        self.output.event("result", id=command["id"], counts=counts)

    def detokenize(self, command: dict[str, Any]) -> None:
        self.output.event("result", id=command["id"], text=" ".join(map(str, command["tokens"])))

    def template(self, command: dict[str, Any]) -> None:
        """A prompt with the words of all messages."""
        messages = (
            command["messages"] if isinstance(command["messages"], list) else json.loads(command["messages"])
        )
        prompt = " ".join(str(message["content"]) for message in messages)
        plain = command.get("plain_content")
        parts = {"parts": [{"text": prompt, "special": True}]} if plain else {}
        tokens = told_tokens(command, prompt) if command.get("return_tokens") else {}
        self.output.event("result", id=command["id"], prompt=prompt, **tokens, **parts)

    def load_adapter(self, command: dict[str, Any]) -> None:
        self.adapters.load(command["adapter"])
        self.output.event("result", id=command["id"], adapters=self.adapters.loaded)

    def unload_adapter(self, command: dict[str, Any]) -> None:
        self.adapters.unload(command["adapter"])
        self.output.event("result", id=command["id"], adapters=self.adapters.loaded)

    def unpin(self, command: dict[str, Any]) -> None:
        if command["name"] not in self.scheduler.pins:
            raise Refused("name", f'no prompt is pinned under the name "{command["name"]}"')
        del self.scheduler.pins[command["name"]]
        self.output.event("result", id=command["id"])

    def limits(self, command: dict[str, Any]) -> None:
        self.output.note(f"cache_ram {command['cache_ram']}")
        self.output.event("result", id=command["id"])

    def status(self, command: dict[str, Any]) -> None:
        self.output.event("result", id=command["id"], **self.scheduler.counts())


def told_tokens(command: dict[str, Any], text: str) -> dict[str, Any]:
    """The fields of an answer about the tokens of a text."""
    words = [list(word.encode()) for word in text.split(" ") if word]
    pieces = {"pieces": words, "control": []} if command.get("pieces") else {}
    return {"tokens": tokenize(text), **pieces}
