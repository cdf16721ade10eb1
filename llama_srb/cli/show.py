"""How a completion is shown: side by side on a terminal, numbered in a pipe, as JSON, or event by event.

A show reads the Answer that its caller fills and is told of each event; it does not know who sends them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text as Styled

from llama_srb.client import Answer, Choice, Done, Event, Progress, Queued, Stop, as_json

REFRESHES_PER_SECOND = 12
MIN_WIDTH, MIN_HEIGHT = 26, 4  # of a panel, borders included: two lines of four words
MAX_WIDTH = 104  # longer lines are hard to read
FRAME_WIDTH, FRAME_HEIGHT = 4, 2

# What a model writes must not steer the terminal: control characters become their pictures.
VISIBLE = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
VISIBLE |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


class Show:
    """Shows nothing yet; used in a `with` block around the events."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def take(self, event: Event) -> None:
        """Called with each event, once the answer has it."""


# ----------------------------------------------------------------------------------------------------
# For programs
# ----------------------------------------------------------------------------------------------------


class Plain(Show):
    """`[index] text`, each when it and all before it are complete, an empty line between two."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self._ended: set[int] = set()
        self._next = 0

    def take(self, event: Event) -> None:
        if isinstance(event, Stop):
            self._ended.add(event.index)
        while self._next in self._ended:
            gap = "\n" if self._next else ""
            print(f"{gap}[{self._next}] {self.answer.choice(self._next).text}", flush=True)
            self._next += 1


class Events(Show):
    """Each event as one line of JSON, at once; an error event is the last line."""

    def take(self, event: Event) -> None:
        print(json.dumps(as_json(event), ensure_ascii=False), flush=True)


class Whole(Show):
    """One JSON object, when all is done."""

    def take(self, event: Event) -> None:
        if isinstance(event, Done):
            print(json.dumps(self._object(event), ensure_ascii=False, indent=2), flush=True)

    def _object(self, done: Done) -> dict[str, Any]:
        start = self.answer.start
        return {
            "choices": [_choice(choice) for choice in self.answer.choices],
            "seed": start.seed if start else None,
            "usage": {
                "prompt_tokens": done.prompt_tokens,
                "cached_tokens": done.cached_tokens,
                "completion_tokens": done.completion_tokens,
                "total_tokens": done.prompt_tokens + done.completion_tokens,
            },
            "timings": dict(done.timings),
        }


def _choice(choice: Choice) -> dict[str, Any]:
    """A choice as JSON; tokens only when logprobs were asked for."""
    data = asdict(choice)
    return data if choice.tokens else {name: value for name, value in data.items() if name != "tokens"}


# ----------------------------------------------------------------------------------------------------
# For people
# ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Sequence:
    """What one panel shows; text is only the end of it, since that is all that fits."""

    index: int
    text: str = ""
    tokens: int = 0
    finish_reason: str | None = None

    @property
    def runs(self) -> bool:
        return self.tokens > 0 and self.finish_reason is None

    @property
    def state(self) -> str:
        """How far it is, or how it ended."""
        if not self.runs and self.finish_reason is None:
            return "waits"
        tokens = f"{self.tokens} token{'' if self.tokens == 1 else 's'}"
        return f"{tokens}, {self.finish_reason}" if self.finish_reason else tokens

    @property
    def colour(self) -> str:
        colours = {None: "cyan" if self.runs else "dim", "stop": "green", "length": "yellow"}
        return colours.get(self.finish_reason, "red")

    def grow(self, text: str) -> None:
        self.tokens += 1
        self.text += text.translate(VISIBLE)


@dataclass(frozen=True, slots=True)
class Grid:
    """How panels stand on a screen, in characters."""

    columns: int
    rows: int
    width: int
    height: int

    @property
    def places(self) -> int:
        return self.columns * self.rows

    @property
    def text_area(self) -> int:
        return (self.width - FRAME_WIDTH) * (self.height - FRAME_HEIGHT)


def grid(n: int, width: int, height: int) -> Grid:
    """The grid that shows most of n panels, and of those grids the one with most text."""
    most_rows = max(1, height // MIN_HEIGHT)
    grids = []
    for columns in range(1, max(1, width // MIN_WIDTH) + 1):
        rows = min(-(-n // columns), most_rows)
        grids.append(Grid(columns, rows, min(width // columns, MAX_WIDTH), height // rows))
    return max(grids, key=lambda grid: (min(n, grid.places), grid.text_area))


@dataclass(slots=True)
class Places:
    """Which sequences are on the screen: one that has ended makes room for one that runs and has no place."""

    shown: list[int] = field(default_factory=list)

    def update(self, sequences: list[Sequence], places: int) -> list[Sequence]:
        """The sequences to show, each at its place."""
        del self.shown[places:]
        unseen = [s.index for s in sequences if s.index not in self.shown and s.runs]
        for place, index in enumerate(self.shown):
            if unseen and sequences[index].finish_reason is not None:
                self.shown[place] = unseen.pop(0)
        others = [s.index for s in sequences if s.index not in self.shown]
        others.sort(key=lambda index: not sequences[index].runs)
        self.shown += others[: places - len(self.shown)]
        return [sequences[index] for index in self.shown]


class SideBySide(Show):
    """All continuations as they grow, on a screen of their own; their whole texts when that is left."""

    def __init__(self, answer: Answer, waiting_for: str, console: Console) -> None:
        super().__init__(answer)
        self._waiting_for = waiting_for
        self._console = console
        self._sequences: list[Sequence] = []
        self._places = Places()
        self._began = 0.0
        self._live = Live(
            get_renderable=self._render,
            console=console,
            screen=True,
            refresh_per_second=REFRESHES_PER_SECOND,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.refresh()  # rich leaves a screen without it
        self._live.stop()
        self._print()

    def take(self, event: Event) -> None:
        kind = type(event).__name__.lower()
        handle: Callable[[Any], None] | None = getattr(self, f"_on_{kind}", None)
        if handle is not None:
            handle(event)

    def _on_start(self, start: Any) -> None:
        self._sequences = [Sequence(index) for index in range(start.count)]
        self._began = time.monotonic()

    def _on_text(self, text: Any) -> None:
        self._sequences[text.index].grow(text.text)

    def _on_stop(self, stop: Any) -> None:
        if not self._sequences:  # cancelled before its start
            return
        sequence = self._sequences[stop.index]
        sequence.tokens, sequence.finish_reason = stop.length, stop.finish_reason

    # The screen

    def _render(self) -> Group:
        """Called by rich's thread: what it reads only grows, so at worst it shows half of a step."""
        size = self._console.size
        sequences = list(self._sequences)
        if not sequences:
            return Group(self._line(self._waiting()))
        shape = grid(len(sequences), size.width, size.height - 1)
        shown = self._places.update(sequences, shape.places)
        table = Table.grid()
        for start in range(0, len(shown), shape.columns):
            table.add_row(*(self._panel(s, shape) for s in shown[start : start + shape.columns]))
        return Group(table, self._line(self._summary(sequences, len(shown))))

    def _panel(self, sequence: Sequence, shape: Grid) -> Panel:
        return Panel(
            self._end_of(sequence.text, shape),
            title=Styled(str(sequence.index), "bold"),
            title_align="left",
            subtitle=Styled(sequence.state),
            subtitle_align="right",
            border_style=sequence.colour,
            width=shape.width,
            height=shape.height,
        )

    def _end_of(self, text: str, shape: Grid) -> Styled:
        """The last lines that fit. Where it is cut moves rarely: each move breaks all lines anew."""
        area = 2 * shape.text_area
        start = max(0, len(text) // area - 1) * area
        lines = [line for line in text[start:].strip().splitlines() if line.strip()]
        wrapped = Styled("\n".join(lines)).wrap(self._console, shape.width - FRAME_WIDTH)
        return Styled("\n").join(wrapped[-(shape.height - FRAME_HEIGHT) :])

    def _line(self, text: str) -> Styled:
        return Styled(text, style="dim", no_wrap=True, overflow="ellipsis")

    def _waiting(self) -> str:
        match self.answer.last:
            case Queued(position=position):
                return f"queued at position {position}   ^C stops"
        return f"{self._waiting_for} …   ^C stops"

    def _summary(self, sequences: list[Sequence], n_shown: int) -> str:
        n, running = len(sequences), sum(s.runs for s in sequences)
        ended = sum(s.finish_reason is not None for s in sequences)
        tokens = sum(s.tokens for s in sequences)
        if isinstance(self.answer.last, Progress):
            return f"prompt: {self.answer.last.processed} of {self.answer.last.total} tokens   ^C stops"
        speed = tokens / max(time.monotonic() - self._began, 0.001)
        hidden = f" ({n - n_shown} not shown)" if n > n_shown else ""
        return f"{n}{hidden}: {running} run, {ended} ended · {tokens} tokens, {speed:.0f}/s   ^C stops"

    # What stays

    def _print(self) -> None:
        """All texts, whatever ended the view."""
        for choice in self.answer.choices:
            line = Styled(f"[{choice.index}]", "bold cyan").append(" ", "default")
            line.append(choice.text.translate(VISIBLE), "not bold default")
            line.append(f"  ({choice.length} tokens, {choice.finish_reason or 'unfinished'})", "not bold dim")
            self._console.print(line, soft_wrap=True)
            self._console.print()
        if self.answer.start and self.answer.choices:
            self._console.print(self._line(self._account(time.monotonic() - self._began)))

    def _account(self, seconds: float) -> str:
        tokens = sum(choice.length for choice in self.answer.choices)
        assert self.answer.start is not None
        speed = tokens / max(seconds, 0.001)
        return f"seed {self.answer.start.seed} · {tokens} tokens in {seconds:.1f} s · {speed:.0f} tokens/s"


def show_for(answer: Answer, form: str, waiting_for: str) -> Show:
    """The show of a form: json, jsonl, or what suits stdout."""
    console = Console(highlight=False, markup=False, emoji=False)
    if form == "text" and console.is_terminal and not console.is_dumb_terminal:
        return SideBySide(answer, waiting_for, console)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8")  # whatever the locale is: texts hold any character
    return {"text": Plain, "json": Whole, "jsonl": Events}[form](answer)
