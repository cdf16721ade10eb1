"""A row of the table of routes, and the parts that rows share."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from aiohttp import web
from pydantic import Field

from llama_srb.dialects.openai import Error
from llama_srb.http.response_types import Cancelled
from llama_srb.serving.keys.scopes import Scopes

Handler: TypeAlias = Callable[..., Awaitable[web.StreamResponse]]
Schema: TypeAlias = dict[str, Any]

JSON, SSE, NDJSON, PLAIN = "application/json", "text/event-stream", "application/x-ndjson", "text/plain"
FILE, FORM = "application/octet-stream", "multipart/form-data"
PAGE = ("text/html", "text/css", "text/javascript", "image/svg+xml")
PARAMETERS: dict[str, tuple[str, Schema]] = {
    "id": (
        "The request's id, from the start event or, with `cmpl-`, from OpenAI's answers.",
        {"type": "string"},
    ),
    "name": ("The id of a model, or of a task.", {"type": "string"}),
    "index": (
        "The index of the sequence, from 0.",
        {"type": "integer", "minimum": 0, "maximum": 999_999_999},
    ),
    "file": ("A file of the studio.", {"type": "string"}),
    "memory": ("The name of a memory.", {"type": "string"}),
    "document": ("The document's id, of 1 to 512 bytes. It may have slashes.", {"type": "string"}),
    "file_id": ("The file's id.", {"type": "string"}),
    "batch_id": ("The batch's id.", {"type": "string"}),
    "response_id": (
        "The response's id, with or without `resp_`.",
        {"type": "string"},
    ),
    "story": (
        "The story's id.",
        {"type": "string", "pattern": "^[a-z0-9_-]{1,100}$"},
    ),
}
QUERY: dict[str, tuple[str, Schema]] = {
    "model": (
        "The name of a model, an alias or a named adapter, if the body names none; else the default.",
        {"type": "string"},
    ),
    "limit": (
        "The most entries of the list: of documents up to 500, files 10,000, batches and items 100.",
        {"type": "integer", "minimum": 1},
    ),
    "after": (
        "The list begins after this one: `next` of the page before, or its `last_id`.",
        {"type": "string"},
    ),
    "order": ("By the time of creation.", {"enum": ["asc", "desc"], "default": "desc"}),
    "purpose": ("Only files with this purpose.", {"type": "string"}),
    "forever": (
        "Whether it is removed, instead of moved to the trash.",
        {"enum": ["true", "false"], "default": "false"},
    ),
    "prompt": ("The text to continue; the request line may have 8,190 bytes.", {"type": "string"}),
    "wait": (
        "Seconds to wait until nothing is open.",
        {"type": "number", "minimum": 0, "maximum": 3600, "default": 0},
    ),
}
PATTERNS = {
    "index": "[0-9]{1,9}",
    "file": ".+",
    "document": ".+",
    "response_id": "[^/]*[0-9][^/]*",  # /v1/responses/compact, which is not here, is none
}  # other parameters are any text without a slash


@dataclass(frozen=True, slots=True)
class Answer:
    """One status of a route. content: by content type, the body: a type, a stream, or several streams."""

    meaning: str
    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """One row of the table.

    scopes: a key must have one of them; empty if the route needs no key. handler: the method that answers.
    request: the name of the body's schema, if there is one; body: that schema, if it is another server's.
    dialect: the form of its errors. files: the content types of a body that is a file, which the handler
    reads itself. works: a GET that generates, asks an engine, stays open, or reads what clients have stored;
    an image in a foreign page may not cause it. name: the operation's, if it is not the handler's. queries:
    the parameters of its query, beside `model`. names_model: requests may name a model, in the body or as
    ?model=. is_shared: other servers' paths have the same handler. list_as: the one field of a body that is a
    list, where that is allowed.
    """

    method: str
    path: str
    scopes: Scopes
    handler: Handler
    summary: str
    answers: Mapping[int, Answer]
    request: str = ""
    dialect: str = "openai"
    files: tuple[str, ...] = ()
    works: bool = False
    name: str = ""
    queries: tuple[str, ...] = ()
    names_model: bool = False
    body: Schema | None = None
    is_shared: bool = False
    list_as: str = ""

    @property
    def query(self) -> list[str]:
        """The parameters of its query."""
        return [*(["model"] * self.names_model), *self.queries]

    @property
    def parameters(self) -> list[str]:
        return [name for name in PARAMETERS if f"{{{name}}}" in self.path]

    @property
    def operation(self) -> str:
        """The operation's unique name: of the handler, or of the path if several paths share the handler."""
        if self.is_shared or self.path in SAME:
            return re.sub(r"\W", "_", self.method.lower() + self.path)
        return "_".join([self.name or self.handler.__name__, *self.parameters])

    @property
    def methods(self) -> tuple[str, ...]:
        return ("GET", "HEAD") if self.method == "GET" else (self.method,)

    @property
    def pattern(self) -> str:
        """The path with the pattern of each parameter, as aiohttp writes it."""
        path = self.path
        for name, pattern in PATTERNS.items():
            path = path.replace(f"{{{name}}}", f"{{{name}:{pattern}}}")
        return path


def json_of(meaning: str, kind: Any) -> Answer:
    """An answer of one type."""
    return Answer(meaning, {JSON: kind})


Document = Annotated[dict[str, Any], Field(description="OpenAPI 3.1")]


NOT_ALLOWED = {
    403: json_of("The origin or host name is not allowed, or the key lacks the scope or the model.", Error),
}
FAULT = {500: json_of("The engine died, or the server has a fault.", Error)}
FAILED = {
    401: json_of("The key is missing, unknown or expired.", Error),
    **NOT_ALLOWED,
    **FAULT,
}
GENERATION_ERRORS = {
    400: json_of("The body is wrong, or the prompt exceeds the context; has field, value and bound.", Error),
    413: json_of("The body is larger than --max-body.", Error),
    429: json_of("The key's limit of requests at once or of tokens a minute; see Retry-After.", Error),
    **FAILED,
    503: json_of("The queue is full, a time limit is over, no engine runs, or the server stops.", Error),
}
TASK_ERRORS = {**GENERATION_ERRORS, 404: json_of("There is no such task.", Error)}
CANCELLED = {
    200: json_of("It is cancelled; its stream ends with the text so far.", Cancelled),
    400: json_of("The request has no sequence with this index.", Error),
    404: json_of("No request with this id is running.", Error),
    **FAILED,
}

OPENAI = (
    *("/v1/chat/completions", "/v1/embeddings", "/v1/models", "/v1/models/{name}"),
    *("/v1/files", "/v1/files/{file_id}", "/v1/files/{file_id}/content"),
    *("/v1/batches", "/v1/batches/{batch_id}", "/v1/batches/{batch_id}/cancel"),
)
SAME = {  # a path → the path whose row it shares
    **{path.removeprefix("/v1"): path for path in ("/v1/models", "/v1/chat/completions")},  # llama-server's
    **{"/openai" + path: path for path in OPENAI},  # a client of /openai/v1/completions has one base URL
}
