"""The readers of documents by their kinds: bytes → text, within bounds. They run in a subprocess.

Libraries are imported by `load`, before the process gives up opening files.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from ..records import INSTALL
from .bounds import Limits, Unreadable, require
from .epub import read_epub
from .open_document import read_odt
from .pdf import read_pdf
from .rtf import read_rtf
from .texts import CHARSETS, marked, read_html, read_text
from .word import read_docx

__all__ = ["CHARSETS", "INSTALL", "READERS", "Limits", "Unreadable", "marked", "require"]


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads one kind. modules, packages: imported before, packages with all their modules.

    without_text: what an error adds if there is no text.
    """

    read: Callable[[bytes, str, Limits], str]
    modules: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    without_text: str = ""

    def load(self) -> None:
        for name in self.modules:
            importlib.import_module(name)
        for name in self.packages:
            for part in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
                with suppress(ImportError):  # parts for packages that are not needed
                    importlib.import_module(part.name)


_LXML = ("lxml.etree", "lxml.html")
READERS = {
    "text": Reader(read_text),
    "html": Reader(read_html, _LXML),
    "pdf": Reader(read_pdf, (), ("pypdf",), ": scanned pages need text recognition (OCR)"),
    "docx": Reader(read_docx, _LXML),
    "odt": Reader(read_odt, _LXML),
    "rtf": Reader(read_rtf),
    "epub": Reader(read_epub, _LXML),
}
