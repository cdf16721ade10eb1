"""Handlers of tasks: completions, chats, a stream for EventSource, trials; a list; exact prompts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import orjson
from aiohttp import web

from llama_srb.dialects.tasks.made_prompt import MadePrompt, Texts, made_prompt, texts_of
from llama_srb.dialects.tasks.made_prompt import with_story as parts_of_story
from llama_srb.http.context_of import context_of
from llama_srb.http.gate import QUERY_KEY
from llama_srb.http.handlers.generate import Generate
from llama_srb.http.middleware import json_response
from llama_srb.http.request_keys import BODY, CALLER, HELD
from llama_srb.http.response_types import TaskEntry, TaskList
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.values import RequestError, wrong
from llama_srb.serving.admission import Reservation
from llama_srb.serving.bodies import without_stalling
from llama_srb.serving.context import RequestContext
from llama_srb.serving.generation import without_messages
from llama_srb.serving.keys.caller import Caller
from llama_srb.serving.model_registry import ModelRegistry
from llama_srb.serving.recall import with_recalled
from llama_srb.serving.story_prompts import with_story
from llama_srb.serving.task_drafts import FIELD, draft_of, without_storing
from llama_srb.tasks import Task, pieces_of

LAST_ID = "Last-Event-ID"  # an EventSource that connects again sends it
FIRST = b"id: live\n"  # of the first event, so that it does


class TaskRoutes:
    """Handlers of routes.py."""

    def __init__(self, registry: ModelRegistry, generate: Generate) -> None:
        self._registry, self._generate = registry, generate

    async def task_completions(self, http: web.Request) -> web.StreamResponse:
        """n continuations by a task, in the form that the rules of dialects/negotiation choose."""
        context = await self._of_path(http, await self._registry.bodies.read(http[BODY]))
        return await self._generate.complete(http, context)

    async def task_chat(self, http: web.Request) -> web.StreamResponse:
        """n answers to a chat by a task, in the form that the same rules choose."""
        context = await self._of_path(http, await self._registry.bodies.read(http[BODY]))
        if context.body.get("messages") is None:
            raise RequestError("messages is missing", param="messages")
        if self._generate.form_of(http, context.body) == "events":
            return await self._generate.stream(http, context)
        return await self._generate.chat(http, context)

    async def task_live(self, http: web.Request) -> web.StreamResponse:
        """n continuations of ?prompt= as the event stream, for a browser's EventSource."""
        if http.method == "HEAD":
            raise web.HTTPMethodNotAllowed("HEAD", ["GET"])
        if LAST_ID in http.headers:  # the stream is over, and the browser would generate it again for ever
            return web.Response(status=204)
        context = await self._of_path(http, _fields_of(http.query))
        return await self._generate.stream(http, context, FIRST)

    async def _of_path(self, http: web.Request, body: Mapping[str, Any]) -> RequestContext:
        """The model of the path's task."""
        name = http.match_info["name"]
        context = self._registry.of_task(name, body, http[CALLER], agent=http.headers.get("User-Agent", ""))
        model = body.get("model")
        if model is not None and model not in (name, *context.facts.names):
            message = f"model is {str(model)[:100]!r}, but the path names the task {name}"
            raise RequestError(message, param="model")
        await context.use(http[HELD])
        return context

    async def list_tasks(self, http: web.Request) -> web.Response:
        """The tasks that the caller may use."""
        caller = http[CALLER]
        data = [_entry(task, facts.name, caller) for task, facts in self._registry.tasks(caller)]
        answer: TaskList = {"object": "list", "data": data}
        return json_response(answer)

    async def exact_prompt(self, http: web.Request) -> web.Response:
        """The prompt of a completion or a chat, in parts with their tokens; nothing is generated."""
        return await self._exact(http, await context_of(http, self._registry))

    async def trial(self, http: web.Request) -> web.StreamResponse:
        """n continuations, or answers to a chat, by a draft or a configured task, as the event stream."""
        return await self._generate.stream(http, await self._tried(http))

    async def trial_prompt(self, http: web.Request) -> web.Response:
        """The prompt of a trial."""
        return await self._exact(http, await self._tried(http))

    async def _tried(self, http: web.Request) -> RequestContext:
        """The model of a body's draft, or of the task that it names; no memory gets its prompt."""
        body, caller = dict(await self._registry.bodies.read(http[BODY])), http[CALLER]
        if (toml := body.pop(FIELD, None)) is None:
            context = self._registry.of_task(_name_in(body), body, caller)
        elif body.get("model") is not None:
            raise RequestError(
                f"model and {FIELD} are given; the draft's own table names its model", param="model"
            )
        else:
            draft = await without_stalling(len(http[BODY]), draft_of, toml, self._registry.settings)
            context = self._registry.of_draft(draft, body, caller)
        assert context.task is not None
        await context.use(http[HELD])
        return dataclasses.replace(context, task=without_storing(context.task))

    async def _exact(self, http: web.Request, context: RequestContext) -> web.Response:
        request = await self._generate.one_prompt(http, context)
        if request.continue_ is not None:
            message = "continue is given; only the engine knows the tokens of an earlier request"
            raise RequestError(message, param="continue")
        with context.reserve() as reservation:
            request = await with_recalled(request, context)
            request = await with_story(request, context, reservation.command)
            made = await _made(request, context, reservation)
            return await without_stalling(request.prompt_length, json_response, made)


