"""Runs requests from command to done: a step makes one token for each sequence that may run."""

from __future__ import annotations

import functools
import os
from argparse import Namespace
from typing import Any

from .contest import Contest, certainty_of
from .faults import Faults
from .fields import N_CTX, Refused
from .output import Output
from .requests import Request, Sequence, make_sequence
from .stories import joined, tokenize, tokens_of
from .torrent import prepare, tokens_field

NO_SEED = 2**32 - 1
CELLS = N_CTX
MOST_PINNED = CELLS // 2


def left_out(command: dict[str, Any]) -> list[str]:
    """The warnings of a lenient command: about the keyword that engines most often leave out."""
    found = command.get("lenient") and "uniqueItems" in str(command.get("json_schema"))
    return ["json_schema: /uniqueItems: items that must differ; it is left out"] if found else []


class Scheduler:
    def __init__(self, flags: Namespace, output: Output, faults: Faults) -> None:
        self.flags, self.output, self.faults = flags, output, faults
        self.requests: dict[str, Request] = {}
        self.over: dict[str, Request] = {}  # ended requests, which continue may name
        self.contests: dict[str, Contest] = {}  # of generations, by id
        self.pins: dict[str, int] = {}  # tokens by name
        self.seeds = self.streamed = self.steps = self.guessed = self.drafts = 0

    # Commands

    def generate(self, command: dict[str, Any]) -> None:
        text = self.text_before(command) + text_of(command)
        self.seeds += 1
        seed = command.get("sampling", {}).get("seed", NO_SEED)
        seed = self.seeds if seed == NO_SEED else seed
        make = functools.partial(make_sequence, self.flags, command, text, seed)
        limit = command.get("max_tokens", 128)
        sequences = [make(index, limit) for index in range(command.get("n", 1))]
        taken = sum(len(r.running) for r in self.requests.values())
        prompt_tokens = len(command["tokens"]) if "tokens" in command else len(tokenize(text))
        kept = command.get("truncate_prompt_tokens", -1)
        request = Request(
            id=command["id"],
            n=len(sequences),
            prompt_tokens=min(prompt_tokens, kept) if kept > 0 else prompt_tokens,
            seed=seed,
            running=list(sequences),
            echo=text if command.get("echo") else None,
            text=text,
            sequences=sequences,
            limit=limit,
            sum_logprobs=command.get("sum_logprobs", False),
            guesses=command.get("draft", 0) > 0,
            logprobs=command.get("logprobs") if self.flags.alternatives else None,
            priority=command.get("priority", 0),
            warnings=left_out(command),
        )
        request.certainty = command.get("certainty", False)
        self.requests[request.id] = request
        self.contests[request.id] = Contest(command)
        if taken >= self.flags.parallel:
            position = sum(not r.started for r in self.requests.values())
            self.output.event("queued", id=request.id, position=position)

    def text_before(self, command: dict[str, Any]) -> str:
        """The prompt and text of the sequence that continue names."""
        if (named := command.get("continue")) is None:
            return ""
        request = (self.over | self.requests).get(named["id"])
        if request is None or named["index"] >= len(request.sequences):
            raise Refused("continue", f"continue names {named}, which is not known here")
        sequence = request.sequences[named["index"]]
        length = min(sequence.length, named.get("at", sequence.length))
        return request.text + "".join(map(sequence.word, range(length)))

    def prefix(self, command: dict[str, Any]) -> None:
        """One token a step, so that a long prefix takes long."""
        client = command.get("client", "")
        for request in [r for r in self.requests.values() if r.n == 0 and r.client == client]:
            request.to_compute = 0
            self.close(request)
        size = len(tokens_of(command))
        self.requests[command["id"]] = computing(command, size, client)

    def pin(self, command: dict[str, Any]) -> None:
        """As a prefix; its tokens are pinned at once."""
        if (size := len(tokens_of(command))) > MOST_PINNED:
            raise Refused("prompt", f"{size} cells would be pinned; at most {MOST_PINNED} cells may be")
        self.pins[command["name"]] = size
        self.requests[command["id"]] = computing(command, size, "a pin")

    def extend(self, command: dict[str, Any]) -> None:
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
        self.output.event("extend", id=request.id, first=first, count=request.n)

    def add_sequence(self, request: Request, sequence: Sequence, fork: dict[str, int] | None) -> None:
        if fork is not None:
            begun = request.sequences[fork["index"]].length
            sequence.length = min(begun, fork.get("at", begun))
        request.n += 1
        request.sequences.append(sequence)
        request.running.append(sequence)

    def cancel(self, command: dict[str, Any]) -> None:
        request = self.requests.get(command["id"])
        if request is None:
            return
        index, request.to_compute = command.get("index"), 0
        for sequence in [s for s in request.running if index in (None, s.index)]:
            self.stop(request, sequence, command.get("reason", "cancelled"))
        self.close(request)

    def counts(self) -> dict[str, int]:
        """The fields of a status."""
        started = [request for request in self.requests.values() if request.started]
        running = [sequence for request in started for sequence in request.running]
        pinned, live = sum(self.pins.values()), min(len(running), self.flags.parallel)
        first = [request for request in self.requests.values() if request.priority == 0]  # others yield
        mine = sum(len(request.running) for request in first if request.started)
        return {
            "cells": CELLS,
            "cells_used": pinned + sum(sequence.length for sequence in running),
            "cells_idle": 0,
            "cells_pinned": pinned,
            "cells_shared": 0,
            "requests": len(started),
            "queued": sum(not request.started for request in first),
            "sequences": live,
            "sequences_waiting": max(0, mine - self.flags.parallel),
            "steps": self.steps,
            "step_tokens": self.streamed,
            "step_us": 2_000_000 * self.steps,
            "model_us": 1_500_000 * self.steps,
            "draft_prompt": self.guessed,
            "drafts": self.drafts,
        }

    # Steps

    def step(self) -> None:
        """Makes a token for each of the oldest sequences of the first priority, as many as may run."""
        if self.faults.stalled or not self.requests:
            return
        self.die_if_asked()
        self.steps += 1
        self.faults.before_step()
        places = self.flags.parallel
        first = min(request.priority for request in self.requests.values())
        for request in [request for request in self.requests.values() if request.priority == first]:
            if self.flags.torrent and request.n:
                self.pour(request)
                continue
            for sequence in list(request.running[:places]):
                self.start(request)
                if sequence in request.running:
                    self.advance(request, sequence)
            self.pass_marks(request)
            places = max(0, places - len(request.running))
            request.to_compute -= request.to_compute > 0
            self.close(request)

    def pass_marks(self, request: Request) -> None:
        if (contest := self.contests.get(request.id)) is not None:
            for sequence in list(contest.beaten(request)):
                self.stop(request, sequence, "pruned")

    def die_if_asked(self) -> None:
        """Dies once every request has had its start event."""
        signal = self.faults.signal_of_step(self.steps, (r.text for r in self.requests.values()))
        if signal is not None:
            for request in self.requests.values():
                self.start(request)
            self.output.write()
            os.kill(os.getpid(), signal)

    def pour(self, request: Request) -> None:
        """Writes a step of all sequences from prepared lines, faster than any reader reads."""
        if not request.steps:
            self.start(request)
            request.steps = prepare(request)
        position = request.running[0].length
        self.output.line(request.steps[position % len(request.steps)])
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
            warned = {"warnings": request.warnings} if request.warnings else {}
            self.output.event("start", id=request.id, count=request.n, prompt_tokens=request.prompt_tokens,
                              cached_tokens=0, seed=request.seed, **warned)  # fmt: skip
            if request.echo is not None:
                self.output.event("prompt", id=request.id, text=request.echo)

    def advance(self, request: Request, sequence: Sequence) -> None:
        if not sequence.over:
            text = sequence.word(sequence.length)
            if sequence.length == 0:
                text = text.ljust(self.flags.long_line, "x")
            sequence.length += 1
            request.completion_tokens += 1
            if text and not sequence.silent:
                self.stream(request, sequence.index, text)
        if sequence.over and sequence.second:
            self.begin_second(request, sequence)
        elif sequence.over:
            self.stop(request, sequence, sequence.finish_reason)
            for other in list(request.running) if self.contests[request.id].is_over else ():
                self.stop(request, other, "surplus")

    def begin_second(self, request: Request, free: Sequence) -> None:
        """The second answer takes the place of the free one."""
        assert free.second
        if not free.silent:
            self.output.event("then", id=request.id, **self.end_of(free, free.finish_reason))
        second = free.second()
        second.free_length = free.length
        request.running[request.running.index(free)] = request.sequences[free.index] = second

    def stream(self, request: Request, index: int, text: str) -> None:
        self.output.event("stream", id=request.id, index=index, text=text)
        if tokens := tokens_field(text, request.logprobs):
            self.output.change_last("}\n", tokens + "}\n")
        self.streamed += 1
        self.faults.after_stream(self.streamed)

    def stop(self, request: Request, sequence: Sequence, reason: str) -> None:
        request.running.remove(sequence)
        text: dict[str, Any] = (
            {"logprob": -1.0 * sequence.length - sequence.index} if request.sum_logprobs else {}
        )
        text |= {"certainty": certainty_of(sequence)} if request.certainty else {}
        self.contests[request.id].stopped(sequence, reason, request.limit)
        end = self.end_of(sequence, reason)
        if (free := sequence.free_length) is not None:
            text["free_length"] = free
            end["length"] += free
        self.output.event("stop", id=request.id, **end, **text)

    def guesses_of(self, request: Request) -> dict[str, float]:
        if not request.guesses:
            return {}
        self.guessed += request.completion_tokens
        self.drafts += 1
        return {"draft_n": request.completion_tokens, "draft_n_accepted": request.completion_tokens - 1}

    def end_of(self, sequence: Sequence, reason: str) -> dict[str, Any]:
        """The fields of an answer's end."""
        text = {"stop_text": sequence.stop_text} if sequence.stop_text and reason == "stop" else {}
        return {
            "index": sequence.index, "length": sequence.length, "stop": int(reason == "stop"),
            "finish_reason": reason, **text,
        }  # fmt: skip

    def close(self, request: Request) -> None:
        """Writes done if the last sequence has stopped."""
        if request.running or request.to_compute or request.id not in self.requests:
            return
        self.over[request.id] = self.requests.pop(request.id)
        contest = self.contests.pop(request.id, None)
        if self.faults.bad_done(request.id):
            return
        self.output.event("done", id=request.id, count=request.n, prompt_tokens=request.prompt_tokens,
                          cached_tokens=0, completion_tokens=request.completion_tokens,
                          timings={"total_ms": 1.0, **(contest.timings if contest else {}),
                                   **self.guesses_of(request)})  # fmt: skip
        self.output.note("done")
        self.faults.after_done(request.id)


def text_of(command: dict[str, Any]) -> str:
    return joined(command["prompt"]) if "prompt" in command else " ".join(map(str, command.get("tokens", ())))


def computing(command: dict[str, Any], size: int, client: str) -> Request:
    """A request that only computes its prompt."""
    return Request(id=command["id"], n=0, prompt_tokens=size, seed=0, to_compute=size, client=client)
