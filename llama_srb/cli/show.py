"""Views of a completion: side by side on a terminal, numbered in a pipe, as JSON, or event by event.

The caller fills an Answer and passes each event to the view. The view does not know where events come from.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text as Styled

from llama_srb.client import Answer, Choice, Done, Event, Loading, Progress, Queued, Stop, as_json

REFRESHES_PER_SECOND = 12
MIN_WIDTH, MIN_HEIGHT = 26, 4  # of a panel with its borders: two lines of four words
MAX_WIDTH = 104  # longer lines are hard to read
FRAME_WIDTH, FRAME_HEIGHT = 4, 2
OPTIONAL = {"tokens", "free_length", "free"}  # keys of a choice in JSON

# A model's text must not control the terminal: control characters become visible symbols.
VISIBLE = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
VISIBLE |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


class Show:
    """The base class of views, for a `with` block around the events. It shows nothing."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def take(self, event: Event) -> None:
        """Is called with each event, after the answer has it."""


# ----------------------------------------------------------------------------------------------------
# For programs
# ----------------------------------------------------------------------------------------------------


class Plain(Show):
    """Prints `[index] text` when this and all earlier texts are complete, an empty line between two."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self._ended: set[int] = set()
        self._next = 0

    def take(self, event: Event) -> None:
        if isinstance(event, Stop):
            self._ended.add(event.index)
        while self._next in self._ended:
            gap = "\n" if self._next else ""
            print(f"{gap}[{self._next}] {_text_of(self.answer.choice(self._next))}", flush=True)
            self._next += 1
        if isinstance(event, Done):
            for line in _found(event):
                print(f"\n{line}", flush=True)


class Events(Show):
    """Prints each event at once as a line of JSON; an error event is the last line."""

    def take(self, event: Event) -> None:
        print(json.dumps(as_json(event), ensure_ascii=False), flush=True)


class OneObject(Show):
    """Prints one JSON object at the end."""

    def take(self, event: Event) -> None:
        if isinstance(event, Done):
            print(json.dumps(self._object(event), ensure_ascii=False, indent=2), flush=True)

    def _object(self, done: Done) -> dict[str, Any]:
        start = self.answer.start
        return {
            "choices": [_choice(choice) for choice in self.answer.ranked],
            "seed": start.seed if start else None,
            "usage": {
                "prompt_tokens": done.prompt_tokens,
                "cached_tokens": done.cached_tokens,
                "completion_tokens": done.completion_tokens,
                "total_tokens": done.prompt_tokens + done.completion_tokens,
            },
            "timings": dict(done.timings),
            **({} if done.votes is None else {"votes": list(done.votes)}),
            **({"diversity_stats": dict(done.diversity_stats)} if done.diversity_stats else {}),
        }


def _choice(choice: Choice) -> dict[str, Any]:
    """A choice as JSON; tokens only if the request has logprobs, free answers only if it has `then`."""
    free = choice.free and _choice(choice.free)
    data = {**asdict(replace(choice, free=None)), "free": free}
    return {name: value for name, value in data.items() if name not in OPTIONAL or value not in ((), None)}


def _found(done: Done) -> list[str]:
    """What the comparison of all texts has found, a line each."""
    lines = []
    if len(done.ranking) > 1:
        lines.append("best first: " + ", ".join(map(str, done.ranking)))
    if done.votes is not None:
        votes = ", ".join(f"{one['answer']} {one['count']}" for one in done.votes)
        lines.append(f"votes: {votes or 'none'}")
    if (stats := done.diversity_stats) is not None:
        overlap = stats["mean_overlap"]
        lines.append(
            f"{stats['texts']} texts: {stats['beginnings']} different beginnings, "
            + ("" if overlap is None else f"mean overlap {overlap:.3f}, ")
            + f"effective number {stats['effective_number']:.2f}"
        )
        if guessed := done.timings.get("draft_n"):
            right = done.timings["draft_n_accepted"]
            lines.append(f"guessed {guessed:.0f} tokens, {right:.0f} of them right")
    return lines


def _text_of(choice: Choice) -> str:
    """The text; below the free answer, if that is returned."""
    return f"{choice.free.text}\n{choice.text}" if choice.free else choice.text


# ----------------------------------------------------------------------------------------------------
# For people
# ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Sequence:
    """The contents of one panel, which shows the end of the text."""

    index: int
    text: str = ""
    tokens: int = 0
    finish_reason: str | None = None

    @property
    def runs(self) -> bool:
        return self.tokens > 0 and self.finish_reason is None

    @property
    def state(self) -> str:
        """Its number of tokens, and how it ended."""
        if not self.runs and self.finish_reason is None:
            return "waits"
        tokens = f"{self.tokens} token{'' if self.tokens == 1 else 's'}"
        return f"{tokens}, {self.finish_reason}" if self.finish_reason else tokens

    @property
    def colour(self) -> str:
        colours = {
            None: "cyan" if self.runs else "dim",
            "stop": "green",
            "length": "yellow",
            "repetition": "yellow",
        }
        return colours.get(self.finish_reason, "red")

    def grow(self, text: str) -> None:
        self.tokens += 1
        self.text += text.translate(VISIBLE)


@dataclass(frozen=True, slots=True)
class Grid:
    """The layout of panels on a screen: how many, and their size in characters."""

    columns: int
    rows: int
    width: int
    height: int

    @property
    def panels(self) -> int:
        return self.columns * self.rows

    @property
    def text_area(self) -> int:
        return (self.width - FRAME_WIDTH) * (self.height - FRAME_HEIGHT)


def grid(n: int, width: int, height: int) -> Grid:
    """The grid that shows most of n panels; among equal grids the one that shows most text."""
    max_rows = max(1, height // MIN_HEIGHT)
    grids = []
    for columns in range(1, max(1, width // MIN_WIDTH) + 1):
        rows = min(-(-n // columns), max_rows)
        grids.append(Grid(columns, rows, min(width // columns, MAX_WIDTH), height // rows))
    return max(grids, key=lambda grid: (min(n, grid.panels), grid.text_area))


@dataclass(slots=True)
class Selection:
    """The sequences on the screen. A running one that is not shown replaces one that has ended."""

    shown: list[int] = field(default_factory=list)  # the index of the sequence in each panel

    def update(self, sequences: list[Sequence], panels: int) -> list[Sequence]:
        """The sequences to show, in the order of panels."""
        del self.shown[panels:]
        unseen = [s.index for s in sequences if s.index not in self.shown and s.runs]
        for panel, index in enumerate(self.shown):
            if unseen and sequences[index].finish_reason is not None:
                self.shown[panel] = unseen.pop(0)
        others = [s.index for s in sequences if s.index not in self.shown]
        others.sort(key=lambda index: not sequences[index].runs)
        self.shown += others[: panels - len(self.shown)]
        return [sequences[index] for index in self.shown]


class SideBySide(Show):
    """Shows all continuations as they grow, on the alternate screen; at the end prints their whole texts."""

    def __init__(self, answer: Answer, waiting_for: str, console: Console) -> None:
        super().__init__(answer)
        self._waiting_for = waiting_for
        self._console = console
        self._sequences: list[Sequence] = []
        self._selection = Selection()
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
        self._live.refresh()  # rich does not do this when it leaves a screen
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

    def _on_then(self, then: Any) -> None:
        self._sequences[then.index].text += "\n"

    def _on_stop(self, stop: Any) -> None:
        if not self._sequences:  # cancelled before the start event
            return
        sequence = self._sequences[stop.index]
        sequence.tokens, sequence.finish_reason = stop.length, stop.finish_reason

    # The screen

    def _render(self) -> Group:
        """Draws the screen. rich calls it in a thread: as data only grows, it shows at worst half a step."""
        size = self._console.size
        sequences = list(self._sequences)
        if not sequences:
            return Group(self._line(self._waiting()))
        shape = grid(len(sequences), size.width, size.height - 1)
        shown = self._selection.update(sequences, shape.panels)
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
        """The last lines that fit. The text's start moves rarely, because each move breaks all lines anew."""
        area = 2 * shape.text_area
        start = max(0, len(text) // area - 1) * area
        lines = [line for line in text[start:].strip().splitlines() if line.strip()]
        wrapped = Styled("\n".join(lines)).wrap(self._console, shape.width - FRAME_WIDTH)
        return Styled("\n").join(wrapped[-(shape.height - FRAME_HEIGHT) :])

    def _line(self, text: str) -> Styled:
        return Styled(text, style="dim", no_wrap=True, overflow="ellipsis")

    def _waiting(self) -> str:
        match self.answer.last:
            case Loading(progress=progress):
                return f"the model is loading: {progress:.0%}   ^C stops"
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

    # After the screen

    def _print(self) -> None:
        """Prints all texts, also after an error."""
        for choice in self.answer.choices:
            line = Styled(f"[{choice.index}]", "bold cyan").append(" ", "default")
            line.append(_text_of(choice).translate(VISIBLE), "not bold default")
            line.append(f"  ({choice.length} tokens, {choice.finish_reason or 'unfinished'})", "not bold dim")
            self._console.print(line, soft_wrap=True)
            self._console.print()
        if self.answer.start and self.answer.choices:
            self._console.print(self._line(self._totals(time.monotonic() - self._began)))
        if self.answer.done is not None:
            for found in _found(self.answer.done):
                self._console.print(Styled(found.translate(VISIBLE)))

    def _totals(self, seconds: float) -> str:
        tokens = sum(choice.length for choice in self.answer.choices)
        assert self.answer.start is not None
        speed = tokens / max(seconds, 0.001)
        return f"seed {self.answer.start.seed} · {tokens} tokens in {seconds:.1f} s · {speed:.0f} tokens/s"


def show_for(answer: Answer, form: str, waiting_for: str) -> Show:
    """The view for a form: json, jsonl, or text (on a terminal side by side)."""
    console = Console(highlight=False, markup=False, emoji=False)
    if form == "text" and console.is_terminal and not console.is_dumb_terminal:
        return SideBySide(answer, waiting_for, console)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8")  # in any locale, since texts may hold any character
    return {"text": Plain, "json": OneObject, "jsonl": Events}[form](answer)
