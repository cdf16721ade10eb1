"""The settings as one table: for each its name, type, bounds, default and meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

from llama_srb import bundled

from .readers import (
    adapter,
    at_home,
    collector,
    duration,
    file_mode,
    files,
    json_object,
    named_files,
    names,
    size,
    words,
)
from .readers import arguments as words_of_shell

Adapter = Annotated[Path, AfterValidator(adapter)]


class Rows(BaseModel):
    """One row for each setting, named as in the file; --NAME with dashes is its option."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=False)

    # fmt: off
    model: Annotated[Path, AfterValidator(Path.expanduser)] = Field(bundled.model(),
        description="The GGUF file to serve, or hf:USER/REPO[:QUANT or FILE] for one of a hub.")
    offline: bool = Field(False,
        description="Download nothing: a model of a hub must be there.")
    alias: Annotated[tuple[str, ...], BeforeValidator(names)] = Field((),
        description="The model's names for clients, with commas between them; answers have the first one in "
        "alphabetical order (default: the file's name).")
    tags: Annotated[tuple[str, ...], BeforeValidator(names)] = Field((),
        description="Words about the model that /v1/models shows, with commas between them.")
    lora: Annotated[tuple[Path, ...], BeforeValidator(files)] = Field((),
        description="LoRA adapters to load, with commas between them; their ids are 0, 1 and so on.")
    adapters: Annotated[dict[str, Adapter], BeforeValidator(named_files)] = Field({},
        description="LoRA adapters with names, NAME=FILE with commas between them; each is off unless a "
        "request names it as its model.")
    adapters_dir: Annotated[Path | None, AfterValidator(at_home)] = Field(None,
        description="Folder from which adapters may be loaded while the server runs (default: none).")
    sampling: Annotated[dict[str, Any], BeforeValidator(json_object)] = Field({},
        description="Defaults of request fields, as JSON; in a file a table.")
    override: Annotated[dict[str, Any], BeforeValidator(json_object)] = Field({},
        description="Request fields that hold for all clients, whatever they send, as JSON; in a file a "
        "table. A value {override, force, additive} is TabbyAPI's: without force a default, with additive "
        "texts or ids in front of a client's list.")
    prompt: str | None = Field(None,
        description="Prompt that is computed whenever the model is loaded, before its first request, so that "
        "prompts which begin so start at once.")
    prompt_file: Annotated[Path | None, AfterValidator(at_home)] = Field(None,
        description="File of that prompt, UTF-8.")
    default_model: str | None = Field(None,
        description="Of several models, the one for requests that name none, or an unknown one (default: "
        "the first one, and unknown names are refused).")
    models_dir: Annotated[Path | None, AfterValidator(at_home)] = Field(None,
        description="Folder of models: each GGUF file in it, and each folder in it that has one, is a model.")
    models_memory: Annotated[int | None, BeforeValidator(size)] = Field(None, ge=1, le=2**63 - 1,
        description="Memory for loaded models, as 12GiB; the least recently used leave (default: no bound).")
    models_max: int | None = Field(None, ge=1, le=1024,
        description="Models that may be loaded at the same time (default: no bound).")
    models_wait: float = Field(10.0, gt=0, le=86400,
        description="Longest wait, in seconds, of requests for a model that is not loaded while other models "
        "use the room; then those admit no requests until it has had its turn.")
    unload_after: Annotated[float | None, BeforeValidator(duration)] = Field(None, gt=0, le=2**31,
        description="Time without requests after which a model is unloaded, as 30s, 10m, 2h, or never "
        "(default: never).")
    preload: bool = Field(False,
        description="Of several models: load this one at the start, not when it is first asked for.")
    host: str = Field("127.0.0.1",
        description="Address to listen on; 0.0.0.0 is all addresses of the machine; unix:FILE is a Unix "
        "socket (and, as with llama-server, a name that ends with .sock).")
    socket_mode: Annotated[int, BeforeValidator(file_mode)] = Field(0o600, ge=0, le=0o777,
        description="Mode of the Unix socket's file, in octal; 660 lets a group connect.")
    port: int = Field(9090, ge=0, le=65535,
        description="Port to listen on; 0 is any free port.")
    grpc: int | None = Field(None, ge=0, le=65535,
        description="Port of the gRPC API beside HTTP's, 50051 as a rule; 0 is any free port (default: no "
        "gRPC). It needs the extra llama-srb[grpc].")
    api_prefix: str = Field("", pattern=r"^(/[A-Za-z0-9._~-]+)*$",
        description="Beginning of every path, as /llm, for a proxy that passes a part of its paths on.")
    worker_name: str | None = Field(None, pattern=r"^[A-Za-z0-9_-]{1,64}$",
        description="Name of this server behind a gateway: each answer has it in the header X-Worker "
        "(default: none).")
    reuse_port: bool = Field(False,
        description="Let several servers listen on the same port; the system divides the connections.")
    n: int = Field(8, ge=1,
        description="Continuations of a request without n; the default is at most --max-n.")
    max_n: int = Field(1024, ge=1,
        description="Most continuations that one request may ask for; the default is at least --n.")
    ctx: int | None = Field(None, ge=1, le=2**31 - 1,
        description="Tokens in the engine's KV cache, shared by all sequences (default: the engine decides).")
    parallel: int = Field(32, ge=1, le=256,
        description="Sequences that are generated at the same time; more sequences wait.")
    cache_cells: int | None = Field(None, ge=0, le=2**31 - 1,
        description="Tokens of the KV cache for idle prompts and continuations (default: a quarter).")
    cache_ram: Annotated[int, BeforeValidator(size)] = Field(4 << 30, ge=0, le=2**63 - 1,
        description="Host memory for prompts that are evicted from the KV cache.")
    prefix_cache: Annotated[Path | None, AfterValidator(at_home)] = Field(None,
        description="Folder that stores computed prompts for later starts and for the mode per-request.")
    prefix_cache_size: Annotated[int, BeforeValidator(size)] = Field(16 << 30, ge=0, le=2**63 - 1,
        description="Size of that folder; the least recently used prompts are removed first.")
    packed_weights: Annotated[Path | None, AfterValidator(at_home)] = Field(None,
        description="Folder that stores weights as the CPU wants them: later starts do not pack them again.")
    rerank: bool = Field(False,
        description="The model ranks documents (/v1/rerank), by the head in its file, and does nothing else; "
        "a model whose file says that it ranks does so without this.")
    logits_processor: str | None = Field(None, pattern=r"^\w+(\.\w+)*:\w+(\.\w+)*$",
        description="MODULE:FUNCTION of one's own logits processor, which requests ask for by "
        "logits_processor. It runs in a process of its own (default: none).")
    logits_processor_timeout: float = Field(10.0, gt=0, le=86400,
        description="Seconds that it may take for one request's rows; then it is started anew, and the "
        "request gets an error.")
    engine_mode: Literal["resident", "per-request"] = Field("resident",
        description="One engine for all requests, or one process for each request.")
    max_engines: int = Field(4, ge=1, le=1024,
        description="Engine processes at the same time in the mode per-request.")
    engine: Annotated[Path, AfterValidator(Path.expanduser)] = Field(bundled.engine(),
        description="The engine's program.")
    engine_env: Annotated[tuple[str, ...], BeforeValidator(words)] = Field((),
        description="Names of more variables that the engine inherits; docs/security.md lists the others.")
    max_body: Annotated[int, BeforeValidator(size)] = Field(16 << 20, ge=1, le=64 << 20,
        description="Largest request body, in bytes or as 16MiB.")
    max_document: Annotated[int, BeforeValidator(size)] = Field(64 << 20, ge=1, le=256 << 20,
        description="Largest document that a memory takes, in bytes or as 64MiB.")
    files_dir: Annotated[Path | None, AfterValidator(at_home)] = Field(None,
        description="Folder of files and batches that clients send (default: none, and /v1/files and "
        "/v1/batches answer 501).")
    files_size: Annotated[int, BeforeValidator(size)] = Field(16 << 30, ge=1, le=2**63 - 1,
        description="Size of all files and outputs together; above it no file is taken, and a batch fails.")
    max_file: Annotated[int, BeforeValidator(size)] = Field(200 << 20, ge=1, le=1 << 40,
        description="Largest file that a client may send, in bytes or as 200MiB.")
    stories: Annotated[Path | None, AfterValidator(at_home)] = Field(None,
        description="Folder of the studio's stories, so that a writer's devices share them (default: none; "
        "they are in the browser only).")
    stories_size: Annotated[int, BeforeValidator(size)] = Field(4 << 30, ge=1, le=2**63 - 1,
        description="Size of all stories together; above it none is taken.")
    responses: int = Field(1000, ge=0, le=10_000,
        description="Responses of /v1/responses that are kept in memory for each client, which may name them "
        "in later requests; 0 keeps none.")
    responses_size: Annotated[int, BeforeValidator(size)] = Field(256 << 20, ge=1 << 20, le=2**63 - 1,
        description="Memory for the kept responses of all clients; one client has at most a quarter.")
    responses_age: Annotated[float | None, BeforeValidator(duration)] = Field(86400.0, gt=0, le=2**31,
        description="Time without use after which a response is forgotten, as 30m, 2h, 1d, or never.")
    default_form: Literal["events", "openai"] = Field("events",
        description="Form of /v1/completions' answers if no other rule of the form applies.")
    slots: bool = Field(True,
        description="Answer /slots, which shows how many sequences run.")
    studio: bool = Field(True,
        description="Show the studio, the page at /.")
    strict: bool = Field(False,
        description="Refuse unknown request fields, instead of a warning, and names of other models.")
    presets: Annotated[Path | None, AfterValidator(at_home)] = Field(None,
        description="Folder of TOML files; each is a preset that requests may name, as the built-in ones.")
    cors: Annotated[tuple[str, ...], BeforeValidator(words)] = Field(("localhost",),
        description="Origins of web pages that may call this server; localhost: pages and programs of this "
        "computer, *: all, empty: none.")
    allowed_hosts: Annotated[tuple[str, ...], BeforeValidator(words)] = Field((),
        description="More host names under which a server without keys may be called, beside localhost, its "
        "own name and addresses; *: all.")
    insecure: bool = Field(False,
        description="Accept requests of other computers without a key.")
    api_key: Annotated[tuple[SecretStr, ...], BeforeValidator(words)] = Field((),
        description="Keys; a request must have one of them. The environment is safer than the command line.")
    api_key_file: Annotated[Path | None, AfterValidator(at_home)] = Field(None,
        description="File of keys, made by `llama-srb keys`; SIGHUP reads it again.")
    jwt_secret: SecretStr | None = Field(None,
        description="Secret of JWTs (HS256), which are accepted like keys; at least 32 bytes.")
    jwt_keys: Annotated[Path | None, AfterValidator(at_home)] = Field(None,
        description="Public keys of JWTs (RS256, ES256, HS256): a JWKS, or one key as PEM.")
    jwt_audience: str | None = Field(None,
        description="Audience (aud) that JWTs must have.")
    jwt_issuer: str | None = Field(None,
        description="Issuer (iss) that JWTs must have.")
    tls_cert: Annotated[Path | None, AfterValidator(at_home)] = Field(None,
        description="Certificate chain as PEM, for https; needs --tls-key.")
    tls_key: Annotated[Path | None, AfterValidator(at_home)] = Field(None,
        description="The certificate's private key as PEM.")
    max_queue: int = Field(256, ge=0, le=100_000,
        description="Requests that may wait in the queue, each prompt of a list counted; more get 503, but "
        "for those of a client that has less than its share waiting.")
    max_unread: int = Field(250_000, ge=1, le=10_000_000,
        description="Unread events of a client, tokens and alternatives of logprobs counted too; above this "
        "its connection is ended. An answer in one piece may have four times as many.")
    queue_timeout: float | None = Field(None, gt=0, le=86400,
        description="Seconds after which a request that is still queued gets an error (default: none).")
    request_timeout: float | None = Field(None, gt=0, le=86400,
        description="Seconds after which a generation is cancelled; a request that generates nothing gets an "
        "error (default: none).")
    load_timeout: float | None = Field(None, gt=0, le=86400,
        description="Seconds after which an engine that is still loading is ended (default: none).")
    step_timeout: float = Field(120.0, ge=10, le=86400,
        description="Seconds without a decode step after which an engine that has requests is restarted.")
    body_timeout: float = Field(30.0, gt=0, le=3600,
        description="Seconds within which a request's body must arrive.")
    write_timeout: float = Field(60.0, gt=0, le=86400,
        description="Seconds in which a client reads nothing although data waits for it, after which its "
        "connection is ended; longer than a phone needs to change cells.")
    idle_timeout: float = Field(75.0, gt=0, le=86400,
        description="Seconds after which a connection without a request is closed.")
    keep_alive: float = Field(15.0, gt=0, le=3600,
        description="Seconds of silence after which a stream gets a comment line: so proxies keep it open.")
    stop_grace: float = Field(5.0, ge=0, le=3600,
        description="Seconds that running requests may take to finish when the server stops.")
    otlp_traces_endpoint: Annotated[str | None, BeforeValidator(collector)] = Field(None,
        description="Address of a collector that gets OpenTelemetry's traces by OTLP over HTTP, as "
        "http://localhost:4318 (default: no traces). It needs the extra llama-srb[otel].")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info",
        description="Lowest level of the messages that are logged to stderr.")
    log_format: Literal["text", "json"] = Field("text",
        description="Log lines as text for people, or as JSON for programs.")
    log_prompts: bool = Field(False,
        description="Log the lines to and from engines at the level debug; they have all prompts and texts. "
        "Traces have the beginnings of texts, too.")
    engine_args: Annotated[tuple[str, ...], BeforeValidator(words_of_shell)] = Field((),
        description="Flags of llama.cpp, of which docs/flags.md has the list; on the command line after --.")
    # fmt: on
