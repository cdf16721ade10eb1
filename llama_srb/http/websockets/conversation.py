"""A chat with a task on one WebSocket. This module holds the turns, each with n candidates for the answer.

One turn runs at a time. A client chooses the candidate that the chat goes on from; without a choice it is the
first one, or the best one of a ranking. The prompt of a turn repeats the turns before, so it finds their
cells in the prefix cache, those of the chosen candidate too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aiohttp import web

from llama_srb.dialects import events
from llama_srb.dialects.common.reply import Text, Transcript
from llama_srb.dialects.common.response_types import noted
from llama_srb.dialects.tasks import turns
from llama_srb.engine.events import Error
from llama_srb.engine.exchange import EngineUnavailable, Exchange
from llama_srb.engine.ranking import joining
from llama_srb.http.websockets.client_socket import ClientSocket, Delivered
from llama_srb.request.fields import CompletionRequest, Recalled
from llama_srb.request.values import RequestError, whole
from llama_srb.serving.admission import Reservation
from llama_srb.serving.bodies import without_stalling
from llama_srb.serving.context import RequestContext
from llama_srb.serving.generation import prepared, rank_of
from llama_srb.serving.keys.caller import Caller
from llama_srb.serving.running import unranked


@dataclass(slots=True, eq=False)
class _Turn:
    """A question, and the candidates for the answer; answer: the text of the chosen one."""

    number: int
    question: str
    context: RequestContext
    request: CompletionRequest
    reservation: Reservation
    transcript: Transcript[Text]
    task: asyncio.Task[None] | None = None
    generation: Exchange | None = None
    is_cancelled: bool = False
    answer: str | None = None
    recalled: Mapping[int, tuple[Recalled, ...]] = field(default_factory=dict)

    @property
    def is_running(self) -> bool:
        return self.task is not None and not self.task.done()

    def cancel(self, index: int | None = None) -> None:
        self.is_cancelled = self.is_cancelled or index is None
        if self.generation is not None:
            self.generation.cancel(index)

    def choose(self, index: int) -> None:
        self.answer = self.transcript.texts[index].text


class Conversation(ClientSocket):
    """One client's chat.

    choose: finds the task's model for a body. max_held: tokens and alternatives of candidates that a turn may
    hold back.
    """

    def __init__(
        self,
        socket: web.WebSocketResponse,
        caller: Caller,
        choose: Callable[[Mapping[str, Any], Caller], RequestContext],
        delivered: Delivered = contextlib.ExitStack,
        max_held: int | None = None,
    ) -> None:
        super().__init__(socket, caller, delivered)
        self._choose, self._max_held = choose, max_held
        self._turns: list[_Turn] = []

    def refusal(self, why: RequestError) -> str:
        return turns.error(why.message, param=why.param, code=why.code)

    async def handle(self, data: str | bytes, held: contextlib.ExitStack) -> None:
        try:
            command = await without_stalling(len(data), turns.parse, data)
            await self._run(command, held, len(data))
        except RequestError as error:
            await self.send(self.refusal(error))
        except EngineUnavailable as error:
            await self.send(turns.error(str(error), code="unavailable"))

    async def _run(self, command: turns.Command, held: contextlib.ExitStack, size: int) -> None:
        match command.op:
            case "turn":
                await self._begin(command, held, size)
            case "choose":
                await self._choose_candidate(command.body)
            case "cancel":
                turn = self._last(running=True)
                index = command.body.get("index")
                turn.cancel(None if index is None else whole("index", index, 0, turn.request.n - 1))

    def _last(self, *, running: bool = False) -> _Turn:
        if not self._turns or (running and not self._turns[-1].is_running):
            raise RequestError(f"no turn {'is running' if running else 'has begun'}", param="op")
        return self._turns[-1]

    async def _begin(self, command: turns.Command, held: contextlib.ExitStack, size: int) -> None:
        if self._turns and self._turns[-1].is_running:
            running = self._turns[-1].number
            raise RequestError(f"turn {running} is running; wait for done, choose, or cancel it", param="op")
        messages = [message for turn in self._turns for message in _messages_of(turn)]
        messages.append({"role": "user", "content": command.text})
        trace = held.enter_context(self.caller.trace.request())
        context = self._choose({**command.body, "messages": messages}, self.caller.traced(trace))
        request = await without_stalling(size, events.parse, context.body, context.defaults)
        context.check(request)
        recalled = {key: found for turn in self._turns for key, found in turn.recalled.items()}
        request = request.model_copy(update={"recalled": recalled})
        reservation = held.enter_context(context.reserve())
        transcript = Transcript(request.n, Text, Text.add_text)
        turn = _Turn(len(self._turns), command.text, context, request, reservation, transcript)
        self._turns.append(turn)
        kept, turn.task = held.pop_all(), self.spawn(self._answer(turn))
        turn.task.add_done_callback(lambda _: kept.close())  # also if it was cancelled before it ran

    async def _answer(self, turn: _Turn) -> None:
        """Only a turn that ends with done stays; of the turns before it only the answers are kept."""
        if await self.attempt(self._generate(turn), partial(turns.error, turn=turn.number)):
            for before in self._turns[:-1]:
                before.transcript.texts.clear()
        else:
            self._turns.remove(turn)

    async def _generate(self, turn: _Turn) -> bool:
        """Whether it ends with done."""
        turn.request = request = await prepared(turn.request, turn.context, turn.reservation)
        turn.recalled = request.recalled
        turn.generation = generation = turn.reservation.generate(request, shows_loading=True)
        if turn.is_cancelled:
            generation.cancel()
        rank, join = rank_of(request, turn.context, self._max_held, generation), joining(request, unranked)
        notes = noted(request)
        async with generation:
            async for batch in generation:
                ranked = await rank(batch)
                turn.transcript.take(await join(ranked))
                for text in turns.render(turn.number, ranked, notes):
                    await self.send(text)
                if ranked and isinstance(ranked[-1], Error):
                    return False
        return True

    async def _choose_candidate(self, body: Mapping[str, Any]) -> None:
        """Goes on from a candidate that has ended; those that still run are cancelled."""
        turn = self._last()
        index = whole("index", body.get("index"), 0, len(turn.transcript.texts) - 1)
        if turn.is_running and turn.transcript.texts[index].stop is None:
            message = f"sequence {index} of turn {turn.number} is running; choose it when it has stopped"
            raise RequestError(message, param="index")
        turn.choose(index)
        if turn.is_running and turn.task is not None:
            turn.cancel()
            await asyncio.wait({turn.task})
        await self.send(turns.chosen(turn.number, index))


def _messages_of(turn: _Turn) -> list[dict[str, str]]:
    if turn.answer is None:
        turn.choose(turn.transcript.ordered[0])
    return [
        {"role": "user", "content": turn.question},
        {"role": "assistant", "content": turn.answer or ""},
    ]
