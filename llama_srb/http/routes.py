"""The HTTP API as one table: each row has its handler; openapi/ and docs/api.md are made from them."""

from __future__ import annotations

import dataclasses

from llama_srb.dialects import events, openai
from llama_srb.dialects.embeddings import Embeddings
from llama_srb.dialects.openai import Completion, Error, chat
from llama_srb.dialects.rerank import RerankAnswer
from llama_srb.dialects.scores import ScoredTexts
from llama_srb.dialects.tasks.made_prompt import MadePrompt
from llama_srb.http import foreign
from llama_srb.http.batches.routes import BATCHES
from llama_srb.http.handlers.adapter_loads import AdapterRoutes
from llama_srb.http.handlers.compatibility import Compatibility
from llama_srb.http.handlers.control import Control
from llama_srb.http.handlers.generate import Generate
from llama_srb.http.handlers.health import Health
from llama_srb.http.handlers.info import Info
from llama_srb.http.handlers.loads import Loads
from llama_srb.http.handlers.overrides import OverrideRoutes
from llama_srb.http.handlers.responses import Responses
from llama_srb.http.memories.routes import MEMORIES
from llama_srb.http.response_types import (
    AbortedRequests,
    Adapter,
    Adapters,
    Computed,
    DrainState,
    Extended,
    Fields,
    Model,
    Models,
    Presets,
    Stats,
    StatsByModel,
    TaskList,
)
from llama_srb.http.route import (
    CANCELLED,
    FAILED,
    FAULT,
    GENERATION_ERRORS,
    JSON,
    NOT_ALLOWED,
    PAGE,
    PLAIN,
    SAME,
    SSE,
    TASK_ERRORS,
    Answer,
    Document,
    Route,
    json_of,
)
from llama_srb.http.stories.routes import STORIES
from llama_srb.http.tasks.handlers import TaskRoutes
from llama_srb.serving.health import Healthy, Unhealthy
from llama_srb.serving.keys.scopes import (
    ADMIN,
    CHAT,
    COMPLETE,
    COMPLETE_OR_CHAT,
    EMBED,
    EVERY_KEY,
    METRICS,
    NO_KEY,
)

