"""Tests of the page reach the studio's text as a person does: a mouse or a finger puts the focus there.

`focus`, `fill` and `press` of Playwright also reach a text into which nobody can click. The studio had such a
text for a day, and 353 tests in a browser passed. So here they refuse it, however a test calls them;
tests/support/hands.py has the ways that a person has.
"""

from __future__ import annotations

import functools
import inspect
import re
from typing import Any

from playwright._impl.frame import Frame
from playwright._impl.locator import Locator

SCRIPTS = ("evaluate", "evaluate_handle")
METHODS = {  # all others end in these
    Frame: ("focus", "fill", "press", "type", "dispatch_event", *SCRIPTS, "eval_on_selector"),
    Locator: ("select_text", *SCRIPTS),
}
IS_TEXT = 'all => all.some((one) => one.matches(".origins"))'
TEXT = re.compile(r"origins|cm-content|#editor|getElementById\(.editor")  # in a script


class NotByHandError(Exception):
    """A test's call would put the focus into the text, or keys, without a mouse or a finger."""


@functools.cache
def require() -> None:
    """From now on such calls raise NotByHandError."""
    for kind, names in METHODS.items():
        for name in names:
            setattr(kind, name, _checked(getattr(kind, name)))


def _checked(method: Any) -> Any:
    signature = inspect.signature(method)

    @functools.wraps(method)
    async def call(*given: Any, **named: Any) -> Any:
        arguments = signature.bind(*given, **named).arguments
        if await _reaches_the_text(**arguments):
            raise NotByHandError(f"{method.__name__} reaches the text: see tests/support/hands.py")
        return await method(*given, **named)

    return call


async def _reaches_the_text(self: Any, selector: str = "", expression: str | None = None, **_: Any) -> bool:
    """Whether a call's element is the text; a script's, if it focuses one."""
    if expression is not None and ".focus(" not in expression:
        return False
    frame, selector = (self._frame, self._selector) if isinstance(self, Locator) else (self, selector)
    if selector:
        return bool(await frame.eval_on_selector_all(selector, IS_TEXT, None))
    return TEXT.search(expression or "") is not None