def _name_in(body: Mapping[str, Any]) -> str:
    name = body.get("model")
    if not isinstance(name, str):
        raise wrong("model", name, f"the name of a task, unless {FIELD} is given")
    return name


async def _made(request: CompletionRequest, context: RequestContext, reservation: Reservation) -> MadePrompt:
    whole = await without_messages(await context.with_task(request), context, reservation.command)
    given = whole.prompt_fields()
    if "tokens" in given:
        text = (await reservation.command("detokenize", tokens=given["tokens"]))["text"]
        return {
            "model": context.name,
            "prompt": text,
            "prompt_tokens": len(given["tokens"]),
            "parts": [{"kind": "prompt", "text": text, "special": True, "tokens": given["tokens"]}],
        }
    is_chat = request.messages is not None
    texts = texts_of(whole, is_chat=is_chat)
    if context.task is not None and (context.task.has_turns or not is_chat):
        texts = _texts_of_task(context.task, request)
    texts = parts_of_story(texts, request.assembled)
    parts = [{"text": text, "special": special} for _, text, special in texts]
    result = await reservation.command("tokenize", text=parts, add_special=True, pieces=True)
    size = sum(len(text) for _, text, _ in texts)
    return await without_stalling(size, made_prompt, context.name, texts, result, whole)


def _texts_of_task(task: Task, request: CompletionRequest) -> Texts:
    return [(piece.kind, piece.text, piece.special) for piece in pieces_of(task, request) if piece.text]


def _fields_of(query: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a request in a query: the prompt is a text, the others are JSON, or else texts."""
    given = {name: value for name, value in query.items() if name != QUERY_KEY}
    return {name: value if name == "prompt" else _value_of(value) for name, value in given.items()}


def _value_of(text: str) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _entry(task: Task, model: str, caller: Caller) -> TaskEntry:
    entry: TaskEntry = {
        "id": task.name,
        "object": "task",
        "about": task.about,
        "model": model,
        "named_model": task.model,
        "prelude": task.prelude,
        "prefix": task.prefix,
        "postfix": task.postfix,
        "fields": dict(task.fields),
        "locked": list(task.locked),
        "recall": None if task.recall is None else dataclasses.asdict(task.recall),
    }
    if caller.grant is None or caller.grant.is_admin:
        entry["private_tokens"] = list(task.private_tokens)
    return entry
