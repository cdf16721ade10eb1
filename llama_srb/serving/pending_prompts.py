"""Prompts that are being stored while their requests go on. A later look at the memory waits for its own."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from llama_srb.background import begin

log = logging.getLogger(__name__)

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class Named(NamedTuple):
    """The document that a prompt becomes. shared: whether its memory has it once for all owners."""

    memory: str
    owner: str
    id: str
    shared: bool = False


@dataclass(slots=True, eq=False)
class _Prompt:
    """A prompt that is being stored. before: it and all of its owner that have begun before it are there."""

    named: Named
    task: asyncio.Task[None]
    before: asyncio.Future[None]


class Pending:
    """The prompts that are being stored. A look waits for one future, however many there are."""

    def __init__(self) -> None:
        self._begun: dict[Named, _Prompt] = {}
        self._of_owners: defaultdict[tuple[str, str], deque[_Prompt]] = defaultdict(deque)
        self._last: dict[tuple[str, str], asyncio.Task[None]] = {}  # by memory and id, if it is shared
        self._ended = False

    def begin(self, named: Named, work: Work) -> None:
        """Runs `work`, unless what it stores is being stored for this owner.

        In a shared memory it runs behind the last one of the same id, so that only one of them is stored.
        """
        if self._ended:
            _log_lost([named])
        elif named not in self._begun:
            same = named[::2]
            last = self._last.get(same)
            task = begin(_after(last, work), f"store a prompt in {named.memory}")
            if named.shared:
                self._last[same] = task
            prompt = _Prompt(named, task, asyncio.get_running_loop().create_future())
            self._begun[named] = prompt
            self._of_owners[named[:2]].append(prompt)
            task.add_done_callback(lambda _: self._stored(prompt))

    async def wait(self, memory: str, owner: str) -> None:
        """Returns when all prompts of this owner are stored whose requests had begun before."""
        if prompts := self._of_owners.get((memory, owner)):
            await asyncio.wait({prompts[-1].before})  # which does not cancel it

    async def wait_for_all(self) -> None:
        while self._begun:
            await asyncio.wait([one[-1].before for one in self._of_owners.values()])

    async def end(self) -> None:
        """Ends what is not stored yet, and says how many these are; no prompt is stored afterwards."""
        self._ended = True
        if left := list(self._begun.values()):
            _log_lost([one.named for one in left])
            for one in left:
                one.task.cancel()
            await asyncio.wait([one.task for one in left])

    def _stored(self, prompt: _Prompt) -> None:
        named = prompt.named
        del self._begun[named]
        if self._last.get(named[::2]) is prompt.task:
            del self._last[named[::2]]
        prompts = self._of_owners[named[:2]]
        while prompts and prompts[0].task.done():
            prompts.popleft().before.set_result(None)
        if not prompts:
            del self._of_owners[named[:2]]


async def _after(last: asyncio.Task[None] | None, work: Work) -> None:
    if last is not None:
        await asyncio.wait({last})
    await work()


def _log_lost(prompts: list[Named]) -> None:
    for (memory, owner), count in Counter(one[:2] for one in prompts).items():
        what = f"a prompt of {owner} was" if count == 1 else f"{count} prompts of {owner} were"
        log.warning("memory %s: %s not stored: the server stops", memory, what)
