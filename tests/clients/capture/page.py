"""SillyTavern as a person uses it: installed from npm, started, its page driven in chromium."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page

VERSION = "1.19.0"
START_S = 180  # its first start compiles its page
PAGE_MS = 60_000
ANSWER_MS = 60_000
CHARACTER = "Seraphina"
KEEP_TOASTS = """
window.toasts = [];
new MutationObserver(changes => changes.forEach(change => change.addedNodes.forEach(node => {
    if (node.classList && node.classList.contains("toast")) window.toasts.push(node.innerText.trim());
}))).observe(document, {childList: true, subtree: true});
"""
READY = """() => {
    const {eventSource, eventTypes} = SillyTavern.getContext();
    return new Promise(resolve => eventSource.on(eventTypes.APP_READY, () => resolve()));
}"""  # its buttons do nothing before; who asks after the event is told too


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to connect: a type of text completion, or chat completion's "Custom".

    address: the page's input for the server's address; suffix: what this type wants behind the address.
    path: where it generates. swipes: whether it can ask for several swipes at once.
    """

    name: str
    address: str
    path: str = "/v1/completions"
    swipes: bool = False
    suffix: str = ""
    chat: bool = False

    @property
    def api(self) -> str:
        return "openai" if self.chat else "textgenerationwebui"


KINDS = (
    Kind("koboldcpp", "#koboldcpp_api_url_text"),
    Kind("llamacpp", "#llamacpp_api_url_text", "/completion", swipes=True),
    Kind("ooba", "#textgenerationwebui_api_url_text"),
    Kind("tabby", "#tabby_api_url_text", swipes=True),
    Kind("vllm", "#vllm_api_url_text", swipes=True),
    Kind("aphrodite", "#aphrodite_api_url_text", swipes=True),
    Kind("generic", "#generic_api_url_text"),
    Kind("ollama", "#ollama_api_url_text", "/api/generate"),
    Kind("custom", "#custom_api_url_text", "/v1/chat/completions", swipes=True, suffix="/v1", chat=True),
)


def install(folder: Path) -> Path:
    """SillyTavern in this folder, from npm if it is not there; where its server.js is."""
    package = folder / "node_modules" / "sillytavern"
    if not (package / "server.js").exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", f"sillytavern@{VERSION}"], cwd=folder, check=True
        )
    return package


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextlib.contextmanager
def started(package: Path, data: Path) -> Iterator[str]:
    """Its address, while its server runs on loopback; data keeps all that it writes."""
    port = _free_port()
    options = {"port": port, "listen": "false", "browserLaunchEnabled": "false"}
    files = {"dataRoot": data / "data", "configPath": data / "config.yaml"}
    command = ["node", str(package / "server.js")]
    command += [word for name, value in (options | files).items() for word in (f"--{name}", str(value))]
    data.mkdir(parents=True, exist_ok=True)
    with open(data / "log", "wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            _await_port(port, process)
            yield f"http://127.0.0.1:{port}/"
        finally:
            process.terminate()


def _await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.2)
    raise RuntimeError(f"SillyTavern did not start: exit code {process.poll()}")


@contextlib.contextmanager
def fresh(package: Path, prepared: Path, data: Path) -> Iterator[str]:
    """As `started`, with a copy of data that no user has seen yet: its first start takes half a minute."""
    shutil.rmtree(data, ignore_errors=True)
    shutil.copytree(prepared, data)
    with started(package, data) as url:
        yield url