# fmt: off
OURS: tuple[Route, ...] = (
    Route("POST", "/v1/completions", COMPLETE, Generate.completions,
        "n continuations of one prompt, as the event stream or in OpenAI's form, which rules choose.",
        {
            200: Answer("The continuations; a stream has chunks in OpenAI's form, otherwise events.",
                {JSON: Completion, SSE: (openai.CHUNKS, events.EVENTS)}),
            **GENERATION_ERRORS,
        }, request="Request"),
    Route("POST", "/openai/v1/completions", COMPLETE, Generate.completions,
        "The same as /v1/completions, but always in OpenAI's form.",
        {
            200: Answer("The continuations.", {JSON: Completion, SSE: openai.CHUNKS}),
            **GENERATION_ERRORS,
        }, request="Request", name="openai_completions"),
    Route("POST", "/v1/chat/completions", CHAT, Generate.chat_completions,
        "n answers to a chat, in OpenAI's form: the model's chat template makes prompt and grammar, and each "
        "answer is parsed into content, reasoning and tool calls.",
        {
            200: Answer("The answers.", {JSON: chat.ChatCompletion, SSE: chat.CHUNKS}),
            **GENERATION_ERRORS,
        }, request="ChatRequest"),
    Route("POST", "/v1/fim/completions", COMPLETE, Generate.fim_completions,
        "n texts between a prompt and a suffix, in Mistral's form: each is a message, as in a chat.",
        {
            200: Answer("The texts.", {JSON: chat.ChatCompletion, SSE: chat.CHUNKS}),
            **GENERATION_ERRORS,
        }, request="FimRequest"),
    Route("POST", "/v1/events", COMPLETE, Generate.completions,
        "n continuations of one prompt, always as the event stream.",
        {200: Answer("The continuations.", {SSE: events.EVENTS}), **GENERATION_ERRORS}, request="Request",
        name="events"),
    Route("POST", "/v1/completions/{id}/extend", COMPLETE_OR_CHAT, Control.extend,
        "Adds continuations to a running request, in its stream: new ones, or forks of one.",
        {
            200: json_of("The new sequences are first to count - 1.", Extended),
            404: json_of("No request with this id is running; `continue` is for ended ones.", Error),
            **GENERATION_ERRORS,
        }, request="Extension"),
    Route("POST", "/v1/prefix", COMPLETE, Generate.prefix,
        "Prefills a prompt and generates nothing, so that a later request starts at once. A newer prefix of "
        "the same client supersedes it, and it yields to other requests.",
        {
            200: json_of("The prefix is computed, or superseded.", Computed),
            409: json_of("The mode per-request without --prefix-cache has no prefix cache.", Error),
            **GENERATION_ERRORS,
        }, request="Prefix"),
    Route("POST", "/v1/score", COMPLETE, Generate.score,
        "Scores of several texts after one prompt: log-probabilities, perplexity.",
        {
            200: json_of("One entry for each text, in the order of the texts.", ScoredTexts),
            **GENERATION_ERRORS,
        }, request="Score"),
    Route("POST", "/v1/embeddings", EMBED, Generate.embeddings,
        "Vectors of texts, in OpenAI's form.",
        {
            200: json_of("One entry for each text, in the order of the texts.", Embeddings),
            **GENERATION_ERRORS,
        }, request="EmbeddingInput"),
    Route("POST", "/v1/rerank", EMBED, Generate.rerank,
        "Documents by how well they answer a query, in the form of Jina and vLLM; with texts in that of TEI.",
        {
            200: json_of("The best documents first.", RerankAnswer),
            **GENERATION_ERRORS,
        }, request="RerankInput"),
    Route("DELETE", "/v1/completions/{id}", COMPLETE_OR_CHAT, Control.cancel,
        "Ends a request.", CANCELLED),
    Route("DELETE", "/v1/completions/{id}/{index}", COMPLETE_OR_CHAT, Control.cancel,
        "Ends one sequence of a request; the others continue.", CANCELLED),
    Route("POST", "/v1/abort", COMPLETE_OR_CHAT, Control.abort,
        "Ends all of the caller's requests, on all paths; those of its batches go on.",
        {200: json_of("How many there were.", AbortedRequests), **FAILED}),
    Route("GET", "/v1/ws", COMPLETE, Control.websocket,
        "A WebSocket: many requests on one connection, each with an id that the client chooses; answers are "
        "the event stream's events.",
        {
            101: Answer("The connection is a WebSocket now.", {}),
            400: json_of("The request is not a WebSocket handshake.", Error),
            **FAILED,
        }, works=True),
    Route("GET", "/v1/tasks", EVERY_KEY, TaskRoutes.list_tasks,
        "The tasks that the configuration has: each is a name for texts around a prompt and for fields.",
        {200: json_of("A list.", TaskList), **FAILED}),
    Route("POST", "/v1/tasks/{name}/completions", COMPLETE, TaskRoutes.task_completions,
        "n continuations by a task, whose texts stand around the prompt; the rules of /v1/completions choose "
        "the form.",
        {
            200: Answer("The continuations; a stream has chunks in OpenAI's form, otherwise events.",
                {JSON: Completion, SSE: (openai.CHUNKS, events.EVENTS)}),
            **TASK_ERRORS,
        }, request="Request"),
    Route("POST", "/v1/tasks/{name}/chat", CHAT, TaskRoutes.task_chat,
        "n answers to a chat by a task; the rules of /v1/completions choose the form.",
        {
            200: Answer("The answers; a stream has chunks in OpenAI's form, otherwise events.",
                {JSON: chat.ChatCompletion, SSE: (chat.CHUNKS, events.EVENTS)}),
            **TASK_ERRORS,
        }, request="ChatRequest"),
    Route("GET", "/v1/tasks/{name}/live", COMPLETE, TaskRoutes.task_live,
        "n continuations of ?prompt= by a task, as the event stream: for a browser's EventSource, which may "
        "send its key as ?api_key=. Other fields are JSON in the query.",
        {
            200: Answer("The continuations.", {SSE: events.EVENTS}),
            204: Answer("The stream was read already: a browser that connects again stops.", {}),
            **TASK_ERRORS,
        }, works=True, queries=("prompt",)),
    Route("GET", "/v1/tasks/{name}/ws", CHAT, Control.task_socket,
        "A WebSocket: a chat with a task, whose turns the server holds, n candidates a turn.",
        {
            101: Answer("The connection is a WebSocket now.", {}),
            400: json_of("The request is not a WebSocket handshake.", Error),
            404: TASK_ERRORS[404],
            **FAILED,
        }, works=True),
    Route("POST", "/v1/prompt", COMPLETE_OR_CHAT, TaskRoutes.exact_prompt,
        "The exact prompt of a completion or a chat, also of a task, in parts with their tokens; nothing is "
        "generated.",
        {200: json_of("The prompt.", MadePrompt), **GENERATION_ERRORS}, request="ChatRequest"),
    Route("POST", "/v1/trials", ADMIN, TaskRoutes.trial,
        "n continuations, or answers to a chat, by a task that is tried: a configured one, or a draft, "
        "the TOML of its table; always as the event stream. No memory gets the prompt.",
        {200: Answer("The continuations.", {SSE: events.EVENTS}), **TASK_ERRORS}, request="Trial"),
    Route("POST", "/v1/trials/prompt", ADMIN, TaskRoutes.trial_prompt,
        "The exact prompt of a trial, as /v1/prompt has it; nothing is generated.",
        {200: json_of("The prompt.", MadePrompt), **TASK_ERRORS}, request="Trial"),
    Route("GET", "/v1/models", EVERY_KEY, Info.models,
        "The models, with facts from their files, and adapters that have names.",
        {200: json_of("A list.", Models), **FAILED}),
    Route("GET", "/v1/adapters", EVERY_KEY, Info.adapters,
        "The LoRA adapters that requests may name; scale is for requests without `lora`.",
        {200: json_of("A list.", Adapters), **FAILED}),
    Route("POST", "/v1/load_lora_adapter", ADMIN, AdapterRoutes.load_lora_adapter,
        "vLLM: loads an adapter while the server runs, from the folder --adapters-dir; requests name it by "
        "`model` or `lora`.",
        {
            200: Answer("It is loaded.", {PLAIN: str}),
            400: json_of("The body or the file is wrong, or the name is taken.", Error),
            **FAILED,
            404: json_of("There is no such file or model.", Error),
            413: GENERATION_ERRORS[413],
            503: GENERATION_ERRORS[503],
        }, request="AdapterToLoad"),
    Route("POST", "/v1/unload_lora_adapter", ADMIN, AdapterRoutes.unload_lora_adapter,
        "vLLM: unloads an adapter; requests that have it keep it until they end.",
        {
            200: Answer("No later request gets it.", {PLAIN: str}),
            400: json_of("The body is wrong.", Error),
            **FAILED,
            404: json_of("There is no such adapter or model.", Error),
            413: GENERATION_ERRORS[413],
            503: GENERATION_ERRORS[503],
        }, request="AdapterToUnload"),
    Route("GET", "/lora-adapters", EVERY_KEY, Info.lora_adapters,
        "The same list in llama-server's form.",
        {200: json_of("A list.", list[Adapter]), **FAILED}),
    Route("GET", "/v1/models/{name}", EVERY_KEY, Info.model_named,
        "A model, or an adapter that has a name.",
        {200: json_of("The model.", Model), 404: json_of("There is no such model.", Error), **FAILED}),
    Route("POST", "/v1/models/{name}/load", ADMIN, Loads.load_model,
        "Loads a model, and waits until it is loaded. A slash in the name is written %2F.",
        {
            200: json_of("The model, which is loaded.", Model),
            404: json_of("There is no such model.", Error),
            **FAILED,
            503: json_of("It cannot be loaded, for the reason in the message.", Error),
        }),
    Route("POST", "/v1/models/{name}/unload", ADMIN, Loads.unload_model,
        "Unloads a model. The next request for it loads it again.",
        {
            200: json_of("The model, which is unloaded.", Model),
            400: json_of("The name is an adapter's.", Error),
            404: json_of("There is no such model.", Error),
            409: json_of("It has requests, whose number is in the message.", Error),
            **FAILED,
        }),
    Route("GET", "/v1/presets", EVERY_KEY, Info.presets,
        "The presets that a request may name: description and fields.",
        {200: json_of("A list.", Presets), **FAILED}),
    Route("GET", "/v1/samplers", EVERY_KEY, Info.samplers,
        "All request fields: name, type, default, bounds, aliases, meaning; how other servers' fields are "
        "converted.",
        {200: json_of("The table.", Fields), **FAILED}),
    Route("GET", "/openapi.json", EVERY_KEY, Info.openapi,
        "This API as an OpenAPI 3.1 document.",
        {200: json_of("The document.", Document), **FAILED}),
    Route("GET", "/metrics", METRICS, Health.metrics,
        "The server's counts and times, in Prometheus' text format.",
        {200: Answer("The metrics.", {PLAIN: str}), **FAILED}, works=True),
    Route("GET", "/v1/stats", METRICS, Health.stats,
        "The server's counts, and the engine's status, as JSON.",
        {200: json_of("The counts.", Stats | StatsByModel), **FAILED}, works=True),
    Route("POST", "/drain", ADMIN, Control.drain,
        "Begins a drain: /health and /health/ready turn 503, new requests get 503 with Retry-After, what has "
        "begun and open WebSockets go on.",
        {
            200: json_of("New requests are refused; what is still open.", DrainState),
            400: json_of("wait is wrong.", Error),
            **FAILED,
        }, queries=("wait",)),
    Route("DELETE", "/drain", ADMIN, Control.end_drain,
        "Ends a drain: requests are served again.",
        {200: json_of("Requests are served.", DrainState), **FAILED}),
    Route("GET", "/health/live", NO_KEY, Health.live,
        "Whether the server runs.",
        {200: json_of("It runs.", Healthy), **NOT_ALLOWED, **FAULT}),
    Route("GET", "/health/ready", NO_KEY, Health.ready,
        "The same as /health.",
        {200: json_of("The engine is ready.", Healthy), **NOT_ALLOWED, **FAULT,
         503: json_of("The engine is loading, draining or stopped, or has failed (/health).", Unhealthy)}),
    Route("GET", "/", NO_KEY, Info.studio,
        "The studio: a page for writing with n candidates.",
        {200: Answer("The page.", {PAGE[0]: str}), 304: Answer("It has not changed.", {}),
         **NOT_ALLOWED, **FAULT}),
    Route("GET", "/studio/{file}", NO_KEY, Info.studio,
        "A file of the studio.",
        {200: Answer("The file.", dict.fromkeys(PAGE, str)), 304: Answer("It has not changed.", {}),
         404: json_of("There is no such file.", Error), **NOT_ALLOWED, **FAULT}),
    Route("GET", "/health", NO_KEY, Health.health,
        "Whether the engine is ready, so that requests start at once.",
        {200: json_of("The engine is ready.", Healthy), **NOT_ALLOWED, **FAULT,
         503: json_of("The engine is loading, draining or stopped, or has failed (/health).", Unhealthy)}),
)
# fmt: on
OURS += MEMORIES + BATCHES + STORIES
OURS += tuple(
    dataclasses.replace(route, path=other, summary=f"The same as {path}.")
    for other, path in SAME.items()
    for route in OURS
    if route.path == path
)


