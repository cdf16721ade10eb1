"""Handlers of OpenAI's responses, and of those that are kept: a client finds only its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import orjson
from aiohttp import web

from llama_srb.dialects import responses
from llama_srb.engine.events import Event
from llama_srb.http.context_of import context_of
from llama_srb.http.middleware import json_response
from llama_srb.http.request_keys import BODY, CALLER, HELD
from llama_srb.http.streaming import Render, Responder
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.truncate import chat_length
from llama_srb.request.values import RequestError, shown, whole, wrong
from llama_srb.serving.bodies import LargeBodies, without_stalling
from llama_srb.serving.context import RequestContext
from llama_srb.serving.generation import generation_of, prepared
from llama_srb.serving.kept_responses import KeptResponse, KeptResponses
from llama_srb.serving.model_registry import ModelRegistry

Json: TypeAlias = dict[str, Any]

MOST_ITEMS, DEFAULT_ITEMS = 100, 20  # of one list


@dataclass(frozen=True, slots=True)
class Conversation:
    """A body with the items that it names. before: those of earlier responses. size: bytes of all."""

    body: Mapping[str, Any]
    before: list[Json]
    size: int

    async def parsed(
        self, context: RequestContext, *, keeps: bool = False
    ) -> tuple[CompletionRequest, responses.Asked]:
        """As parse() of the dialect."""
        read = partial(responses.parse, keeps=keeps)
        return await without_stalling(self.size, read, self.body, context.defaults, self.before)


class Responses:
    """Handlers of foreign.py."""

    def __init__(
        self, registry: ModelRegistry, responder: Responder, kept: KeptResponses, large: LargeBodies
    ) -> None:
        self._registry, self._responder, self._kept, self._large = registry, responder, kept, large

    async def create_response(self, http: web.Request) -> web.StreamResponse:
        """One answer to a conversation, in the form of OpenAI's responses."""
        context = await context_of(http, self._registry)
        asked_for = await self._conversation(http, context)
        # those of a batch would push out all others
        keeps = len(http[BODY]) < self._kept.largest and not http[CALLER].is_item
        request, asked = await asked_for.parsed(context, keeps=keeps)
        origin = context.origin
        with context.reserve() as reservation:
            most, limit = self._responder.max_held, asked.limit
            work, request = await generation_of(request, context, reservation, most, limit, has_stop=True)
            output = responses.Output(request, asked, origin)
            keep = await self._keeper(http, context.body, asked, output) if asked.store else _nothing
            if asked.form.stream:
                render = _ending(responses.Frames(output).render, keep)
                return await self._responder.stream(http, work, render)
            return await self._responder.whole(http, work, _Ending(responses.Body(output), keep))

    async def response_input_tokens(self, http: web.Request) -> web.Response:
        """The tokens of the prompt of a response; nothing is generated."""
        context = await context_of(http, self._registry)
        request, _ = await (await self._conversation(http, context)).parsed(context)
        with context.reserve() as reservation:
            request = await prepared(request, context, reservation)
            tokens = await chat_length(request, reservation.command)
        return json_response(responses.counted(tokens))

    async def _conversation(self, http: web.Request, context: RequestContext) -> Conversation:
        """What a body says, with what it names; RequestError 400 or 404 if that is gone."""
        body, size, client = context.body, len(http[BODY]), http[CALLER].client
        named = await without_stalling(size, responses.named_in, body)
        if named.nothing:
            return Conversation(body, [], size)
        keeps, most = self._kept.most > 0, http.client_max_size
        find = partial(self._kept.find, client)
        chain = [] if named.response is None else self._kept.chain(client, named.response)
        if chain is None:
            raise responses.response_gone(body["previous_response_id"], keeps=keeps)
        there = [*chain, *(one for id in named.items if (one := find(id)) is not None)]
        total = size + sum(len(one.input) + len(one.output) for one in there)
        self._large.make_room(size, min(total, most), http[HELD], client)
        history = responses.History(find, most, size, keeps=keeps)
        async with self._registry.bodies.turn(total):
            return await asyncio.to_thread(
                _read, body, history, chain
            )  # items may be references to large ones

    async def _keeper(
        self, http: web.Request, body: Mapping[str, Any], asked: responses.Asked, output: responses.Output
    ) -> Callable[[], None]:
        """What keeps a response at its end. It holds as JSON what the client has sent."""
        size, client = len(http[BODY]), http[CALLER].client
        items = await without_stalling(size, orjson.dumps, responses.whole_input(body.get("input")))
        repeated = await without_stalling(size, orjson.dumps, asked.repeated)
        before = responses.id_of(body.get("previous_response_id"))

        def keep() -> None:
            if (final := output.final) is None:
                return
            made = {name: value for name, value in final.items() if name not in asked.repeated}
            generated = orjson.dumps([*map(_without_logprobs, made.pop("output"))])
            rest = orjson.dumps(made)[:-1] + b"," + repeated[1:]
            id = final["id"].removeprefix(responses.PREFIX)
            self._kept.keep(client, KeptResponse(id, before, items, generated, rest))

        return keep

    # Those that are kept

    async def get_response(self, http: web.Request) -> web.Response:
        """A response of the caller."""
        if http.query.get("stream", "false") != "false":
            message = "a response that is kept is not streamed again: ask for it without stream"
            raise RequestError(message, param="stream")
        return web.Response(body=self._found(http).body, content_type="application/json")

    async def delete_response(self, http: web.Request) -> web.Response:
        """Forgets a response of the caller."""
        found = self._found(http)
        self._kept.remove(http[CALLER].client, found.id)
        id = responses.PREFIX + found.id
        answer: responses.DeletedResponse = {"id": id, "object": "response", "deleted": True}
        return json_response(answer)

    async def list_input_items(self, http: web.Request) -> web.Response:
        """The items of a response's input."""
        found, page = self._found(http), _Page.of(http.query)
        find = partial(self._kept.find, http[CALLER].client)
        history = responses.History(find, http.client_max_size)
        async with self._registry.bodies.turn(len(found.input)):
            return await asyncio.to_thread(lambda: json_response(page.of_items(history.listed(found))))

    def _found(self, http: web.Request) -> KeptResponse:
        id = http.match_info["response_id"]
        found = self._kept.find(http[CALLER].client, id.removeprefix(responses.PREFIX))
        if found is None:
            reason = "or no more" if self._kept.most else f"since {responses.NEVER}"
            message = f"there is no response {shown(id)} here, {reason}"
            raise RequestError(message, param="response_id", status=404, code="response_not_found")
        return found


