"""From a story to a prompt that fits: memory, lore, summary, the newest text, a note within it.

Memory, summary and note always stay, and may have half of the room together; lore gets its budget, but a
quarter of the room stays for the text, which fills the rest. Asks the engine for tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from llama_srb.request.story.cut import border_in, find_cut, find_note, next_cut, step_of
from llama_srb.request.story.lore import Near, called
from llama_srb.request.story.parts import Assembled, Call, LoreReport, PartName, Place, StoryPart
from llama_srb.request.story.ruler import Counts, Ruler
from llama_srb.request.story.shape import LoreEntry, Story
from llama_srb.request.truncate import Command
from llama_srb.request.values import RequestError

SLACK = 8  # tokens: texts that stand together may have others than alone, and BOS may be added
LEAST_ROOM = 4 * SLACK


@dataclass(frozen=True, slots=True)
class _Sized:
    """A story whose parts have their separators, with their tokens."""

    story: Story
    memory: int
    summary: int
    note: int
    lore: tuple[int, ...]
    room: int

    @property
    def fixed(self) -> int:
        return self.memory + self.summary + self.note + SLACK

    @property
    def lore_budget(self) -> int:
        """The tokens that are reserved for lore, whether or not so much is found."""
        wanted = self.room // 4 if self.story.budget is None else self.story.budget
        return max(0, min(wanted, sum(self.lore), self.room - self.fixed - self.room // 4))

    @property
    def capacity(self) -> int:
        """Tokens for the text."""
        return self.room - self.fixed - self.lore_budget


async def assembled(
    story: Story, text: str, room: int, counts: Counts, command: Command, near: Near | None = None
) -> Assembled:
    """The parts of a prompt of at most `room` tokens; RequestError if those that stay have too many."""
    sized = await _sized(story, room, counts, command)
    ruler = await Ruler.of(text, counts, command)
    step, at_end = step_of(room, sized.capacity), await called(story, text, len(text), near)
    cut = await find_cut(ruler, sized.capacity, step)
    following = await next_cut(ruler, cut, sized.capacity, step)
    lore = _placed(sized, await called(story, text, cut.seen, near), at_end)
    has_note = _has_note(sized.story, lore)
    place = await find_note(ruler, cut, story.depth) if has_note else cut.place
    before = await ruler.tokens_before(place) - cut.tokens
    parts = (
        *_top(sized, lore),
        *_text_before_note(text[cut.place : place], before, story.separator if has_note else ""),
        *_lore_parts(sized, lore, "note"),
        *_part("note", "" if sized.story.note is None else sized.story.note.text, sized.note),
        *_part("text", text[place:], ruler.total - cut.tokens - before),
    )
    ahead = ""
    if following is not None and following.place < place:
        top = _top(sized, _placed(sized, await called(story, text, following.seen, near), at_end))
        ahead = "".join(part.text for part in top) + text[following.place : place]
    return Assembled(parts, cut.place, cut.tokens, tuple(lore), room, ahead)


def _top(sized: _Sized, lore: Sequence[LoreReport]) -> Iterator[StoryPart]:
    """What stands before the text; it stays until the cut moves."""
    yield from _part("memory", sized.story.memory, sized.memory)
    yield from _lore_parts(sized, lore, "top")
    yield from _part("summary", sized.story.summary, sized.summary)


async def _sized(story: Story, room: int, counts: Counts, command: Command) -> _Sized:
    lore = await _within_budgets(story.lore, counts, command)
    note = story.note and replace(story.note, text=separate(story.note.text, story.separator))
    story = replace(
        story,
        memory=separate(story.memory, story.separator),
        summary=separate(story.summary, story.separator),
        note=note,
        lore=tuple(replace(one, text=separate(one.text, story.separator)) for one in lore),
    )
    always = [story.memory, story.summary, note.text if note else ""]
    tokens = await counts.of([*always, *(one.text for one in story.lore)], command)
    sized = _Sized(story, tokens[0], tokens[1], tokens[2], tuple(tokens[3:]), room)
    refuse_too_much(sum(tokens[:3]), room)
    return sized


def refuse_too_much(tokens: int, room: int) -> None:
    """RequestError if the parts that always stay have more than half of the room."""
    if room < LEAST_ROOM:
        message = f"the prompt may have {room} tokens beside the answer; a story needs {LEAST_ROOM}"
        raise RequestError(f"{message}: lower max_tokens", param="story")
    if tokens > room // 2 - SLACK:
        message = (
            f"story.memory, summary and note have {tokens} tokens; they may have {room // 2 - SLACK} "
            f"together, half of the {room} that the prompt may have beside the answer: shorten them, or "
            "lower max_tokens"
        )
        raise RequestError(message, param="story")


def separate(text: str, separator: str) -> str:
    """A part as it stands in the prompt."""
    return text + separator if text and not text.endswith(separator) else text


async def _within_budgets(
    lore: Sequence[LoreEntry], counts: Counts, command: Command
) -> tuple[LoreEntry, ...]:
    """The entries; each that has more tokens than its own budget is cut at its end."""
    tokens = await counts.of([entry.text for entry in lore], command)
    kept = list(lore)
    for i, entry in enumerate(lore):
        if entry.budget is not None and tokens[i] > entry.budget:
            kept[i] = await _cut(entry, entry.budget, counts, command)
    return tuple(kept)


async def _cut(entry: LoreEntry, budget: int, counts: Counts, command: Command) -> LoreEntry:
    ruler = await Ruler.of(entry.text, counts, command)
    high, low = await ruler.place(budget), await ruler.place(budget * 3 // 4)
    border = border_in(entry.text, low, high + 1)  # a border is behind its space
    return replace(entry, text=entry.text[: min(border, high)] if border > low else entry.text[:high])


def _has_note(story: Story, lore: Sequence[LoreReport]) -> bool:
    return bool(story.note and story.note.text) or any(one.place == "note" for one in lore)


def _placed(sized: _Sized, at_top: Sequence[Call], at_end: Sequence[Call]) -> list[LoreReport]:
    """What was found when the cut moved stands at the top; what is found only now beside the note.

    Entries at the top come first, since they stay until the cut moves; then those of a higher order.
    """
    left, placed = sized.lore_budget, dict[int, LoreReport]()
    for i in sorted(range(len(at_top)), key=lambda i: _rank(sized.story.lore[i], at_top[i], i)):
        on_top, now = at_top[i].is_called, at_end[i]
        call = at_top[i] if on_top else now
        place: Place | None = ("top" if on_top else "note") if call.is_called else None
        if place is not None and sized.lore[i] > left:
            call, place = replace(call, why="budget"), None
        left -= sized.lore[i] if place is not None else 0
        placed[i] = LoreReport(call, place, sized.lore[i], sized.story.lore[i].name)
    return [placed[i] for i in range(len(at_top))]


def _rank(entry: LoreEntry, at_top: Call, place: int) -> tuple[bool, bool, int, int]:
    return not entry.always, not at_top.is_called, -entry.order, place


def _lore_parts(sized: _Sized, lore: Sequence[LoreReport], place: Place) -> Iterator[StoryPart]:
    """Those of a higher order stand nearer to the end."""
    entries = sized.story.lore
    chosen = [i for i, one in enumerate(lore) if one.place == place]
    for i in sorted(chosen, key=lambda i: (entries[i].order, i)):
        yield from _part("lore", entries[i].text, sized.lore[i], i)


def _part(name: PartName, text: str, tokens: int, entry: int | None = None) -> Iterator[StoryPart]:
    if text:
        yield StoryPart(name, text, tokens, entry)


def _text_before_note(text: str, tokens: int, separator: str) -> Iterator[StoryPart]:
    """The note stands on a line of its own."""
    whole = separate(text, separator)
    yield from _part("text", whole, tokens + (whole != text))