def _of_others(path: foreign.Path) -> Route:
    """The route of another server's path; it has the errors of our own routes, in its dialect's form."""
    error = foreign.ERRORS.get(path.dialect, Error)
    errors = GENERATION_ERRORS if path.request is not None else FAILED | {503: GENERATION_ERRORS[503]}
    errors = errors | MORE_ERRORS.get(path.path, {})
    meanings = {status: answer.meaning for status, answer in errors.items()}
    if (instead := foreign.UNAVAILABLE.get(path.dialect)) is not None:
        del meanings[503]
        meanings |= instead
    answers = {status: json_of(meaning, error) for status, meaning in meanings.items()}
    if path.answers:
        answers[200] = Answer(path.summary, path.answers)
    own = (path.method, path.path, path.scopes, path.handler, path.summary)
    name = path.name + "Body" if path.request is not None else ""
    return Route(
        *own, answers, name, path.dialect, works=path.works, body=path.request, list_as=path.list_as,
        queries=path.queries,
    )  # fmt: skip


NO_SUCH_MODEL = {404: json_of("There is no such model.", Error)}
NO_TEMPLATES = {501: json_of("Templates are the server's settings.", Error)}
HAS_REQUESTS = {409: json_of("It has requests, whose number is in the message.", Error)}
NO_SUCH_RESPONSE = {404: json_of("The caller has no response of this id here, or no more.", Error)}
WRONG_QUERY = {400: json_of("A parameter of the query is wrong.", Error)}
NO_SUCH_ITEM = {
    404: json_of(
        "There is no such model, or an item that the input names is not kept here (any more).", Error
    )
}
ANY_RESPONSE = tuple(prefix + "/responses" for prefix in ("/v1", "", "/openai/v1"))
MORE_ERRORS = {
    **{path + more: NO_SUCH_ITEM for path in ANY_RESPONSE for more in ("", "/input_tokens")},
    **{path + "/{response_id}": NO_SUCH_RESPONSE | WRONG_QUERY for path in ANY_RESPONSE},
    **{path + "/{response_id}/input_items": NO_SUCH_RESPONSE | WRONG_QUERY for path in ANY_RESPONSE},
    **dict.fromkeys(("/models/load", "/v1/model/load", "/v1/internal/model/load"), NO_SUCH_MODEL),
    **dict.fromkeys(
        ("/models/unload", "/v1/model/unload", "/v1/internal/model/unload"), NO_SUCH_MODEL | HAS_REQUESTS
    ),
    "/infill": {501: json_of("The model has no infill tokens.", Error)},
    **dict.fromkeys(("/v1/template/list", "/v1/template/switch", "/v1/template/unload"), NO_TEMPLATES),
    **dict.fromkeys(("/v1/sampling/override/switch", "/v1/sampling/override/unload"), NO_SUCH_MODEL),
    "/slots": {501: json_of("The server was started with --no-slots.", Error)},
}


