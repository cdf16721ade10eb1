"""A few thousand of the bodies that bodies.py sends."""

from __future__ import annotations

import pytest

from tests.soak.bodies import try_bodies
from tests.support.places import ROOT


@pytest.mark.parametrize(("count", "engine"), [(4000, None), (1000, ROOT / "build/bin/llama-batched")])
async def test_no_body_is_an_error_of_the_server(count: int, engine: object) -> None:
    said, wrong = await try_bodies(count, 8, engine)
    assert wrong == [], said
