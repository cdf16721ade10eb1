"""Documents go in and out with nothing eaten: random texts through Word, and samples of many programs.

Reading XML needs a page. The samples and the texts that are expected of them: tests/support/documents.
"""

from __future__ import annotations

import base64

from playwright.sync_api import Page

from tests.support.long import amount
from tests.support.places import ROOT

SAMPLES = ROOT / "tests/support/documents"
SEEDS = amount(150, 5000)

ROUND = """async ([kind, seeds]) => {
    const load = (path) => import(new URL(`studio/files/${path}.js`, document.baseURI));
    const ways = {
        docx: async (text) => {
            const [{ toDocx }, { fromDocx }] = await Promise.all(["todocx", "docx"].map(load));
            return fromDocx(await new Blob(await toDocx("T", text)).arrayBuffer());
        },
        epub: async (text) => {
            const [{ toEpub }, { fromEpub }] = await Promise.all(["toepub", "epub"].map(load));
            const about = { id: "a", title: "T", author: "", language: "en", changed: 0 };
            return (await fromEpub(await new Blob(await toEpub(about, text)).arrayBuffer())).text;
        },
        markdown: async (text) => {
            const [{ fromFile, toMarkdown }, { newStory, textOf, write }] =
                await Promise.all(["exchange", "../story/tree"].map(load));
            const story = newStory();
            write(story, text);
            return textOf(await fromFile(new File([toMarkdown(story)], "a.md")));
        },
    };
    const signs = ["*", "*", "**", "***", "\\\\", "a", "b ", " ", "_", "#", "\\n# ", "\\n> ", "\\n- ",
        "\\n7. ", "\\n***\\n", "\\n* * *\\n", "\\n", "\\n\\n", "\\n\\n\\n", "\\t", "🦊", "\\u00a0", "\\u2028",
        "\\u0085", "<&>\\"'", "]]>", "•", "\\ufeff", "\\ufffd", "né 日本", "\\u202e", "[^1]",
        "\\n\\n[^1]: a"];
    const anywhere = (random) => {
        const at = Math.floor(random() * (random() < 0.1 ? 0x10ffff : 0x300));
        const one = String.fromCodePoint(at);
        return /[^\\t\\n\\u0020-\\ud7ff\\ue000-\\ufffd\\u{10000}-\\u{10ffff}]/u.test(one) ? "x" : one;
    };
    const { blockOf, lineOf } = await load("emphasis");
    const { withoutBold } = await load("paragraphs");
    const looks = (line) => { // EPUB has neither escapes nor bold headings
        const { kind, level, runs } = blockOf(line);
        const plain = runs.map((one) => ({ ...one, literal: false }));
        return lineOf({ kind, level, runs: kind === "heading" ? withoutBold(plain) : plain });
    };
    const same = (text) => kind === "epub" ? text.split("\\n").map(looks).join("\\n") : text;
    for (let seed = 1; seed <= seeds; seed++) {
        let state = seed;
        const random = () => {
            state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
            return state / 2 ** 32;
        };
        const pick = () => random() < 0.2 ? anywhere(random) : signs[Math.floor(random() * signs.length)];
        const text = Array.from({ length: Math.floor(random() * 40) }, pick).join("");
        const found = await ways[kind](text);
        if (same(found) !== same(text)) return { seed, text, found };
    }
    return null;
}"""


def test_any_text_is_the_same_after_word_and_markdown_and_looks_the_same_after_epub(page: Page) -> None:
    for kind in ("docx", "markdown", "epub"):
        assert page.evaluate(ROUND, [kind, SEEDS]) is None


READ = """async ([name, data]) => {
    const load = (path) => import(new URL(`studio/${path}.js`, document.baseURI));
    const [{ fromFile }, { textOf }] = await Promise.all(["files/exchange", "story/tree"].map(load));
    const bytes = Uint8Array.from(atob(data), (one) => one.charCodeAt(0));
    return textOf(await fromFile(new File([bytes], name)));
}"""


def read(page: Page, name: str, content: bytes) -> str:
    """The text of the story that a file becomes."""
    text: str = page.evaluate(READ, [name, base64.b64encode(content).decode()])
    return text


def test_a_document_of_any_program_becomes_the_text_that_is_expected(page: Page) -> None:
    samples = sorted(SAMPLES.glob("*.txt"))
    assert len(samples) > 15
    wrong = {}
    for expected in samples:
        sample = expected.with_suffix("")
        text = read(page, sample.name, sample.read_bytes())
        if text != expected.read_text(encoding="utf-8"):
            wrong[sample.name] = text
    assert wrong == {}
