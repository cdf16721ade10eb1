"""Drives SillyTavern's real page against this server, and writes tests/clients/sillytavern.json.

    python -m tests.clients.capture.sillytavern --folder /tmp/st [--kind generic …] [--server URL] [--write]

By hand: it installs SillyTavern from npm, and takes a quarter of an hour. In the folder it leaves pictures,
the requests of each kind as they were, and a table of what the page showed. --write makes the capture.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, sync_playwright

from tests.clients.capture.page import KINDS, VERSION, Kind, SillyTavern, fresh, install, started
from tests.clients.capture.proxy import Proxy, Recorded, recording
from tests.clients.capture.texts import Texts, as_json
from tests.clients.captured import FOLDER
from tests.support.browser import chromium
from tests.support.serving import LASTING, Server, serving

MESSAGE = "Hello! Who are you?"
SWIPES = 3
HOLD_S = 20
CONNECT = "connect"


@dataclass(frozen=True, slots=True)
class Round:
    """One message in a new chat, and how it is asked for."""

    name: str
    stream: bool
    swipes: int = 0  # how often another answer is asked for
    n: int = 1  # swipes that are asked for at once
    probabilities: bool = False
    aborted: bool = False


ROUNDS = (
    Round("whole", stream=False, swipes=SWIPES),
    Round("stream", stream=True, swipes=SWIPES),
    Round("whole, probabilities", stream=False, probabilities=True),
    Round("stream, probabilities", stream=True, probabilities=True),
    Round("whole, three at once", stream=False, n=3),
    Round("stream, three at once", stream=True, n=3),
    Round("whole, aborted", stream=False, aborted=True),
    Round("stream, aborted", stream=True, aborted=True),
)


@dataclass(frozen=True, slots=True)
class Shown:
    """What the page showed in one round."""

    kind: str
    round: str
    said: list[str]  # by the page: errors, warnings
    status: str = ""  # where nothing is asked for
    texts: tuple[str, ...] = ()  # of the character
    swipes: int = 1
    tokens: int | None = None  # with probabilities

    def __str__(self) -> str:
        if self.said:
            return "; ".join(text.replace("\n", ": ") for text in dict.fromkeys(self.said))
        if self.status:
            return self.status
        more = "" if self.tokens is None else f", {self.tokens} tokens with probabilities"
        counted = f", {self.swipes} swipes" if self.swipes > 1 else ""
        return f"{len(self.texts)} texts{counted}{more}" if self.texts else "nothing"


class Visit:
    """One kind of connection from the address to the last round."""

    def __init__(self, tavern: SillyTavern, kind: Kind, proxy: Proxy, folder: Path) -> None:
        self._tavern, self._kind, self._proxy, self._folder = tavern, kind, proxy, folder
        self.recorded: list[tuple[str, Recorded]] = []  # with what was done then

    def play(self) -> Iterator[Shown]:
        self._tavern.clear_toasts()
        status = self._tavern.connect(self._kind, f"http://127.0.0.1:{self._proxy.port}")
        self._take(CONNECT)
        self._tavern.picture(self._picture(CONNECT))
        self._tavern.choose_character()
        yield Shown(self._kind.name, CONNECT, self._tavern.toasts(), f"connected: {status}")
        for round in ROUNDS:
            if round.n == 1 or self._kind.swipes:
                self._set(round)
                yield self._abort(round) if round.aborted else self._ask(round)
                self._take(round.name)
                self._tavern.start_new_chat()

    def _set(self, round: Round) -> None:
        self._tavern.stream(self._kind, round.stream)
        self._tavern.request_probabilities(round.probabilities)
        if self._kind.swipes:
            self._tavern.ask_for_swipes(self._kind, round.n)
        self._tavern.clear_toasts()

    def _ask(self, round: Round) -> Shown:
        texts: list[str] = []
        self._tavern.send(MESSAGE)
        for i in range(1 + round.swipes):
            if i:
                self._tavern.swipe()
            self._tavern.settle()
            name, text = self._tavern.answer()
            if name == "User" or not text:
                break
            texts.append(text)
        swipes = self._tavern.swipes() if round.n > 1 and texts else 1
        self._tavern.picture(self._picture(round.name))
        tokens = None
        if round.probabilities and texts:
            tokens = self._tavern.tokens_with_probabilities(self._picture(round.name + " shown"))
        said = self._tavern.toasts()
        return Shown(self._kind.name, round.name, said, texts=tuple(texts), swipes=swipes, tokens=tokens)

    def _abort(self, round: Round) -> Shown:
        """The answer is held back, so that there is something to stop."""
        with self._proxy.holding(self._kind.path):
            self._tavern.send(MESSAGE)
            deadline = time.monotonic() + HOLD_S
            while not self._is_asking() and time.monotonic() < deadline:
                self._tavern.page.wait_for_timeout(50)
            self._tavern.stop()
            self._tavern.page.wait_for_timeout(1000)
        self._tavern.settle()
        return Shown(self._kind.name, round.name, self._tavern.toasts(), "stopped")

    def _is_asking(self) -> bool:
        return any(request.target == self._kind.path for request in self._proxy.requests)

    def _take(self, what: str) -> None:
        self.recorded += [(what, request) for request in self._proxy.taken()]

    def _picture(self, name: str) -> Path:
        return self._folder / f"{self._kind.name} {name}.png".replace(",", "").replace(" ", "-")


# ----------------------------------------------------------------------------------------------------
# The requests of the capture
# ----------------------------------------------------------------------------------------------------


def kept(kind: Kind, recorded: list[tuple[str, Recorded]]) -> Iterator[tuple[str, Recorded]]:
    """One request of each sort: of those that only ask or count the shortest, and the first of each round."""
    others: dict[tuple[str, str], tuple[str, Recorded]] = {}
    rounds: dict[str, Recorded] = {}
    for what, request in recorded:
        if request.target == kind.path:
            if "aborted" not in what:
                rounds.setdefault(what, request)
            continue
        sort = (request.method, request.target)
        if sort not in others or len(request.body) < len(others[sort][1].body):
            others[sort] = (what, request)
    for what, request in others.values():
        yield (what if what in (CONNECT, "whole, aborted") else "count"), request
    yield from rounds.items()


def write(folder: Path, server: Server) -> None:
    """The committed capture, of what all kinds' visits have left in the folder: a request a line."""
    texts = Texts(server, MESSAGE)
    requests = [
        json.dumps(as_json(kind.name, what, request, texts), ensure_ascii=False)
        for kind in KINDS
        for what, request in kept(kind, list(_recorded(folder / f"{kind.name}.json")))
    ]
    source = f"sillytavern {VERSION} (npm), by tests/clients/capture/sillytavern.py; long texts are ours"
    named = json.dumps(texts.named, ensure_ascii=False, indent=1)
    lines = ",\n  ".join(requests)
    (FOLDER / "sillytavern.json").write_text(
        f'{{"source": "{source}",\n "texts": {named},\n "requests": [\n  {lines}\n]}}\n'
    )


