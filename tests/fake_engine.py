#!/usr/bin/env python3
"""Stands where llama-batched stands: speaks protocol 1 without a model, and misbehaves on request.

Standard library only, no thread: one loop of poll, commands, step. Texts are a function of prompt, seed and
index. Flags of llama.cpp (-m, -c, -np and any other) are accepted.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import resource
import select
import signal
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

PROTOCOL = 1
N_CTX = 16384
PREPARED = 64  # different steps of a torrent, after which they come again
NO_SEED = 2**32 - 1
END_AFTER = 40  # words; a story ends by itself somewhere between this and twice this
WORDS = "and the old fox ran over a small hill to see who sang so late — naïve, “bright” 狐 🦊".split()  # noqa: SIM905


def word(prompt: str, seed: int, index: int, position: int) -> str:
    """The text of one token."""
    return " " + WORDS[zlib.crc32(f"{prompt}|{seed + index}|{position}".encode()) % len(WORDS)]


def story(prompt: str, seed: int, index: int, length: int) -> list[str]:
    """The tokens of one sequence."""
    return [word(prompt, seed, index, position) for position in range(length)]


class Refused(Exception):
    """A command that is wrong in itself."""

    def __init__(self, param: str, message: str, code: str = "invalid_request") -> None:
        super().__init__(message)
        self.code, self.param = code, param


@dataclass
class Sequence:
    index: int
    word: Callable[[int], str]  # what it says at a position
    total: int
    finish_reason: str
    more: Callable[[int, int], Sequence]  # another of the request: its index, its limit
    stop_text: str = ""
    length: int = 0

    @property
    def over(self) -> bool:
        return self.length >= self.total


@dataclass
class Request:
    id: str
    n: int
    prompt_tokens: int
    seed: int
    running: list[Sequence]
    echo: str | None = None  # the prompt's text, when it is wanted
    text: str = ""  # of the prompt
    sequences: list[Sequence] = field(default_factory=list)  # those that are over, too
    limit: int = 128
    to_compute: int = 0  # of a prefix: steps until it is done
    client: str = ""  # of a prefix
    started: bool = False
    completion_tokens: int = 0
    sum_logprobs: bool = False
    logprobs: int | None = None
    steps: list[str] = field(default_factory=list)  # of a torrent, whole


# fmt: off
FIELDS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "generate": {"prompt": str, "tokens": list, "n": int, "max_tokens": int, "min_tokens": int, "stop": list,
                 "sampling": dict, "sequences": list, "logprobs": int, "logprobs_mode": str, "cache": bool,
                 "echo": bool, "continue": dict, "lora": list, "grammar": str, "json_schema": (str, dict),
                 "regex": str, "choice": list, "diversity": str, "first_token": str, "sum_logprobs": bool,
                 "dedupe": str},
    "chat": {"messages": (str, list), "tools": (str, list), "tool_choice": str, "parallel_tool_calls": bool,
             "reasoning_format": str, "enable_thinking": bool, "chat_template_kwargs": dict,
             "add_generation_prompt": bool, "continue_final_message": bool, "n": int, "max_tokens": int,
             "min_tokens": int, "stop": list, "sampling": dict, "sequences": list, "logprobs": int,
             "cache": bool, "echo": bool, "banned_strings": list, "grammar": str, "json_schema": (str, dict),
             "regex": str, "choice": list, "diversity": str, "first_token": str, "sum_logprobs": bool,
             "dedupe": str, "lora": list, "logprobs_mode": str},
    "prefix": {"prompt": str, "tokens": list, "lora": list},
    "score": {"prompt": str, "tokens": list, "texts": list, "logprobs": int, "cache": bool, "lora": list},
    "extend": {"add": int, "max_tokens": int, "fork": dict},
    "cancel": {"index": int},
    "embed": {"input": list},
    "tokenize": {"text": str, "add_special": bool},
    "detokenize": {"tokens": list},
    "status": {},
}
# fmt: on
NAMES = {
    "diversity": ("none", "arithmetic"),
    "first_token": ("any", "distinct"),
    "dedupe": ("mark", "again"),
}
NEEDED = {"chat": ("messages",), "score": ("texts",), "embed": ("input",), "tokenize": ("text",),
          "detokenize": ("tokens",)}  # fmt: skip
ACCEPTED = ("chat", "prefix", "score", "embed", "template")
ABOUT_ANOTHER = ("cancel", "extend")  # faults of these must not look like the end of that request


def check(command: Any) -> None:
    """Raises Refused for what protocol 1 does not allow."""
    if not isinstance(command, dict):
        raise Refused("", "the command is no object")
    for name in ("op", "id"):
        if not isinstance(command.get(name), str):
            raise Refused(name, f"{name} must be a string")
    if command["op"] not in FIELDS:
        raise Refused("op", f"there is no op {command['op']!r}")
    fields = FIELDS[command["op"]]
    for name, value in command.items():
        if name in ("op", "id", "client"):
            continue
        if name not in fields:
            raise Refused(name, f"{command['op']} has no field {name!r}")
        if not isinstance(value, fields[name]) or (isinstance(value, bool) and fields[name] is int):
            raise Refused(name, f"{name} has the wrong type: {value!r}")
    for name in NEEDED.get(command["op"], ()):
        if name not in command:
            raise Refused(name, f"{name} is missing")
    for name in ("continue", "fork"):
        check_sequence(name, command.get(name, {"id": "", "index": 0}))
    if command["op"] == "chat":
        command["prompt"] = as_chatml(command["messages"])
    if command["op"] in ("generate", "prefix", "chat"):
        check_generate(command)


def check_sequence(name: str, named: dict[str, Any]) -> None:
    for key, low in (("index", 0), ("at", 0)):
        if not isinstance(named.get(key, low), int) or named.get(key, low) < low:
            raise Refused(f"{name}.{key}", f"{name}.{key} is {named[key]!r}")
    if "index" not in named:
        raise Refused(name, f"{name}.index is missing")


def check_generate(command: dict[str, Any]) -> None:
    if ("prompt" in command) == ("tokens" in command) and not (
        "continue" in command and "tokens" not in command
    ):
        raise Refused("prompt", "one of prompt and tokens must be given")
    for name, names in NAMES.items():
        if command.get(name, names[0]) not in names:
            raise Refused(name, f"{name} is {command[name]!r}; it must be one of {names}")
    for name, low in (("n", 1), ("max_tokens", -1), ("min_tokens", 0)):
        if command.get(name, low) < low:
            raise Refused(name, f"{name} is {command[name]}; it must be at least {low}")
    size = len(tokens_of(command)) + 1
    if size > N_CTX:
        message = f"the prompt has {size - 1} tokens, the context {N_CTX}"
        raise Refused("prompt", message, "context_exceeded")


def as_chatml(messages: str | list[dict[str, Any]]) -> str:
    parts = json.loads(messages) if isinstance(messages, str) else messages
    said = "".join(f"<|im_start|>{part['role']}\n{part['content']}<|im_end|>\n" for part in parts)
    return said + "<|im_start|>assistant\n"


def tokens_of(command: dict[str, Any]) -> list[int]:
    return command["tokens"] if "tokens" in command else tokenize(command.get("prompt", ""))


def tokenize(text: str) -> list[int]:
    return [zlib.crc32(part.encode()) % 32000 for part in text.split(" ") if part]


@dataclass
class Engine:
    flags: argparse.Namespace
    requests: dict[str, Request] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    taken: int = 0  # lines of input
    streamed: int = 0
    steps: int = 0
    stalled: bool = False
    pending: bytes = b""
    input_open: bool = True
    seeds: int = 0
    over: dict[str, Request] = field(default_factory=dict)  # what continue may name

    # The loop

    def run(self) -> None:
        self.load()
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(1, 0)  # POLLERR: nobody reads any more
        while self.input_open or self.requests or self.flags.ignore_eof:
            busy = bool(self.requests)
            for descriptor, event in poll.poll(1000 * self.flags.token_delay if busy else None):
                if descriptor == 1:
                    os._exit(0)
                if event:
                    self.read(poll)
            self.step()
            self.write()

    def read(self, poll: Any) -> None:
        chunk = os.read(0, 1 << 16)
        if not chunk:
            self.input_open = False
            poll.unregister(0)
        *lines, self.pending = (self.pending + chunk).split(b"\n")
        for line in lines:
            self.taken += 1
            if line.strip():
                self.obey(line)

    def write(self) -> None:
        """One write for all lines of a step."""
        data = memoryview("".join(self.lines).encode())
        self.lines.clear()
        while data:
            try:
                data = data[os.write(1, data) :]
            except BrokenPipeError:
                os._exit(0)

    def say(self, event: str, **fields: Any) -> None:
        line = json.dumps({"event": event, **fields}, ensure_ascii=False, separators=(",", ":"))
        self.lines.append(line + "\n")

    def note(self, what: str) -> None:
        """A line in the journal, for tests that ask what happened in here."""
        if self.flags.journal:
            with open(self.flags.journal, "a") as journal:
                journal.write(json.dumps({"time": time.monotonic(), "pid": os.getpid(), "what": what}) + "\n")

    # Loading

    def load(self) -> None:
        flags = self.flags
        self.note("loading")
        print("fake engine: loading", file=sys.stderr, flush=True)
        for percent in (0, 50):
            self.say("loading", progress=percent / 100)
            self.write()
            time.sleep(flags.load_seconds / 2)
        if flags.exit_while_loading is not None:
            print("fake engine: " + flags.last_words, file=sys.stderr, flush=True)
            sys.exit(flags.exit_while_loading)
        if flags.no_ready:
            self.hang()
        model = {"name": "fake", "n_params": 3_000_000}
        self.say("ready", protocol=flags.protocol, model=model, n_ctx=N_CTX, n_ctx_sequence=N_CTX,
                 max_sequences=flags.parallel, backend="fake", cpu="native")  # fmt: skip
        self.note("ready")
        self.write()

    def hang(self) -> None:
        self.note("hanging")
        while True:
            time.sleep(3600)

    # Commands

    def obey(self, line: bytes) -> None:
        command: Any = None
        try:
            command = json.loads(line)
            if isinstance(command, dict) and command.get("op") in self.flags.overlook:
                return
            if isinstance(command, dict) and command.get("op") in ACCEPTED and command.get("id"):
                self.say("accepted", id=command["id"], line=self.taken)
            check(command)
            self.note(f"{command['op']} {command.get('index', '')}".strip())
            getattr(self, "do_" + command["op"])(command)
        except (Refused, ValueError, RecursionError) as error:
            code, param = getattr(error, "code", "invalid_request"), getattr(error, "param", "")
            op, id = (command.get("op"), command.get("id")) if isinstance(command, dict) else ("", "")
            known = {"param": param} if param else {}
            nobodys = not isinstance(id, str) or op in ABOUT_ANOTHER
            self.say(
                "error", id="" if nobodys else id, code=code, message=str(error), **known, line=self.taken
            )

    def do_generate(self, command: dict[str, Any]) -> None:
        id, n = command["id"], command.get("n", 1)
        if id in self.requests:
            self.say(
                "error",
                id="",
                code="invalid_request",
                message=f"the id {id!r} is not done",
                param="id",
                line=self.taken,
            )
            return
        text = self.begun(command) + self.text_of(command)
        self.seeds += 1
        seed = command.get("sampling", {}).get("seed", NO_SEED)
        seed = self.seeds if seed == NO_SEED else seed
        make = functools.partial(self.sequence, command, text, seed)
        limit = command.get("max_tokens", 128)
        sequences = [make(index, limit) for index in range(n)]
        taken = sum(len(r.running) for r in self.requests.values())
        echo = text if command.get("echo") else None
        size = len(tokenize(text)) if "tokens" not in command else len(command["tokens"])
        self.requests[id] = Request(id, n, size, seed, list(sequences), echo, text, sequences, limit)
        self.requests[id].sum_logprobs = command.get("sum_logprobs", False)
        self.requests[id].logprobs = command.get("logprobs") if self.flags.alternatives else None
        if taken >= self.flags.parallel:
            self.say("queued", id=id, position=sum(not r.started for r in self.requests.values()))

    do_chat = do_generate  # the answer is content, and nothing else

    def text_of(self, command: dict[str, Any]) -> str:
        return command["prompt"] if "prompt" in command else " ".join(map(str, command.get("tokens", ())))

    def begun(self, command: dict[str, Any]) -> str:
        """What comes before the prompt: the sequence that continue names, after its own prompt."""
        if (named := command.get("continue")) is None:
            return ""
        request = (self.over | self.requests).get(named.get("id", ""))
        if request is None or named["index"] >= len(request.sequences):
            raise Refused("continue", f"continue names {named}, which is not known here")
        sequence = request.sequences[named["index"]]
        length = min(sequence.length, named.get("at", sequence.length))
        return request.text + "".join(map(sequence.word, range(length)))

    def do_score(self, command: dict[str, Any]) -> None:
        """A word's logprob is -1 over its place, in the texts of one request."""
        id, prompt, n = command["id"], tokens_of(command), 0
        self.say(
            "start", id=id, count=len(command["texts"]), prompt_tokens=len(prompt), cached_tokens=0, seed=0
        )
        for index, text in enumerate(command["texts"]):
            ids = text if isinstance(text, list) else tokenize(text)
            words = map(str, text) if isinstance(text, list) else text.split()
            tokens = [
                {"id": token, "text": said, "logprob": -1 / (i + 1), "top": []}
                for i, (token, said) in enumerate(zip(ids, words, strict=True))
            ]
            n += len(tokens)
            self.say("score", id=id, index=index, count=len(tokens), greedy=False,
                     logprob=sum(token["logprob"] for token in tokens), tokens=tokens)  # fmt: skip
        self.say("done", id=id, count=len(command["texts"]), prompt_tokens=len(prompt), cached_tokens=0,
                 completion_tokens=n, timings={"total_ms": 1.0})  # fmt: skip

    def do_embed(self, command: dict[str, Any]) -> None:
        """Two numbers, of its length; the sum of their squares is 1."""
        n = 0
        for index, text in enumerate(command["input"]):
            size = len(text if isinstance(text, list) else tokenize(text))
            vector = [math.sin(size), math.cos(size)]
            self.say("embedding", id=command["id"], index=index, count=size, embedding=vector)
            n += size
        self.say("done", id=command["id"], count=len(command["input"]), prompt_tokens=n, cached_tokens=0,
                 completion_tokens=0, timings={})  # fmt: skip

    def do_prefix(self, command: dict[str, Any]) -> None:
        """One token a step, so that a long one takes its time."""
        client = command.get("client", "")
        for request in [r for r in self.requests.values() if r.n == 0 and r.client == client]:
            self.close_prefix(request)
        size = len(tokens_of(command))
        self.requests[command["id"]] = Request(command["id"], 0, size, 0, [], to_compute=size, client=client)

    def close_prefix(self, request: Request) -> None:
        request.to_compute = 0
        self.close(request)

    def do_extend(self, command: dict[str, Any]) -> None:
        request, fork = self.requests.get(command["id"]), command.get("fork")
        if request is None or request.n == 0:
            raise Refused("id", f"extend: there is no request {command['id']!r} that is not done")
        if fork is not None and fork["index"] >= request.n:
            raise Refused("fork", f"fork.index is {fork['index']}; the request has {request.n} sequences")
        first = request.n
        request.limit = command.get("max_tokens", request.limit)
        for sequence in request.running:
            longer = sequence.more(sequence.index, request.limit)
            sequence.total, sequence.finish_reason = longer.total, longer.finish_reason
        for index in range(first, first + command.get("add", 1)):
            self.add_sequence(request, request.sequences[0].more(index, request.limit), fork)
        self.say("extend", id=request.id, first=first, count=request.n)

    def add_sequence(self, request: Request, sequence: Sequence, fork: dict[str, int] | None) -> None:
        if fork is not None:
            begun = request.sequences[fork["index"]].length
            sequence.length = min(begun, fork.get("at", begun))
        request.n += 1
        request.sequences.append(sequence)
        request.running.append(sequence)

    def sequence(self, command: dict[str, Any], prompt: str, seed: int, index: int, limit: int) -> Sequence:
        """What a sequence will say is known beforehand, so nothing of a stop string need be held back."""
        more = functools.partial(self.sequence, command, prompt, seed)
        limit = sys.maxsize if limit < 0 else limit
        tail = zlib.crc32(f"{prompt}{index}".encode()) % END_AFTER
        endless = self.flags.endless or command.get("sampling", {}).get("ignore_eos")
        end = sys.maxsize if endless else END_AFTER + tail
        reason = "length" if limit <= end else "stop"
        whole = Sequence(index, functools.partial(word, prompt, seed, index), min(limit, end), reason, more)
        words = story(prompt, seed, index, min(whole.total, 1000)) if command.get("stop") else []
        text = "".join(words)
        cuts = [(text.find(stop), stop) for stop in command.get("stop", []) if stop in text]
        if not cuts:
            return whole
        at, stop_text = min(cuts)
        kept = cut(words, at, at + len(stop_text))
        return Sequence(index, kept.__getitem__, len(kept), "stop", more, stop_text)

    def do_cancel(self, command: dict[str, Any]) -> None:
        request = self.requests.get(command["id"])
        if request is None:
            return
        index, request.to_compute = command.get("index"), 0
        for sequence in [s for s in request.running if index in (None, s.index)]:
            self.stop(request, sequence, "cancelled")
        self.close(request)

    def do_tokenize(self, command: dict[str, Any]) -> None:
        self.say("result", id=command["id"], tokens=tokenize(command["text"]))

    def do_detokenize(self, command: dict[str, Any]) -> None:
        self.say("result", id=command["id"], text=" ".join(map(str, command["tokens"])))

    def do_status(self, command: dict[str, Any]) -> None:
        waiting = sum(not r.started for r in self.requests.values())
        running = len(self.requests) - waiting
        self.say("result", id=command["id"], cells_used=0, requests_running=running, requests_waiting=waiting,
                 steps=self.steps, step_tokens=self.streamed,
                 step_us=2_000_000 * self.steps, model_us=1_500_000 * self.steps)  # fmt: skip

    # Steps

    def step(self) -> None:
        """One token for each of the first sequences, as many as may run at once, in order of arrival."""
        if self.stalled:
            return
        if self.requests:
            self.die()
        self.steps += bool(self.requests)
        if self.flags.stderr_flood and self.requests:
            os.write(2, b"fake engine: a line that nobody asked for\n" * 1500)
        places = self.flags.parallel
        for request in list(self.requests.values()):
            if self.flags.torrent and request.n:
                self.pour(request)
                continue
            for sequence in list(request.running[:places]):
                self.start(request)
                self.advance(request, sequence)
            places = max(0, places - len(request.running))
            request.to_compute -= request.to_compute > 0
            self.close(request)

    def pour(self, request: Request) -> None:
        """A step of all its sequences, whose lines were made once: nobody reads faster than this writes."""
        if not request.steps:
            self.start(request)
            count = PREPARED if request.logprobs is None else 1  # such lines are long
            request.steps = [prepared(request, position) for position in range(count)]
        position = request.running[0].length
        self.lines.append(request.steps[position % len(request.steps)])
        request.completion_tokens += len(request.running)
        for sequence in request.running:
            sequence.length = position + 1
        if position + 1 >= request.limit:
            for sequence in list(request.running):
                self.stop(request, sequence, "length")
            self.close(request)

    def start(self, request: Request) -> None:
        if not request.started:
            request.started = True
            self.say("start", id=request.id, count=request.n, prompt_tokens=request.prompt_tokens,
                     cached_tokens=0, seed=request.seed)  # fmt: skip
            if request.echo is not None:
                self.say("prompt", id=request.id, text=request.echo)

    def advance(self, request: Request, sequence: Sequence) -> None:
        if not sequence.over:
            text = sequence.word(sequence.length)
            if sequence.length == 0:
                text = text.ljust(self.flags.long_line, "x")
            sequence.length += 1
            request.completion_tokens += 1
            if text:
                self.stream(request.id, sequence.index, text)
                if more := tokens_told(text, request.logprobs):
                    self.lines[-1] = self.lines[-1][:-2] + more + "}\n"
        if sequence.over:
            self.stop(request, sequence, sequence.finish_reason)

    def stream(self, id: str, index: int, text: str) -> None:
        self.say("stream", id=id, index=index, text=text)
        self.streamed += 1
        self.misbehave()

    def stop(self, request: Request, sequence: Sequence, reason: str) -> None:
        request.running.remove(sequence)
        text = {"stop_text": sequence.stop_text} if sequence.stop_text and reason == "stop" else {}
        text |= {"logprob": -1.0 * sequence.length - sequence.index} if request.sum_logprobs else {}
        self.say("stop", id=request.id, index=sequence.index, length=sequence.length,
                 stop=int(reason == "stop"), finish_reason=reason, **text)  # fmt: skip

    def close(self, request: Request) -> None:
        """Says done once the last sequence has stopped."""
        if request.running or request.to_compute or request.id not in self.requests:
            return
        self.over[request.id] = self.requests.pop(request.id)
        if self.flags.bad_done:
            self.lines.append(f'{{"event":"done","id":"{request.id}","count":-nan}}\n')
            return
        self.say("done", id=request.id, count=request.n, prompt_tokens=request.prompt_tokens, cached_tokens=0,
                 completion_tokens=request.completion_tokens, timings={"total_ms": 1.0})  # fmt: skip
        self.note("done")
        if self.flags.late_lines:
            self.say("stream", id=request.id, index=0, text=" too late")
            self.say("a_later_protocol's", id=request.id, index=0)

    def die(self) -> None:
        """In the first step, or of a prompt, whichever flag says so; what has started is told before."""
        end = self.end_of_first_step() if self.steps == 0 else "works"
        if self.flags.poison and any(self.flags.poison in request.text for request in self.requests.values()):
            end = "SIGSEGV"
        if end != "works":
            for request in self.requests.values():
                self.start(request)
            self.write()
            os.kill(os.getpid(), signal.Signals[end])

    def end_of_first_step(self) -> str:
        """Of this process, which is the n-th in the journal."""
        if not self.flags.first_steps:
            return "works"
        with open(self.flags.journal) as journal:
            n = sum('"loading"' in line for line in journal)
        ends = self.flags.first_steps.split(",")
        return str(ends[min(n, len(ends)) - 1])

    def misbehave(self) -> None:
        """After the K-th stream event, whichever flag says so."""
        flags = self.flags
        if self.streamed == flags.die_after:
            if flags.half_line:
                self.lines[-1] = self.lines[-1][: len(self.lines[-1]) // 2]
            self.write()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.streamed == flags.bad_line_after:
            self.lines[-1] = self.lines[-1].replace("}", ',"tokens":[{"logprob":-nan}]}')
        if self.streamed == flags.rubbish_after:
            self.lines.append("llama_decode: failed\n")
        if self.streamed == flags.hang_after:
            self.write()
            self.hang()
        if self.streamed == flags.stall_after:
            self.stalled = True
        if self.streamed == flags.exit_after:
            print("fake engine: " + flags.last_words, file=sys.stderr, flush=True)
            self.write()
            sys.exit(1)


def prepared(request: Request, position: int) -> str:
    """The lines of one step, as the engine writes them."""
    made = []
    for sequence in request.running:
        text = sequence.word(position)
        line = {"event": "stream", "id": request.id, "index": sequence.index, "text": text}
        whole = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
        made.append(f"{whole[:-1]}{tokens_told(text, request.logprobs)}}}\n")
    return "".join(made)


@functools.cache
def tokens_told(text: str, logprobs: int | None) -> str:
    """A token with its alternatives as a field, where a flag and the request want them."""
    if logprobs is None:
        return ""
    top = [{"id": i, "text": f" {i}", "logprob": -0.125 * i - 1} for i in range(logprobs)]
    tokens = [{"id": 0, "text": text, "logprob": -1.0, "top": top}]
    return ',"tokens":' + json.dumps(tokens, ensure_ascii=False, separators=(",", ":"))


def cut(words: list[str], at: int, end: int) -> list[str]:
    """The words up to the character `end`, with no text from the character `at` on."""
    kept, position = [], 0
    for one in words:
        if position >= end:
            break
        kept.append(one[: max(0, at - position)])
        position += len(one)
    return kept


def read_flags(argv: list[str]) -> argparse.Namespace:
    # No abbreviations: -c is llama.cpp's, not --code or the like.
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("-np", "--parallel", type=int, default=32, help="sequences that run at once")
    add("--load-seconds", type=float, default=0.0)
    add("--exit-while-loading", type=int, metavar="CODE")
    add("--no-ready", action="store_true", help="load for ever")
    add("--protocol", type=int, default=PROTOCOL)
    add("--token-delay", type=float, default=0.002, help="seconds between steps")
    add("--flood", action="store_true", help="no pause between steps")
    add("--torrent", action="store_true", help="steps of all sequences, made once; heeds only a whole cancel")
    add("--alternatives", action="store_true", help="tokens with logprobs, as many as are asked for")
    add("--endless", action="store_true", help="no story ends before max_tokens")
    add("--die-after", type=int, metavar="K", help="SIGKILL itself after K stream events")
    add(
        "--first-steps",
        metavar="ENDS",
        help="with --journal: SIGNAL,works,…: how each process ends its first step, the last for the rest",
    )
    add("--poison", metavar="TEXT", help="a prompt with this text ends the process by SIGSEGV")
    add("--half-line", action="store_true", help="with --die-after: in the middle of the last line")
    add("--hang-after", type=int, metavar="K", help="do nothing any more after K stream events")
    add("--stall-after", type=int, metavar="K", help="obey on, but make no step after K stream events")
    add("--exit-after", type=int, metavar="K", help="say --last-words and exit with 1 after K stream events")
    add("--last-words", default="the model cannot be loaded", help="on stderr, before it exits")
    add("--rubbish-after", type=int, metavar="K", help="write what is no event after K stream events")
    add("--bad-line-after", type=int, metavar="K", help="the K-th stream event has a number that is none")
    add("--bad-done", action="store_true", help="each done has a number that is none")
    add("--late-lines", action="store_true", help="lines for a request after its done, and of unknown events")
    add(
        "--long-line",
        type=int,
        default=0,
        metavar="BYTES",
        help="the first text of each sequence has this size",
    )
    add("--stderr-flood", action="store_true", help="60 kB of log in each step")
    add("--overlook", metavar="OP", action="append", default=[], help="take no notice of such commands")
    add("--ignore-eof", action="store_true")
    add("--ignore-term", action="store_true")
    add("--self-test", action="store_true", help="say that all is right, and end")
    add("--journal", metavar="FILE", help="append what happens, as JSON lines")
    add("--only-first", metavar="FILE", help="behave if FILE is there, else make it and misbehave")
    flags, _ = parser.parse_known_args(argv)
    if flags.only_first and os.path.exists(flags.only_first):
        journal, parallel, delay = flags.journal, flags.parallel, flags.token_delay
        flags = parser.parse_args([])
        flags.journal, flags.parallel, flags.token_delay = journal, parallel, delay
    elif flags.only_first:
        open(flags.only_first, "w").close()
    if flags.flood:
        flags.token_delay = 0.0
    return flags


def main() -> None:
    flags = read_flags(sys.argv[1:])
    if flags.self_test:
        print("self-test: 96 products on CPU (fake); one request of 8 sequences")
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # its deaths are wanted
    if flags.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Engine(flags).run()


if __name__ == "__main__":
    main()
