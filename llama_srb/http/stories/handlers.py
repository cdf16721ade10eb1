"""Handlers of stories: whose they are, which version a client has, and what a story must have."""

from __future__ import annotations

import asyncio
import re
from dataclasses import asdict
from typing import ParamSpec, TypeVar

from aiohttp import web

from llama_srb.http.middleware import json_response
from llama_srb.http.request_keys import BODY, CALLER
from llama_srb.http.stories.response_types import StoryEntry, StoryList
from llama_srb.request.values import RequestError, wrong
from llama_srb.serving.model_registry import ModelRegistry
from llama_srb.serving.observe.logs import log_summary
from llama_srb.serving.story_store import Expected, Head, StoryStore, about_of, no_story

P = ParamSpec("P")
T = TypeVar("T")
ID = re.compile(r"[a-z0-9_-]{1,100}", re.ASCII)


class StoryRoutes:
    """Handlers of routes.py. store: None if the server keeps no stories."""

    def __init__(self, registry: ModelRegistry, store: StoryStore | None) -> None:
        self._registry, self._kept = registry, store

    async def list_stories(self, http: web.Request) -> web.Response:
        """The stories of the caller."""
        heads = await asyncio.to_thread(self._store.heads, http[CALLER].owner)
        answer: StoryList = {"object": "list", "data": [_entry(head) for head in heads]}
        return json_response(answer)

    async def get_story(self, http: web.Request) -> web.Response:
        """A story of the caller; 304 if the client has it."""
        store, id = self._store, _id(http)
        found = await asyncio.to_thread(store.get, http[CALLER].owner, id)
        if found is None:
            raise no_story(id)
        head, story = found
        headers = {"ETag": f'"{head.version}"', "Cache-Control": "no-cache"}
        if http.headers.get("If-None-Match") == headers["ETag"]:
            return web.Response(status=304, headers=headers)
        return web.Response(body=story, headers=headers, content_type="application/json")

    async def put_story(self, http: web.Request) -> web.Response:
        """Stores a story of the caller."""
        about = about_of(await self._registry.bodies.read(http[BODY]))
        store, id, expected = self._store, _id(http), _expected(http)
        if expected is None:
            message = 'name the version to replace: If-Match: "VERSION", or If-None-Match: * for a new story'
            raise RequestError(message, status=428, code="version_missing")
        head = await asyncio.to_thread(store.put, http[CALLER].owner, id, about, http[BODY], expected)
        log_summary.set(f" {id} bytes={head.bytes}")
        return _answer(head)

    async def delete_story(self, http: web.Request) -> web.Response:
        """Moves a story of the caller to the trash, or removes it."""
        store, id, expected = self._store, _id(http), _expected(http) or Expected()
        forever = http.query.get("forever", "false")
        if forever not in ("true", "false"):
            raise wrong("forever", forever, "true or false")
        change = store.remove if forever == "true" else store.to_trash
        return _answer(await asyncio.to_thread(change, http[CALLER].owner, id, expected))

    @property
    def _store(self) -> StoryStore:
        if self._kept is None:
            message = "this server keeps no stories; start it with --stories DIR"
            raise RequestError(message, status=501, code="stories_not_configured")
        return self._kept


def _id(http: web.Request) -> str:
    id = http.match_info["story"]
    if not ID.fullmatch(id):
        raise wrong("the id of the story", id, "1 to 100 of a-z, 0-9, _ and -", "story")
    return id


def _expected(http: web.Request) -> Expected | None:
    """The version that the client replaces, by its headers; None: it says nothing."""
    if (match := http.headers.get("If-Match")) is not None:
        return Expected(None if match.strip() == "*" else match.strip().strip('"'))
    if (no_match := http.headers.get("If-None-Match")) is None:
        return None
    if no_match.strip() != "*":
        raise wrong("If-None-Match", no_match, "*", "If-None-Match")
    return Expected(is_new=True)


def _entry(head: Head) -> StoryEntry:
    return {"object": "story", **asdict(head)}  # type: ignore[typeddict-item]


def _answer(head: Head) -> web.Response:
    return json_response(_entry(head), headers={"ETag": f'"{head.version}"'})