def _complete(route: Route) -> Route:
    """The row with what follows from its handler."""
    names_model, answers = route.handler in NAMING, route.answers
    if names_model and 404 not in answers:
        unknown = json_of("There is no such model.", foreign.ERRORS.get(route.dialect, Error))
        answers = {**answers, 404: unknown}
    is_shared = route.handler in OF_OTHERS
    return dataclasses.replace(route, names_model=names_model, answers=answers, is_shared=is_shared)


NAMING = frozenset({  # serve the model which a request names
    Generate.completions, Generate.chat_completions, Generate.fim_completions,
    Responses.create_response, Responses.response_input_tokens,
    Generate.prefix, Generate.score, Generate.embeddings, TaskRoutes.exact_prompt, Compatibility.reply,
    Compatibility.ask, Compatibility.count_tokens, Compatibility.pull, Compatibility.vectors,
    Compatibility.kobold_perf, Info.adapters, Info.lora_adapters, Info.samplers, Info.openapi,
    AdapterRoutes.load_lora_adapter, AdapterRoutes.unload_lora_adapter, Health.metrics,
    AdapterRoutes.tabby_load_lora_adapter, AdapterRoutes.tabby_unload_lora_adapter,
    OverrideRoutes.list_overrides,
})  # fmt: skip
OF_OTHERS = frozenset(path.handler for path in foreign.PATHS)
OURS = tuple(map(_complete, OURS))
ROUTES = (*OURS, *map(_complete, map(_of_others, foreign.PATHS)))
