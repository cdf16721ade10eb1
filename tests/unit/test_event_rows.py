"""What follows from the rows of llama_srb/engine/events.py agrees with them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from llama_srb.dialects import events as dialect
from llama_srb.dialects.common.response_types import Noted
from llama_srb.engine.event_rows import public_rows, rows, wire_name
from llama_srb.engine.events import PUBLIC, DiversityStats, Error, Start, TokenList, Vote
from llama_srb.grpc.messages import message_class
from tests.support.places import ROOT
from tests.support.rows import each_row

SOME: dict[Any, Any] = {
    str: "a",
    str | None: "a",
    int: 1,
    int | None: 1,
    float: 0.5,
    float | None: 0.5,
    tuple[int, ...]: (1,),
    tuple[str, ...]: ("a",),
    tuple[float, ...]: (0.5,),
    tuple[Mapping[str, Any], ...]: ({"index": 0},),
    Mapping[str, float]: {"prompt_ms": 1.5},
    TokenList: TokenList.of([{"id": 5}]),
    tuple[Vote, ...] | None: (Vote("a", 1),),
    DiversityStats | None: DiversityStats(1, 1, None, 1.0),
}


def test_the_classes_made_of_the_rows_are_not_stale() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "events"), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@each_row("event", PUBLIC, ids=wire_name)
def test_a_frame_has_the_public_fields_in_the_order_of_the_rows(event: type[Any]) -> None:
    frame = dialect.render([event(**{row.name: SOME[row.type] for row in rows(event)})])
    notes = ["warnings"] if event is Start else []  # the engine's, with those of the request
    assert list(json.loads(frame.removeprefix(b"data: "))) == ["event", *public_rows(event), *notes]


def test_the_proto_has_the_numbers_of_the_rows() -> None:
    """Of all events but error, which is a status of gRPC."""
    messages = message_class("Event").DESCRIPTOR.fields_by_name
    assert set(messages) == {wire_name(event) for event in PUBLIC if event is not Error}
    for event in PUBLIC:
        if event is not Error:
            fields = messages[wire_name(event)].message_type.fields
            added = Noted.__annotations__ if event is Start else {}
            numbers = {name: row.public.number for name, row in public_rows(event).items() if row.public}
            assert {one.name: one.number for one in fields if one.name not in added} == numbers, event
            assert added.keys() <= {one.name for one in fields}
