"""The events of second answers on their way through pool, routes and the WebSocket, with the fake engine."""

from __future__ import annotations

from typing import Any

from tests.fake_engine import story
from tests.support.served import Serving
from tests.support.sockets import connected, event, until

THEN = {"text": " So:", "max_tokens": 2, "return_free": True}
ASKED: dict[str, Any] = {"prompt": "Once", "n": 3, "max_tokens": 4, "seed": 7, "then": THEN}


def of(events: list[dict[str, Any]], index: int) -> list[dict[str, Any]]:
    return [event for event in events if event.get("index") == index]


async def test_then_divides_the_two_answers_of_each_sequence(serving: Serving) -> None:
    served = await serving()
    events = await served.events(ASKED, "/v1/events")
    for index in range(3):
        names = [event["event"] for event in of(events, index)]
        assert names == ["stream"] * 4 + ["then"] + ["stream"] * 2 + ["stop"]
        assert of(events, index)[4]["length"] == of(events, index)[-1]["free_length"] == 4
        assert of(events, index)[-1]["length"] == 6
        second = "".join(event["text"] for event in of(events, index)[5:7])
        assert second == "".join(story("Once So:", 7, index, 2))
    assert events[-1]["completion_tokens"] == 18


async def test_a_free_answer_that_is_not_returned_has_no_events(serving: Serving) -> None:
    served = await serving()
    events = await served.events({**ASKED, "then": {**THEN, "return_free": False}}, "/v1/events")
    assert [event["event"] for event in of(events, 1)] == ["stream"] * 2 + ["stop"]


async def test_a_websocket_has_the_event_and_cancels_in_the_second_answer(serving: Serving) -> None:
    served = await serving("--endless")
    async with connected(served) as socket:
        then = {**THEN, "max_tokens": 100_000}
        await socket.send_json({"op": "generate", "id": "a", **ASKED, "then": then})
        told = await until(socket, event("then", id="a"))
        await until(socket, event("then"))
        await until(socket, event("then"))
        await socket.send_json({"op": "cancel", "id": "a"})
        told = await until(socket, event("done"))
    stops = [message for message in told if message["event"] == "stop"]
    assert {stop["finish_reason"] for stop in stops} == {"cancelled"}
    assert all(stop["free_length"] == 4 for stop in stops)


async def test_an_engine_that_dies_in_second_answers_ends_the_request(serving: Serving) -> None:
    """The texts so far stay, and the request ends with an error, like any other."""
    served = await serving("--die-after", "14")
    events = await served.events(ASKED | {"then": {**THEN, "max_tokens": 20}}, "/v1/events")
    assert events[-1]["event"] == "error"
    assert any(event["event"] == "then" for event in events)