def _recorded(file: Path) -> Iterator[tuple[str, Recorded]]:
    for one in json.loads(file.read_text()):
        headers = tuple((name, value) for name, value in one["headers"])
        yield one["what"], Recorded(one["method"], one["target"], headers, one["body"].encode())


def table(shown: list[Shown]) -> str:
    """As Markdown, for notes."""
    rows = [f"| {one.kind} | {one.round} | {str(one).replace('|', '/')} |" for one in shown]
    return "\n".join(["| type | round | what the page shows |", "|---|---|---|", *rows])


# ----------------------------------------------------------------------------------------------------
# The whole
# ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _server(url: str | None) -> Iterator[Server]:
    """The one that runs there, or one whose context has room for the default character."""
    if url:
        yield Server(url, 0)
        return
    with serving("--", "-t", "1", *LASTING) as server:
        yield server


def _visit(browser: Browser, package: Path, kind: Kind, proxy: Proxy, folder: Path) -> Iterator[Shown]:
    with (
        fresh(package, folder / "prepared", folder / "data") as url,
        SillyTavern.opened(browser, url) as tavern,
    ):
        visit = Visit(tavern, kind, proxy, folder)
        for shown in visit.play():
            print(f"{kind.name:10} {shown.round:24} {shown}", flush=True)
            yield shown
    raw = [
        {"what": what} | asdict(request) | {"body": request.body.decode()} for what, request in visit.recorded
    ]
    (folder / f"{kind.name}.json").write_text(json.dumps(raw, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description="SillyTavern's real page against this server.")
    parser.add_argument("--folder", type=Path, required=True, help="where all is installed, and what is left")
    parser.add_argument("--kind", nargs="*", default=[], help="only these types")
    parser.add_argument("--server", help="address of a server that runs (default: one is started)")
    parser.add_argument("--port", type=int, default=9090, help="where SillyTavern finds it: the proxy's")
    parser.add_argument("--write", action="store_true", help="write tests/clients/sillytavern.json")
    given = parser.parse_args()
    folder: Path = given.folder.resolve()
    package = install(folder)
    if not (folder / "prepared").exists():
        with started(package, folder / "prepared"):
            pass
    shown: list[Shown] = []
    with sync_playwright() as playwright, _server(given.server) as server:
        at = urlsplit(server.url)
        with recording(given.port, (str(at.hostname), int(at.port or 80))) as proxy:
            arguments = ["--no-sandbox", "--disable-background-networking"]
            browser = playwright.chromium.launch(executable_path=chromium(), args=arguments)
            for kind in KINDS:
                if not given.kind or kind.name in given.kind:
                    shown += _visit(browser, package, kind, proxy, folder)
            browser.close()
        (folder / "table.md").write_text(table(shown) + "\n")
        if given.write:
            write(folder, server)


if __name__ == "__main__":
    main()
