"""A writer at two devices, and what the open story should be after each thing that she does.

What she types has no letter of the fake engine's words, so that no letter of it is taken for a candidate's; a
blank may be found again as a piece of one.
Places and lengths are those of Python's text: a character counts once.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import FilePayload, Locator, Page, expect

from tests.support.hands import editor
from tests.support.places import FAKE_COMMAND
from tests.support.serving import Server, serving
from tests.support.steps import settings

WORDS = ["quy", "jup", "zucky", "Puck", "kpu", "é", "*", "**qu**", "# Jup", "日本", "🐈"]
USERS, MODELS = "u", "m"
TYPED_AT_ONCE = 0.5  # of what is typed; the rest comes key by key
SHARED = "Saved in this browser and on the server"

Change = tuple[int, int, str]  # from, to, and what stands there then

LOAD = """const load = (name) => import(new URL(`studio/${name}.js`, document.baseURI));
    const [{ session, pointId, candidates }, tree, field, { marks }, { drawn }, history, rewrite, share] =
        await Promise.all(["story/session", "story/tree", "text/field", "text/marks", "ui/ui",
            "text/history", "candidates/rewrite", "text/share"].map(load));
    const { story } = session;"""

# What the page has: its text, and whose each character of it is, as the tree and as the colours have it.
STATE = f"""async (isDone) => {{
    {LOAD}
    if (isDone) history.commit();
    await drawn();
    field.put();
    const {{ state }} = field.view;
    const text = state.doc.toString();
    const letters = (source, part) => (source ?? "user")[0].repeat([...part].length);
    const told = tree.spans(story, session.text);
    let [colours, end] = ["", 0];
    state.field(marks)[0].between(0, text.length, (from, to, mark) => {{
        colours += letters("user", text.slice(end, from));
        colours += letters(mark.spec.class.slice(3), text.slice(from, to));
        end = to;
    }});
    colours += letters("user", text.slice(end)); // what was just typed has no mark yet
    const shown = [...document.querySelectorAll("#editor .by-model")].map((one) => one.textContent).join("");
    const {{ from, to }} = field.view.viewport;
    const nodes = Object.values(story.nodes);
    const lost = nodes.filter((node) => node.parent
        ? story.nodes[node.parent]?.children.filter((id) => id === node.id).length !== 1
        : node.id !== story.root);
    return {{
        id: story.id,
        texts: [text, session.text, told.map(([, part]) => part).join(""),
            isDone ? tree.textOf(story) : text],
        colours,
        sources: told.map(([node, part]) => letters(node?.source, part)).join(""),
        shown: from === 0 && to === text.length ? shown.replaceAll("\\n", "") : null,
        share: document.querySelector(".share")?.textContent ?? "",
        lost: lost.map(({{ id, text }}) => [id, text]),
        reached: Object.keys(tree.reached(story.root, story.nodes)).length === nodes.length,
        models: nodes.filter(({{ source, text }}) => source === "model" && text).map(({{ id }}) => id),
        error: session.error?.message ?? null,
        canUndo: history.canUndo(),
        canRedo: history.canRedo(),
    }};
}}"""

CARET = "one => [one.selectionStart, one.selectionEnd].map((at) => [...one.value.slice(0, at)].length)"

# The candidates that a digit chooses, and the text before and behind each: of a rewrite, and of the old text
# beside rewrites, it is that behind the passage, if that stands there. `lost` is what else would go. Behind
# the writer's `space` before the caret a candidate may stand that would end the word.
POINT = f"""async () => {{
    {LOAD}
    history.commit();
    const id = pointId();
    const all = candidates();
    const before = tree.textOf(story, id);
    const rest = tree.textOf(story).slice(before.length);
    const passages = tree.childrenOf(story, id).flatMap(({{ replaces }}) => replaces ?? []);
    const passageOf = (node) => {{
        if (node.replaces) return node.replaces;
        for (let text = ""; node; node = node.children.length === 1 && story.nodes[node.children[0]])
            if (passages.includes((text += node.text))) return text;
    }};
    const places = (node) => {{
        const passage = passageOf(node);
        const stands = passage && rewrite.behindPassage(story, id, passage);
        if (stands !== undefined && stands !== rest) return [passage, stands];
        return ["", tree.textFrom(story, session.point && tree.behind(story, id, session.at))];
    }};
    const path = tree.pathTo(story);
    const version = path[path.indexOf(story.nodes[id]) + 1]?.replaces;
    return all.slice(0, 9).map((node) => {{
        const [passage, behind] = places(node);
        const old = rest.slice(0, rest.length - behind.length);
        return {{
            before,
            behind,
            card: passage && !node.replaces ? passage : node.text,
            is_running: node.state === "running",
            space: (!passage && tree.spaceBehind(story, id, session.at)?.text) || "",
            lost: old.trim() && !(passage && (version || old === passage)) ? old : "",
        }};
    }});
}}"""

# All of a story, for an error.
RAW = f"""async () => {{
    {LOAD}
    const {{ point, at, replaces }} = session;
    return JSON.stringify({{ point, at, replaces, story }});
}}"""

# A story as all devices should have it: without tokens, whose order of children counts.
TREE = f"""async () => {{
    {LOAD}
    const nodes = Object.values(story.nodes).map(({{ id, parent, text, source, children }}) =>
        [id, [parent, text, source, children]]);
    return [story.id, story.current, Object.fromEntries(nodes)];
}}"""


# Opens a story, once this device has it, and asks the server for a newer version.
OPEN = f"""async (id) => {{
    {LOAD}
    const [library, sync] = await Promise.all(["story/library", "server/sync"].map(load));
    if (story.id !== id && session.stories.some((one) => one.id === id)) await library.openStory(id);
    sync.later(0);
    return session.story.id === id ? session.story.base?.version : null;
}}"""
VERSION = f"async () => {{ {LOAD} return story.base.version; }}"  # of the server, which this device has


class Home:
    """A server with the fake engine that keeps stories; it can be killed, and comes back at its address."""

    def __init__(self, folder: Path) -> None:
        self.program = folder / "engine"
        fake = f"{FAKE_COMMAND} --token-delay 0.004 --alternatives"
        self.program.write_text(f'#!/bin/sh\nexec {fake} "$@"\n')
        self.program.chmod(0o755)
        self.stories = folder / "stories"
        self.port = "0"
        self.running: Any = None
        self.server: Server
        self.start()

    def start(self) -> None:
        if self.running:
            return
        flags = ("--engine", str(self.program), "--stories", str(self.stories), "--port", self.port)
        self.running = serving(*flags)
        self.server = self.running.__enter__()
        self.port = self.server.url.rsplit(":", 1)[1]

    def kill(self) -> None:
        os.kill(self.server.pid, signal.SIGKILL)
        self.running.__exit__(None, None, None)
        self.running = None

    def copy(self, id: str) -> Any:
        """The nodes of the server's copy, as TREE has them."""
        story = self.server.json("GET", f"/v1/stories/{id}")[1]
        nodes = {
            id: [node["parent"], node["text"], node["source"], node["children"]]
            for id, node in story["nodes"].items()
        }
        return [id, story["current"], nodes]


