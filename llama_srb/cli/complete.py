"""`llama-srb complete`: n continuations of a prompt, from a running server or from an engine of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import click

from llama_srb import client
from llama_srb.client import Answer, AsyncClient, ClientError, Event, RequestRefused
from llama_srb.config import Settings, SettingsError
from llama_srb.engine.events import DiversityStats, TokenList, Vote
from llama_srb.engine.exchange import EngineError, Exchange
from llama_srb.engine.pool import Mode, Pool
from llama_srb.engine.ranking import Rank, ranking
from llama_srb.engine.ranking.judging import JUDGED_AT_ONCE, margins
from llama_srb.engine.ranking.orders import Helpers
from llama_srb.engine.settings import EngineSettings
from llama_srb.models import defaults as field_defaults
from llama_srb.models import gguf_header
from llama_srb.models.cache import HubError
from llama_srb.models.gguf_header import ModelFileError
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.parse import Defaults, canonical, request_from
from llama_srb.request.values import RequestError, shown

from . import Failed, Refused, fetching, say
from .options import (
    ENGINE_SETTINGS,
    Command,
    Option,
    field_options,
    fields_of,
    load_settings,
    refuse_engine_options,
    setting_options,
)
from .show import Show, show_for

Source: TypeAlias = AbstractAsyncContextManager[AsyncIterator[Event]]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _complete(
    prompt: str | None, file: str | None, url: str | None, as_json: bool, as_lines: bool, **options: Any
) -> None:
    if as_json and as_lines:
        _usage_error("--json and --jsonl exclude each other.")
    body = {"prompt": _prompt(prompt, file), **fields_of(options)}
    source, waiting_for = _server(url, body, options) if url else _engine(body, options)
    answer = Answer(body)
    form = "json" if as_json else "jsonl" if as_lines else "text"
    show = show_for(answer, form, waiting_for)
    try:
        asyncio.run(until_a_signal(lambda: _show_events(source, answer, show)))
    except ClientError as error:
        show.take(client.Error(error.code, error.message, error.param))
        raise (Refused if isinstance(error, RequestRefused) else Failed)(error) from error
    except EngineError as error:
        raise Refused(error) from error


def _usage_error(message: str) -> NoReturn:
    raise click.UsageError(message, click.get_current_context())


# ----------------------------------------------------------------------------------------------------
# The prompt
# ----------------------------------------------------------------------------------------------------


def _prompt(prompt: str | None, file: str | None) -> str:
    if (prompt is None) == (file is None):
        _usage_error("Give one prompt: as an argument, as - for standard input, or with --file.")
    if prompt == "-":
        return decoded(sys.stdin.buffer.read(), "standard input")
    if prompt is not None:
        return prompt
    assert file is not None
    try:
        return decoded(Path(file).read_bytes(), file)
    except OSError as error:
        raise Refused(f"cannot read {file}: {error.strerror}") from None


def decoded(data: bytes, name: str) -> str:
    """Decodes a prompt, without the line feed that echo and editors add at the end (as llama.cpp's -f)."""
    try:
        return data.decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise Refused(f"{name} is not UTF-8 (byte {error.start})") from None


# ----------------------------------------------------------------------------------------------------
# Where events come from
# ----------------------------------------------------------------------------------------------------


def _server(url: str, body: dict[str, Any], options: dict[str, Any]) -> tuple[Source, str]:
    refuse_engine_options(options)
    return _from_server(url, body, options["model"]), f"waiting for {url}"


@asynccontextmanager
async def _from_server(
    url: str, body: dict[str, Any], model: str | None
) -> AsyncIterator[AsyncIterator[Event]]:
    async with AsyncClient(url, model=model) as server, server.stream(**body) as stream:
        yield stream


def _engine(body: dict[str, Any], options: dict[str, Any]) -> tuple[Source, str]:
    """Checks everything that can be checked before a process is started."""
    try:
        given = {name: options[name] for name in ENGINE_SETTINGS}
        settings = fetching.with_models(load_settings(given, options["config_file"]).default)
        model = gguf_header.read_model(settings.model)
        field_defaults.check(settings)
        given = canonical(settings.field_defaults)
        defaults = Defaults(n=settings.n, max_n=settings.max_n, strict=True, operator=given)
        request = request_from(body, defaults)
        _refuse_other_models(request)
    except (SettingsError, HubError, ModelFileError, RequestError) as error:
        raise Refused(error) from error
    _log_to_stderr(settings.log_level)
    return _from_engine(settings, request), f"loading {model.name}"


def _refuse_other_models(request: CompletionRequest) -> None:
    by = request.rank_by
    if by is not None and by.needs_vectors:
        message = f"rank_by.{by.name}.by is embeddings; only a server with an embedding model "
        raise RequestError(f"{message}computes them (--url)", param="rank_by")
    if by is not None and by.name == "following":
        message = "rank_by is following; only a server's model scores texts for it (--url)"
        raise RequestError(message, param="rank_by")
    if by is not None and by.name == "judge" and by.model is not None:
        message = f"rank_by.judge.model is {shown(by.model)}; without --url the model that writes is the "
        raise RequestError(f"{message}only one, and judges without it", param="rank_by.judge.model")


def _is_judged(request: CompletionRequest) -> bool:
    return request.rank_by is not None and request.rank_by.name == "judge"


def _log_to_stderr(level: str) -> None:
    """Logs to stderr at the level debug only; otherwise an error is one line."""
    if level == "debug":
        logging.basicConfig(level=logging.DEBUG)
    logging.getLogger("llama_srb").addHandler(logging.NullHandler())


@asynccontextmanager
async def _from_engine(settings: Settings, request: CompletionRequest) -> AsyncIterator[AsyncIterator[Event]]:
    engine = EngineSettings(settings.engine_command, settings.model.name, settings.engine_environment)
    mode: Mode = "resident" if _is_judged(request) else "per-request"  # the same engine answers the judge
    async with (
        Pool(engine, mode=mode, max_engines=1) as pool,
        pool.generate(request) as generation,
        aclosing(_as_client_events(generation, _ranking(request, pool, generation))) as events,
    ):
        yield events


def _ranking(request: CompletionRequest, pool: Pool, generation: Exchange) -> Rank:
    async def judge(texts: Sequence[str]) -> list[float]:
        by = request.rank_by
        assert by is not None
        return await margins(pool, texts, by.question, by.answers, JUDGED_AT_ONCE)

    return ranking(request, helpers=Helpers(judge=judge), end_surplus=generation.end_surplus)


async def _as_client_events(generation: Exchange, rank: Rank) -> AsyncGenerator[Event, None]:
    """Ranks the engine's events, and converts them to those that a server would have sent."""
    async for batch in generation:
        for event in await rank(batch):
            data = {row.name: _plain(getattr(event, row.name)) for row in fields(event)}
            converted = client.event_from({"event": type(event).__name__.lower(), **data})
            if isinstance(converted, client.Error):
                raise client.failure(converted)
            if converted is not None:
                yield converted


def _plain(value: Any) -> Any:
    """The value of an event's field, as a server's JSON has it."""
    if isinstance(value, TokenList):
        return list(value)
    if isinstance(value, DiversityStats):
        return asdict(value)
    if isinstance(value, tuple):
        return [asdict(one) if isinstance(one, Vote) else one for one in value]
    return value


# ----------------------------------------------------------------------------------------------------
# From first to last event
# ----------------------------------------------------------------------------------------------------


async def _show_events(source: Source, answer: Answer, show: Show) -> None:
    with show:
        async with source as events:
            async for event in events:
                answer.take(event)
                show.take(event)
    if answer.start is not None:
        for warning in answer.start.warnings:
            say(warning)


async def until_a_signal(work: Callable[[], Awaitable[None]]) -> None:
    """Runs the work. A signal cancels it and ends the engine; a second signal kills the engine."""
    loop, task, caught = asyncio.get_running_loop(), asyncio.current_task(), list[int]()
    assert task is not None

    def on_signal(number: int) -> None:
        caught.append(number)
        task.cancel()

    for number in SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    with contextlib.suppress(asyncio.CancelledError):
        await work()
    if caught:
        raise click.exceptions.Exit(128 + caught[0])


COMMAND = Command(
    "complete",
    callback=_complete,
    params=[
        click.Argument(["prompt"], required=False),
        Option(
            ["--file"],
            "Prompt and output",
            metavar="FILE",
            type=click.Path(),
            help="Take the prompt from a file.",
        ),
        Option(
            ["--url"],
            "Prompt and output",
            metavar="URL",
            help="Ask this server instead of starting an engine; --model is then a name that it knows.",
        ),
        Option(["--json", "as_json"], "Prompt and output", is_flag=True, help="One JSON object, at the end."),
        Option(
            ["--jsonl", "as_lines"],
            "Prompt and output",
            is_flag=True,
            help="Each event at once, one a line.",
        ),
        *field_options(),
        *setting_options(ENGINE_SETTINGS, "Engine (without --url)"),
    ],
    help="""Continue PROMPT n times; - reads it from standard input, without its last line feed.

A terminal shows all of them as they grow, then their texts; a pipe gets "[index] text", each when it is
complete, in order, an empty line between two. A prompt that begins with - comes from stdin or --file.

A comma list is one value per continuation: -n 3 --temperature 0.6,0.8,1.0. Without --url an engine is started
for this one call, with the settings of serve; arguments after -- go to it (-ngl, -fa, --lora, …).""",
    epilog="Exit codes: 0 done, 1 failed while running, 2 wrong usage or refused, 130 after ^C.",
    context_settings={"max_content_width": 110},
)
