"""The generated blocks of docs/ are up to date; each log line and each code of an error is documented."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator

from llama_srb.serving.faults import STATUS_OF_CODE
from tests.support.places import ROOT

LEVELS = ("info", "warning", "error", "exception", "log")


def test_generated_blocks_are_not_stale() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "api_docs"), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def logged() -> Iterator[str]:
    """The formats of all log lines above debug."""
    for file in (ROOT / "llama_srb").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {f"log.{level}" for level in LEVELS}:
                texts = [one.value for one in node.args if isinstance(one, ast.Constant)]
                yield next(text for text in texts if isinstance(text, str))


def test_each_log_line_is_explained() -> None:
    """Except lines that only quote another program."""
    section = (ROOT / "docs/monitoring.md").read_text().partition("### What each log line means")[2]
    lines = {re.sub(r"(%[-.\d]*[a-z])+", "…", format) for format in logged()}
    telling = {line for line in lines if re.search(r"[a-z]{4}", line)}
    assert len(telling) > 12
    assert [line for line in telling if f"`{line}" not in section] == []


CODE = re.compile(r'\bcode="(\w+)"|^(?:NOT_FOUND, )?NOT_ALLOWED = (.*)$', re.M)


def test_each_code_of_an_error_is_explained() -> None:
    sources = [file for file in (ROOT / "llama_srb").rglob("*.py") if file.parent.name != "client"]
    found = [pair for file in sources for pair in CODE.findall(file.read_text())]
    codes = {
        *STATUS_OF_CODE,
        *(name for one, several in found for name in [one, *re.findall(r"\w+", several)] if name),
    }
    assert len(codes) > 40
    page = (ROOT / "docs/refusals.md").read_text()
    assert [code for code in sorted(codes) if f"`{code}`" not in page] == []


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", page, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)")


def test_each_link_between_pages_leads_to_a_heading() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")]
    links = [(page, *link) for page in pages for link in LINK.findall(page.read_text())]
    assert len(links) > 100
    lost = [
        f"{page.relative_to(ROOT)}: {path}#{anchor}"
        for page, path, anchor in links
        if anchor not in anchors((page.parent / path if path else page).read_text())
    ]
    assert lost == []