class Afternoon:
    """What she does at her desk and, now and then, at a laptop; `did` lists it."""

    def __init__(self, desk: Page, laptop: Page, home: Home, seed: int) -> None:
        self.desk, self.laptop, self.home = desk, laptop, home
        self.random = random.Random(seed)
        self.text = self.sources = ""
        self.known: dict[tuple[str, str], str] = {}  # story and text → sources, as they were each time
        self.models: set[str] = set()  # candidates of the open story; none is ever lost
        self.id = ""
        self.tree = ""  # the story before the last choice, for an error
        self.names = itertools.count(1)
        self.did: list[str] = []
        self.away = 0  # actions until the server is back
        settings(desk, n=2, max_tokens=5, next=bool(seed % 2))
        self.agree()

    # ---- what is there

    def agree(self, *, is_done: bool = True) -> None:
        """Text, tree and colours are what they should be."""
        found = self.state(is_done)
        if found["id"] != self.id:
            self.id, self.models = found["id"], set()
        for place, text in zip(("field", "page", "pieces", "tree"), found["texts"], strict=True):
            same(f"the text of the {place}", text, self.text)
        wanted = whose(self.text, self.sources)
        if is_done:  # what is typed has no place in the tree before
            same("the sources of the tree", whose(self.text, found["sources"]), wanted)
        same("the colours", whose(self.text, found["colours"]), wanted)
        self.sources = found["colours"]
        assert (found["lost"], found["reached"]) == ([], True)
        assert self.models <= set(found["models"]), "a candidate is lost"
        self.models |= set(found["models"])
        pairs = list(zip(self.text, self.sources, strict=True))
        if found["shown"] is not None:
            models = "".join(one for one, whose in pairs if whose == MODELS and one != "\n")
            same("what is drawn as the model's", found["shown"], models)
        count = [sum(not one.isspace() for one, whose in pairs if whose in which) for which in ("m", "mue")]
        share = round(100 * count[0] / max(1, count[1]))
        if 1 < share < 99:
            assert abs(int(re.findall(r"\d+", found["share"])[0]) - share) <= 1
        self.known[self.id, self.text] = self.sources

    def state(self, is_done: bool = True) -> Any:
        return self.desk.evaluate(STATE, is_done)

    def change(self, *changes: Change, by: str = USERS) -> None:
        """The text and its sources after changes, which are in order."""
        for start, end, words in reversed(changes):
            self.text = self.text[:start] + words + self.text[end:]
            self.sources = self.sources[:start] + by * len(words) + self.sources[end:]

    def look(self) -> None:
        """Takes over what the page has, after a way through what was there; a known text has its sources."""
        found = self.state()
        self.text, self.sources = found["texts"][0], found["sources"]
        known = self.known.get((found["id"], self.text), self.sources)
        same(f"the sources of {self.text!r}", whose(self.text, self.sources), whose(self.text, known))

    def words(self) -> str:
        """Some words, mostly with a space before them."""
        some = [self.random.choice(WORDS) for _ in range(self.random.randint(1, 3))]
        end = self.random.choice(["", "", " ", "\n", "\n\n"])
        return self.random.choice(["", " ", " "]) + " ".join(some) + end

    def caret(self) -> tuple[int, int]:
        start, end = editor(self.desk).evaluate(CARET)
        return start, end

    def button(self, name: str, page: Page | None = None) -> Locator:
        return (page or self.desk).get_by_role("button", name=name, exact=True)

    def somewhere(self) -> None:
        """Puts the caret somewhere: with the mouse, or with a key besides."""
        self.click(self.desk)
        key = self.random.choice(["", "", "Control+End", "Control+End", "Control+Home", "Control+ArrowLeft"])
        if key:
            self.desk.keyboard.press(key)

    def click(self, page: Page) -> None:
        box = page.locator(".writing").bounding_box()
        assert box
        x, y = self.random.random(), self.random.random()
        page.mouse.click(box["x"] + 20 + x * (box["width"] - 40), box["y"] + 10 + y * (box["height"] - 20))

    def leave(self, page: Page) -> None:
        """Closes the panel, and goes back to the text; the first Escape may stop what is written."""
        for _ in range(3):
            page.keyboard.press("Escape")
            if page.evaluate("document.activeElement.id") == "editor":
                break
            page.wait_for_timeout(50)
        expect(page.get_by_role("complementary")).to_have_count(0)

    def press(self, text: str, page: Page | None = None) -> None:
        """Types a text, key by key or at once."""
        keyboard = (page or self.desk).keyboard
        if self.random.random() < TYPED_AT_ONCE:
            keyboard.insert_text(text)
            return
        for one in text:
            keyboard.press("Enter") if one == "\n" else keyboard.type(one)

    # ---- what she does

    def type(self) -> None:
        """Types somewhere, or goes on where she was."""
        if self.random.random() < 0.6:
            self.somewhere()
        else:
            self.leave(self.desk)
        self.write(self.words())

    def write(self, text: str) -> None:
        start, end = self.caret()
        self.did[-1] += f" {text!r} in place of {start} to {end}"
        self.press(text)
        self.change((start, end, text))

    def edit_early(self) -> None:
        """Changes or deletes a word of the first lines."""
        self.click(self.desk)
        self.desk.keyboard.press("Control+Home")
        for _ in range(self.random.randint(0, 9)):
            self.desk.keyboard.press("ArrowRight")
        for _ in range(self.random.randint(1, 6)):
            self.desk.keyboard.press("Shift+ArrowRight")
        start, end = self.caret()
        if start == end or self.random.random() < 0.6:
            self.write(self.random.choice(["qu", "Z", "yup", "jj"]))
            return
        self.did[-1] += f" {start} to {end} deleted"
        self.desk.keyboard.press(self.random.choice(["Delete", "Backspace"]))
        self.change((start, end, ""))

    def delete(self) -> None:
        """Takes some characters back."""
        self.leave(self.desk) if self.random.random() < 0.5 else self.somewhere()
        for _ in range(self.random.randint(1, 8)):
            start, end = self.caret()
            if end == 0:
                return
            self.desk.keyboard.press("Backspace")
            self.change((start if start < end else end - 1, end, ""))

    def ask(self) -> None:
        """Asks for candidates somewhere or at the end, or for rewrites of a word."""
        self.somewhere()
        if self.random.random() < 0.2:
            for _ in range(2):
                self.desk.keyboard.press("Control+Shift+ArrowLeft")
        self.desk.keyboard.press("Control+Enter")
        if self.random.random() < 0.7:
            self.over()

    def over(self) -> None:
        expect(self.desk.locator(".card.running")).to_have_count(0)

    def choose(self) -> None:
        """Chooses a candidate, maybe while it is written, by a key or a click."""
        if not self.desk.locator(".card").count():
            self.ask()
        cards = self.desk.evaluate(POINT)
        if not cards:
            return
        number = self.random.randrange(len(cards))
        before, behind, card, is_running, space, lost = cards[number].values()
        self.did[-1] += f" {number + 1}, {card!r} behind {before[-20:]!r}, before {behind[:20]!r}"
        if not card:
            return
        assert not lost, f"{lost!r} is no version of a passage"
        self.tree = self.desk.evaluate(RAW)
        if self.random.random() < 0.5:
            self.desk.keyboard.press(f"Alt+{number + 1}")
        else:
            self.desk.locator(".card .text").nth(number).click()
        found = self.state(False)
        text, sources = found["texts"][0], found["sources"]
        assert text.startswith(before)
        assert text.endswith(behind), f"{text[len(before) :][:40]!r} is not before {behind[:20]!r}"
        own = text[len(before) : len(text) - len(behind)]
        wanted = plain(card)
        words = [own.removeprefix(space), own] if space else [own]
        is_there = any(
            one.startswith(wanted) if is_running else one in (wanted, wanted + " ")
            for one in map(plain, words)
        )
        assert is_there, f"{own!r} is chosen in place of {card!r}"
        middle = sources[len(before) : len(text) - len(behind)]
        kept = self.sources[len(self.sources) - len(behind) :]
        self.text, self.sources = text, self.sources[: len(before)] + middle + kept

    def undo(self) -> None:
        self.step("undo", "Control+z")

    def redo(self) -> None:
        self.step("redo", "Control+Shift+Z")

    def step(self, name: str, key: str) -> None:
        """Some steps, of which each one's way back leads to where it began."""
        other = {"undo": "redo", "redo": "undo"}[name]
        keys = {name: key, other: "Control+Shift+Z" if key == "Control+z" else "Control+z"}
        self.leave(self.desk)
        found = self.state()
        for _ in range(self.random.randint(1, 5)):
            if not found["canUndo" if name == "undo" else "canRedo"]:
                return
            before = (found["texts"][0], found["sources"])
            self.desk.keyboard.press(keys[name])
            self.look()
            if self.random.random() < 0.2:
                there = (self.text, self.sources)
                self.desk.keyboard.press(keys[other])
                self.look()
                assert (self.text, self.sources) == before, "the way back of a step"
                self.desk.keyboard.press(keys[name])
                self.look()
                assert (self.text, self.sources) == there
            found = self.state()

    def replace(self) -> None:
        """Replaces a word everywhere, or at the first place behind the caret."""
        found = re.findall(r"[A-Za-z]{2,}", self.text)
        word, by = self.random.choice(found or ["qu"]), self.random.choice(["", "zzz", "quk", "Jj pp"])
        places = [one.start() for one in re.finditer(re.escape(word), self.text, re.IGNORECASE)]
        self.did[-1] += f" {word!r} by {by!r}"
        self.somewhere()
        self.desk.keyboard.press("Control+f")
        self.desk.get_by_label("Find", exact=True).fill(word)
        self.desk.get_by_label("Replace with").fill(by)
        if places:
            self.button("Replace all").click()
            self.change(*((place, place + len(word), by) for place in places))
        self.leave(self.desk)

    def go(self) -> None:
        """Goes to a branch."""
        self.button("Branches").click()
        branches = self.desk.get_by_role("treeitem")
        if count := branches.count():
            branches.nth(self.random.randrange(count)).click()
            self.look()
        self.leave(self.desk)

    def split(self) -> None:
        self.somewhere()
        self.button("Branches").click()
        self.button("Split").click()
        self.leave(self.desk)

    def bring_in(self) -> None:
        """Imports a file, or the story as it was exported; may undo that."""
        before = (self.text, self.sources)
        self.button("Stories").click()
        if self.random.random() < 0.3:
            with self.desk.expect_download() as saved:
                self.button("Export JSON").click()
            data = Path(saved.value.path()).read_bytes()
            file = FilePayload(name="story.json", mimeType="application/json", buffer=data)
        else:
            text = f"# Puck {next(self.names)}\n\n" + "".join(self.words() for _ in range(9)).strip()
            file = FilePayload(name="puck.md", mimeType="text/markdown", buffer=f"{text}\n".encode())
            self.text, self.sources = text, USERS * len(text)
        self.desk.get_by_label("File to import").set_input_files(file)
        expect(self.desk.locator(".imported")).to_contain_text("is open as a new story")
        self.leave(self.desk)
        self.agree()
        if self.random.random() < 0.3:
            self.button("Undo the import").click()
            self.text, self.sources = before
        else:
            self.button("Dismiss").click()
        expect(self.desk.locator(".imported")).to_have_count(0)
        expect(editor(self.desk)).to_have_value(self.text)

    def reload(self) -> None:
        """Reloads the page, maybe in mid-stream or before what was typed is stored."""
        self.regain()  # without the server the app opens, too, which tests/studio/test_phone.py does
        self.desk.reload()
        expect(editor(self.desk)).to_have_value(self.text)

    def lose_the_server(self) -> None:
        """It is killed, and comes back some actions later."""
        if not self.away:
            self.home.kill()
            self.away = self.random.randint(2, 8)

    def regain(self) -> None:
        self.away = 0
        self.home.start()

    # ---- a second device

    def shared(self, page: Page) -> None:
        """Sends at once; returns when all is on the server."""
        if page is self.desk:
            self.over()
        page.evaluate(STATE, True)
        expect(page.locator(".saved")).to_have_attribute("title", re.compile("server|browser"))
        for _ in range(100):
            page.locator(".saved").click()
            page.wait_for_timeout(100)
            if page.locator(".saved").get_attribute("title") == SHARED:
                return
        raise AssertionError(page.locator(".saved").get_attribute("title"))

    def open_there(self) -> None:
        """Opens the desk's story on the laptop, in the desk's version: an older one may have this text."""
        self.shared(self.desk)
        version = self.desk.evaluate(VERSION)
        for _ in range(100):
            if self.laptop.evaluate(OPEN, self.id) == version:
                break
            self.laptop.wait_for_timeout(100)
        expect(editor(self.laptop)).to_have_value(self.text)

    def edit_there(self) -> None:
        """Edits the story on the laptop, maybe while the desk, without the network, goes on as well."""
        self.regain()
        self.open_there()
        both = self.random.random() < 0.5
        if both:
            self.desk.context.set_offline(True)
            self.type()
            self.agree()
        here = (self.text, self.sources)
        self.click(self.laptop)
        self.laptop.keyboard.press(self.random.choice(["Control+Home", "Control+End"]))
        start, end = editor(self.laptop).evaluate(CARET)
        text = self.random.choice([" yup", "quq", "Puck. ", "\n\nJup"])
        self.press(text, self.laptop)
        self.text, self.sources = there = self.on_laptop((start, end, text))
        self.shared(self.laptop)
        self.desk.context.set_offline(False)
        if both:
            self.settle(here, there)
        else:
            self.learn()

    def on_laptop(self, change: Change) -> tuple[str, str]:
        found = self.laptop.evaluate(STATE, True)
        text = found["texts"][0]
        assert text[change[0] : change[0] + len(change[2])] == change[2], f"{change} is not in {text!r}"
        return text, found["sources"]

    def learn(self) -> None:
        for _ in range(100):
            self.desk.locator(".saved").click()
            if editor(self.desk).evaluate("one => one.value") == self.text:
                return
            self.desk.wait_for_timeout(100)
        expect(editor(self.desk)).to_have_value(self.text)

    def settle(self, here: tuple[str, str], there: tuple[str, str]) -> None:
        """Says which of two versions goes on, if the page asks."""
        conflict = self.desk.get_by_role("alert", name="Two versions of this story")
        for _ in range(100):
            self.desk.locator(".saved").click()
            self.desk.wait_for_timeout(100)
            if conflict.count() or self.desk.locator(".saved").get_attribute("title") == SHARED:
                break
        if not conflict.count():
            self.did[-1] += ", merged"
            self.look()
            return
        which = self.random.choice(["this one", "the other one"])
        self.did[-1] += f", {which}"
        conflict.get_by_role("button", name=f"Go on with {which}").click()
        expect(conflict).to_have_count(0)
        self.text, self.sources = here if which == "this one" else there

    def compare(self) -> None:
        """Desk, server and laptop have the same story."""
        self.regain()
        self.agree()
        self.open_there()
        here = self.desk.evaluate(TREE)
        assert self.home.copy(self.id) == here, "the server's copy"
        assert self.laptop.evaluate(TREE) == here, "the laptop"

    # ---- all of it

    def act(self) -> None:
        """Does one of these things, then looks whether all agrees."""
        if self.away:
            self.away -= 1
            if not self.away:
                self.regain()
        name = self.random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        self.did.append(name)
        ACTIONS[name](self)
        self.agree(is_done=self.random.random() < 0.6)


def same(what: str, found: str, wanted: str) -> None:
    """Tells the first difference of two texts."""
    pairs = enumerate(zip(found, wanted, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(found), len(wanted)))
    around = [repr(text[max(0, at - 20) : at + 40]) for text in (found, wanted)]
    assert found == wanted, f"{what}, at {at}: {around[0]} in place of {around[1]}"


def whose(text: str, sources: str) -> str:
    """The sources of all but blanks."""
    assert len(text) == len(sources)
    return "".join(" " if one.isspace() else source for one, source in zip(text, sources, strict=True))


def plain(text: str) -> str:
    """A candidate's text whatever its quotation marks are: they become those of the story."""
    return re.sub("[“”„«»]", '"', text)


WEIGHTS = {
    "type": 30, "edit_early": 14, "delete": 8, "ask": 6, "choose": 12, "undo": 10, "redo": 5, "replace": 3,
    "go": 3, "split": 1, "bring_in": 1, "reload": 3, "lose_the_server": 1, "edit_there": 2,
}  # fmt: skip
ACTIONS: dict[str, Callable[[Afternoon], None]] = {name: getattr(Afternoon, name) for name in WEIGHTS}