def _read(body: Mapping[str, Any], history: responses.History, chain: list[KeptResponse]) -> Conversation:
    before = history.before(chain, body.get("previous_response_id"))
    made = {**body, "input": history.input(body.get("input"))}
    return Conversation(made, before, history.size)


def _without_logprobs(item: Json) -> Json:
    """Nobody needs them to go on, and they are larger than the text."""
    if item["type"] != "message":
        return item
    return {**item, "content": [{**part, "logprobs": []} for part in item["content"]]}


# Ends of answers: a response is kept before the client has its last byte


def _nothing() -> None:
    """The end of a response that is not kept."""


def _ending(render: Callable[[list[Event]], bytes], end: Callable[[], None]) -> Render:
    def ending(events: list[Event]) -> bytes | Iterator[bytes]:
        frames = render(events)
        end()
        return frames

    return ending


class _Ending:
    """As the builder of a body, with its end."""

    def __init__(self, body: responses.Body, end: Callable[[], None]) -> None:
        self.take, self._body, self._end = body.take, body, end

    def json(self) -> bytes:
        made = self._body.json()
        self._end()
        return made


@dataclass(frozen=True, slots=True)
class _Page:
    """A part of a list. after: an id; None: it begins with the first one."""

    limit: int
    after: str | None
    is_newest_first: bool

    @classmethod
    def of(cls, query: Mapping[str, str]) -> _Page:
        limit, order = query.get("limit", str(DEFAULT_ITEMS)), query.get("order", "desc")
        if not limit.isascii() or not limit.isdecimal():
            raise wrong("limit", limit, f"between 1 and {MOST_ITEMS}")
        if order not in ("asc", "desc"):
            raise wrong("order", order, "asc or desc")
        return cls(whole("limit", int(limit[:9]), 1, MOST_ITEMS), query.get("after"), order == "desc")

    def of_items(self, items: list[Json]) -> responses.InputItems:
        """The part of these items, which are in order; RequestError if there is none of the id `after`."""
        items = items[::-1] if self.is_newest_first else items
        ids = [item["id"] for item in items]
        if self.after is not None and self.after not in ids:
            raise wrong("after", self.after, "the id of an item of this response")
        first = 0 if self.after is None else ids.index(self.after) + 1
        data = items[first : first + self.limit]
        return {
            "object": "list",
            "data": data,
            "first_id": data[0]["id"] if data else None,
            "last_id": data[-1]["id"] if data else None,
            "has_more": first + len(data) < len(items),
        }