@dataclass(frozen=True, slots=True)
class SillyTavern:
    """The page, and what a person does there."""

    page: Page

    @staticmethod
    @contextlib.contextmanager
    def opened(browser: Browser, url: str) -> Iterator[SillyTavern]:
        """The page for the first time: a new user accepts the name that is proposed."""
        context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
        context.set_default_timeout(PAGE_MS)
        context.add_init_script(KEEP_TOASTS)
        page = context.new_page()
        page.goto(url)
        page.locator("dialog[open] .popup-button-ok").click()
        page.locator("dialog[open]").wait_for(state="detached")
        page.evaluate(READY)
        yield SillyTavern(page)
        context.close()

    @contextlib.contextmanager
    def drawer(self, name: str) -> Iterator[None]:
        """A drawer of the bar on top, open within the block."""
        toggle = self.page.locator(f"#{name} > .drawer-toggle")
        toggle.click()
        self.page.locator(f"#{name} > .drawer-content.openDrawer").wait_for()
        yield
        toggle.click()
        self.page.locator(f"#{name} > .drawer-content.openDrawer").wait_for(state="detached")

    def connect(self, kind: Kind, server: str) -> str:
        """The address goes into its field, "Connect" is pressed: what the page says then."""
        with self.drawer("sys-settings-button"):
            self.page.select_option("#main_api", kind.api)
            if kind.chat:
                self.page.select_option("#chat_completion_source", kind.name)
            else:
                self.page.select_option("#textgen_type", kind.name)
            self.page.fill(kind.address, server + kind.suffix)
            self.page.click("#api_button_openai" if kind.chat else "#api_button_textgenerationwebui")
            self.page.wait_for_timeout(3000)  # it asks for more once it is connected
            return self.page.locator(".online_status_text:visible").first.inner_text()

    def choose_character(self) -> None:
        with self.drawer("rightNavHolder"):
            self.page.locator(".character_select", has_text=CHARACTER).first.click()
            self.page.locator("#chat .mes", has_text=CHARACTER).first.wait_for()

    def start_new_chat(self) -> None:
        self.page.click("#options_button")
        self.page.click("#option_start_new_chat")
        self.page.locator("dialog[open] .popup-button-ok").click()
        self.page.locator("dialog[open]").wait_for(state="detached")
        self.page.wait_for_function("document.querySelectorAll('#chat .mes').length == 1")

    def stream(self, kind: Kind, on: bool) -> None:
        box = "#stream_toggle" if kind.chat else "#streaming_textgenerationwebui"
        with self.drawer("ai-config-button"):
            self.page.locator(box).set_checked(on)

    def ask_for_swipes(self, kind: Kind, n: int) -> None:
        """Several swipes at once, where this type has that setting."""
        with self.drawer("ai-config-button"):
            field = self.page.locator("#n_openai" if kind.chat else "#n_textgenerationwebui")
            field.fill(str(n))
            field.dispatch_event("input")

    def request_probabilities(self, on: bool) -> None:
        with self.drawer("user-settings-button"):
            self.page.locator("#request_token_probabilities").set_checked(on)

    def send(self, text: str) -> None:
        self.page.fill("#send_textarea", text)
        self.page.click("#send_but")

    def swipe(self) -> None:
        """Another answer to the same message."""
        self.page.locator("#chat .last_mes .swipe_right").click()

    def stop(self) -> None:
        self.page.click("#mes_stop")

    def settle(self) -> None:
        """Until the answer is there, or the page has said that there is none."""
        self.page.wait_for_timeout(300)
        self.page.wait_for_function("!document.body.dataset.generating", timeout=ANSWER_MS)
        self.page.wait_for_timeout(300)

    def answer(self) -> tuple[str, str]:
        """Who has spoken last, and what."""
        last = self.page.locator("#chat .last_mes")
        return last.get_attribute("ch_name") or "", last.locator(".mes_text").inner_text().strip()

    def swipes(self) -> int:
        """How many swipes the last message has. Its counter shows those of one body only after the next."""
        swipes: int = self.page.evaluate("(SillyTavern.getContext().chat.at(-1).swipes || [0]).length")
        return swipes

    def tokens_with_probabilities(self, picture: Path) -> int:
        """How many tokens its panel shows."""
        self.page.click("#options_button")
        self.page.click("#option_toggle_logprobs")
        self.page.locator("#logprobsViewer").wait_for()
        self.page.wait_for_timeout(500)
        tokens = self.page.locator("#logprobs_generation_output .logprobs_output_token")
        count = tokens.count()
        if count:
            tokens.first.click()
        self.picture(picture)
        self.page.click("#logprobsViewerClose")
        self.page.locator("#logprobsViewer").wait_for(state="hidden")
        return count

    def clear_toasts(self) -> None:
        """An error that is still shown would not be shown again."""
        self.page.evaluate("toastr.remove()")
        self.toasts()

    def toasts(self) -> list[str]:
        """Messages at the top of the page since the last call."""
        found: list[str] = self.page.evaluate("window.toasts.splice(0)")
        return found

    def picture(self, path: Path) -> None:
        os.makedirs(path.parent, exist_ok=True)
        self.page.screenshot(path=path)
