"""The gRPC API, by grpcio's own client, with the fake engine."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from llama_srb.grpc import SERVICE
from llama_srb.serving.faults import StartError
from tests.support.places import FAKE_COMMAND, ROOT
from tests.support.rpc import NOT_SERVING, SERVING, Rpc, all_of, failure, port_in
from tests.support.served import Served, Serving, key_file
from tests.support.several import tables
from tests.support.waiting import PATIENCE

Code = grpc.StatusCode
PLAIN = {"prompt": "Once", "n": 2, "max_tokens": 3}


class Started:
    """A server whose gRPC port is known."""

    def __init__(self, served: Served, port: int) -> None:
        self.served, self.port = served, port

    def rpc(self, key: str = "") -> Rpc:
        return Rpc(self.port, key=key)


Start: TypeAlias = Callable[..., Awaitable[Started]]


@pytest.fixture
def start(serving: Serving, caplog: pytest.LogCaptureFixture) -> Start:
    """A function that starts a server with a gRPC port."""
    caplog.set_level(logging.INFO, logger="llama_srb.server")

    async def started(*flags: str, **options: Any) -> Started:
        served = await serving(*flags, **{"grpc": 0, **options})
        return Started(served, port_in(caplog.text))

    return started


# Answers


async def test_n_streams_arrive_side_by_side(start: Start) -> None:
    async with (await start("--endless")).rpc() as rpc:
        events = await all_of(rpc.complete(prompt="Once", n=8, max_tokens=6))
    names = [name for name, _ in events]
    assert (names[0], names[-1]) == ("start", "done")
    assert sorted(event.index for name, event in events if name == "stop") == list(range(8))
    first = [event.index for name, event in events if name == "stream"][:8]
    assert sorted(first) == list(range(8))
    assert events[-1][1].completion_tokens == 8 * 6


async def test_the_events_are_those_of_http(start: Start) -> None:
    started = await start("--endless", "--alternatives")
    body = {"prompt": "Once", "n": 2, "max_tokens": 4, "seed": 5, "logprobs": 2, "echo": True}
    http = await started.served.events(body, "/v1/events")
    async with started.rpc() as rpc:
        fields = rpc.pb.CompleteRequest(fields={"echo": True}).fields
        ours = await all_of(rpc.complete(prompt="Once", n=2, max_tokens=4, seed=5, logprobs=2, fields=fields))
    assert [event["event"] for event in http] == [name for name, _ in ours]
    texts = [(event["index"], event["text"]) for event in http if event["event"] == "stream"]
    assert texts == [(event.index, event.text) for name, event in ours if name == "stream"]
    tokens = [event.get("tokens", []) for event in http if event["event"] == "stream"]
    assert [[(t["id"], t["text"], t["logprob"], len(t["top"])) for t in some] for some in tokens] == [
        [(t.id, t.text, t.logprob, len(t.top)) for t in event.tokens]
        for name, event in ours
        if name == "stream"
    ]
    (end,) = (event for event in http if event["event"] == "done")
    assert ours[-1][1].prompt_tokens == end["prompt_tokens"]


async def test_votes_and_diversity_stats_are_in_done(start: Start) -> None:
    async with (await start()).rpc() as rpc:
        asked = {"rank_by": {"vote": {"regex": "[a-z]"}}, "diversity_stats": True}
        fields = rpc.pb.CompleteRequest(fields=asked).fields
        _, done = (await all_of(rpc.complete(prompt="Once", n=4, max_tokens=9, fields=fields)))[-1]
        _, plain = (await all_of(rpc.complete(prompt="Once", n=1, max_tokens=9)))[-1]
    assert sum(vote.count for vote in done.votes) == 4
    assert all(len(vote.answer) == 1 for vote in done.votes)
    assert done.diversity_stats.texts == 4
    assert 0 <= done.diversity_stats.mean_overlap <= 1
    assert (list(plain.votes), plain.HasField("diversity_stats")) == ([], False)


async def test_texts_that_cannot_be_ranked_fail_the_call(start: Start) -> None:
    """They are ranked when they have ended, so the error comes behind them."""
    async with (await start()).rpc() as rpc:
        rank_by = {"medoid": {"by": "embeddings", "model": "none"}}
        fields = rpc.pb.CompleteRequest(fields={"rank_by": rank_by}).fields
        call = rpc.complete(prompt="Once", n=2, max_tokens=3, fields=fields)
        code, message, _ = await failure(call)
    assert (code, "none" in message) == (Code.INVALID_ARGUMENT, True), message


async def test_a_chat_has_one_answer_unless_n_says_more(start: Start) -> None:
    started = await start("--endless")
    async with started.rpc() as rpc:
        messages = [{"role": "user", "content": "Hi"}]
        one = await all_of(rpc.chat(messages=messages, max_tokens=3))
        three = await all_of(rpc.chat(messages=messages, max_tokens=3, n=3))
    assert [event.count for name, event in one + three if name == "start"] == [1, 3]


async def test_vectors_are_those_of_http(start: Start) -> None:
    started = await start()
    async with started.rpc() as rpc:
        reply = await rpc.embed(input=["a", "b"])
        assert [len(one.values) for one in reply.data] == [len(reply.data[0].values)] * 2
        assert reply.prompt_tokens > 0
        assert (await failure(rpc.embed()))[0] == Code.INVALID_ARGUMENT


# Fields


@pytest.mark.parametrize(
    ("fields", "more", "param"),
    [
        ({"prompt": "x", "n": 0}, {}, "n"),
        ({"prompt": "x", "temperature": -1.0}, {}, "temperature"),
        ({"prompt": "x", "temperature": float("nan")}, {}, "temperature"),
        ({"prompt": "x", "n": 2}, {"n": 3}, "n"),
        ({"prompt": "x"}, {"xtc_probability": 3}, "xtc_probability"),
        ({"prompt": "x"}, {"xtc_probability": float("inf")}, "xtc_probability"),
        ({"n": 2}, {}, "prompt"),
        ({"prompt": "x"}, {"model": 3}, "model"),
    ],
)
async def test_a_wrong_field_is_an_invalid_argument(
    start: Start, fields: dict[str, Any], more: dict[str, Any], param: str
) -> None:
    async with (await start()).rpc() as rpc:
        given = rpc.pb.CompleteRequest(fields=more).fields
        code, message, metadata = await failure(rpc.complete(**fields, fields=given))
    assert (code, metadata["error-param"]) == (Code.INVALID_ARGUMENT, param)
    assert param in message


async def test_a_message_of_another_kind_is_an_invalid_argument(start: Start) -> None:
    async with (await start()).rpc() as rpc:
        raw = rpc.channel.unary_stream(f"/{SERVICE}/Complete")
        code, message, _ = await failure(raw(b"\xff\xff"))
        empty = rpc.channel.stream_stream(f"/{SERVICE}/Complete")(iter(()))
        none = await failure(empty)
    assert code == Code.INVALID_ARGUMENT
    assert "is no llama_srb.v1.CompleteRequest" in message
    assert none[:2] == (Code.INVALID_ARGUMENT, "the call has no message; send a CompleteRequest")


async def test_a_message_is_at_most_max_body_long(start: Start) -> None:
    async with (await start(max_body=2000)).rpc() as rpc:
        code, _, _ = await failure(rpc.complete(prompt="x" * 2000))
        assert code == Code.RESOURCE_EXHAUSTED
        assert (await all_of(rpc.complete(**PLAIN)))[-1][0] == "done"


async def test_a_message_of_millions_of_values_is_refused_before_it_is_parsed(start: Start) -> None:
    started = await start()
    values = b"\x0a\x00" * 2_000_000  # of a list in a Struct

    def within(tag: int, data: bytes) -> bytes:
        size, length = len(data), b""
        while size > 127:
            length, size = length + bytes([size & 127 | 128]), size >> 7
        return bytes([tag]) + length + bytes([size]) + data

    entry = b"\x0a\x01a" + within(0x12, within(0x32, values))
    async with started.rpc() as rpc:
        raw = rpc.channel.unary_stream(f"/{SERVICE}/Complete")
        code, message, _ = await failure(raw(within(0x7A, within(0x0A, entry))))
    assert (code, "send fewer values" in message) == (Code.INVALID_ARGUMENT, True)


async def test_a_long_prompt_is_read(start: Start) -> None:
    async with (await start()).rpc() as rpc:
        prompt = 'He said, "Rain." \n' * 60_000
        code, message, _ = await failure(rpc.complete(**PLAIN | {"prompt": prompt}))
    assert (code, message) == (
        Code.INVALID_ARGUMENT,
        "the prompt has 180001 tokens, the context 16384",
    )


async def test_a_compressed_message_is_refused(start: Start) -> None:
    async with (await start()).rpc() as rpc:
        call = rpc.stub.Complete(rpc.pb.CompleteRequest(**PLAIN), compression=grpc.Compression.Gzip)
        assert (await failure(call))[0] == Code.UNIMPLEMENTED


async def test_a_message_that_does_not_come_is_not_waited_for(start: Start) -> None:
    async with (await start(body_timeout=0.1)).rpc() as rpc:

        async def silent() -> Any:
            await asyncio.sleep(30)
            yield b""

        call = rpc.channel.stream_stream(f"/{SERVICE}/Complete")(silent())
        code, message, _ = await failure(call)
    assert code == Code.DEADLINE_EXCEEDED
    assert "--body-timeout" in message


async def test_warnings_are_in_the_start_event(start: Start) -> None:
    async with (await start()).rpc() as rpc:
        fields = rpc.pb.CompleteRequest(fields={"unknown_field": 1}).fields
        events = await all_of(rpc.complete(**PLAIN, fields=fields))
    assert "unknown_field" in events[0][1].warnings[0]


# Ends


async def test_a_cancelled_call_ends_its_sequences(start: Start) -> None:
    started = await start("--endless")
    async with started.rpc() as rpc:
        call = rpc.complete(prompt="Once", n=4, max_tokens=100_000)
        await anext(aiter(call))
        call.cancel()
        assert (await started.served.note("cancel"))["what"] == "cancel"


async def test_a_deadline_ends_the_sequences(start: Start) -> None:
    started = await start("--endless")
    async with started.rpc() as rpc:
        code, _, _ = await failure(rpc.complete(prompt="Once", n=4, max_tokens=100_000, timeout=0.5))
        assert code == Code.DEADLINE_EXCEEDED
        await started.served.note("cancel")


async def test_delete_ends_a_call(start: Start) -> None:
    started = await start("--endless")
    async with started.rpc() as rpc:
        call = aiter(rpc.complete(prompt="Once", n=2, max_tokens=100_000))
        id = (await anext(call)).start.id
        async with started.served.http.delete(f"{started.served.url}/v1/completions/{id}") as response:
            assert response.status == 200
        rest = await all_of(call)
    assert [event.finish_reason for name, event in rest if name == "stop"] == ["cancelled"] * 2
    assert rest[-1][0] == "done"


async def test_an_engine_that_dies_is_an_internal_error_after_the_events(start: Start) -> None:
    async with (await start("--die-after", "5")).rpc() as rpc:
        call = rpc.complete(prompt="Once", n=2, max_tokens=50)
        assert (await anext(aiter(call))).HasField("start")
        code, _, metadata = await failure(call)
    assert (code, metadata["error-code"]) == (Code.INTERNAL, "engine_died")


async def test_a_client_that_does_not_read_is_cut_off(start: Start) -> None:
    started = await start("--flood", "--endless", write_timeout=0.3, max_unread=2000)
    async with started.rpc() as rpc:
        call = rpc.complete(prompt="Once", n=32, max_tokens=100_000)
        await started.served.note("cancel")
        code = (await failure(call))[0]
    assert code in (Code.RESOURCE_EXHAUSTED, Code.UNAVAILABLE)


# Keys


async def test_keys_scopes_and_limits_are_those_of_http(start: Start, tmp_path: Path) -> None:
    rows = (
        {"name": "all"},
        {"name": "talk", "scopes": ("chat",)},
        {"name": "few", "max_n": 2},
        {"name": "one", "concurrent": 1},
        {"name": "poor", "tokens_per_minute": 5},
    )
    started = await start("--endless", api_key_file=str(key_file(tmp_path / "keys", *rows)))

    async def code_of(key: str, **fields: Any) -> tuple[Code, str]:
        async with started.rpc(key) as rpc:
            return (await failure(rpc.complete(**{**PLAIN, **fields})))[:2]

    assert (await code_of(""))[0] == Code.UNAUTHENTICATED
    assert (await code_of("nobody"))[0] == Code.UNAUTHENTICATED
    code, message = await code_of("talk")
    assert (code, message) == (Code.PERMISSION_DENIED, "talk has the scopes chat; this needs complete")
    assert (await code_of("few", n=3))[0] == Code.INVALID_ARGUMENT
    async with started.rpc("poor") as rpc:
        await all_of(rpc.complete(**PLAIN))
        code, _, metadata = await failure(rpc.complete(**PLAIN))
        assert (code, int(metadata["retry-after"]) > 0) == (Code.RESOURCE_EXHAUSTED, True)
    async with started.rpc("one") as rpc:
        running = aiter(rpc.complete(prompt="x", n=1, max_tokens=100_000))
        await anext(running)
        code, message, _ = await failure(rpc.complete(**PLAIN))
        assert (code, "one may run 1 requests at once" in message) == (Code.RESOURCE_EXHAUSTED, True)
    async with started.rpc() as rpc:
        header = rpc.stub.Complete(rpc.pb.CompleteRequest(**PLAIN), metadata=(("x-api-key", "all"),))
        assert (await all_of(header))[-1][0] == "done"


async def test_a_call_ends_with_its_key(start: Start, tmp_path: Path) -> None:
    keys = key_file(tmp_path / "keys", {"name": "soon"}, {"name": "later"})
    started = await start("--endless", api_key_file=str(keys))
    async with started.rpc("soon") as rpc:
        call = rpc.complete(prompt="x", n=1, max_tokens=100_000)
        await anext(aiter(call))
        key_file(keys, {"name": "later"})
        os.kill(os.getpid(), signal.SIGHUP)
        code, message, _ = await failure(call)
    assert (code, "the key has ended" in message) == (Code.UNAUTHENTICATED, True)


async def test_the_queue_is_shared_with_http(start: Start) -> None:
    async with (await start(max_queue=0)).rpc() as rpc:
        code, _, metadata = await failure(rpc.complete(**PLAIN))
    assert (code, metadata["error-code"]) == (Code.UNAVAILABLE, "queue_full")


# Models


async def test_models_are_found_by_name(
    serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="llama_srb.server")
    rows = ({"name": "all", "scopes": ("complete", "metrics")}, {"name": "of-tale", "models": ("tale",)})
    served = await serving(
        config=str(tables(tmp_path, {"tale": {"aliases": ["gpt"]}, "poem": {}})),
        api_key_file=str(key_file(tmp_path / "keys", *rows)),
        grpc=0,
    )
    started = Started(served, port_in(caplog.text))
    async with started.rpc("all") as rpc:
        events = await all_of(rpc.complete(**PLAIN, model="poem"))
        assert "loading" in {name for name, _ in events}
        assert (await all_of(rpc.complete(**PLAIN, model="gpt")))[-1][0] == "done"
        code, message, metadata = await failure(rpc.complete(**PLAIN, model="pome"))
        assert (code, metadata["error-code"]) == (Code.NOT_FOUND, "model_not_found")
        assert "poem" in message
    async with started.rpc("of-tale") as rpc:
        code, _, _ = await failure(rpc.complete(**PLAIN, model="poem"))
        assert code == Code.PERMISSION_DENIED
    async with served.http.get(served.url + "/metrics", headers={"x-api-key": "all"}) as response:
        metrics = await response.text()
    for model in ("tale", "poem"):
        (tokens,) = re.findall(
            rf'^llama_srb_completion_tokens_total{{model="{model}"}} (\S+)', metrics, re.MULTILINE
        )
        assert 0 < float(tokens) <= 6
    assert f'path="/{SERVICE}/Complete"' in metrics


# The server


async def test_calls_are_counted_and_logged_without_their_texts(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    started = await start()
    async with started.rpc() as rpc:
        call = rpc.stub.Complete(
            rpc.pb.CompleteRequest(prompt="a secret", n=2, max_tokens=3), metadata=(("x-request-id", "abc"),)
        )
        assert ("x-request-id", "abc") in list(await call.initial_metadata())
        await all_of(call)
        await failure(rpc.complete(n=1))
    async with started.served.http.get(started.served.url + "/metrics") as response:
        text = await response.text()
    for status in ("OK", "INVALID_ARGUMENT"):
        labels = f'dialect="grpc",path="/{SERVICE}/Complete",status="{status}"'
        assert f"llama_srb_requests_total{{{labels}}} 1.0" in text
    (line,) = (one.getMessage() for one in caplog.records if "OK" in one.getMessage())
    assert re.fullmatch(
        rf"gRPC /{SERVICE}/Complete OK n=2 \S+ prompt=\d+ cached=\d+ tokens=6 \d+\.\d+ s abc", line
    )
    assert "a secret" not in caplog.text


async def services_of(rpc: Rpc) -> set[str]:
    stub = reflection_pb2_grpc.ServerReflectionStub(rpc.channel)
    ask = reflection_pb2.ServerReflectionRequest(list_services="")
    async for answer in stub.ServerReflectionInfo(iter([ask]), metadata=rpc.metadata):
        return {service.name for service in answer.list_services_response.service}
    return set()


async def test_reflection_lists_the_services_to_those_who_have_a_key(start: Start, tmp_path: Path) -> None:
    started = await start(api_key="secret")
    async with started.rpc("secret") as rpc:
        assert await services_of(rpc) == {
            SERVICE,
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
        }
        stub = reflection_pb2_grpc.ServerReflectionStub(rpc.channel)
        ask = reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE)
        async for answer in stub.ServerReflectionInfo(iter([ask]), metadata=rpc.metadata):
            assert answer.file_descriptor_response.file_descriptor_proto
    async with started.rpc() as rpc:
        with pytest.raises(grpc.aio.AioRpcError, match="a key is needed"):
            await services_of(rpc)
        assert await rpc.serves() == SERVING


async def test_health_is_not_serving_when_the_server_drains(serving: Serving, tmp_path: Path) -> None:
    engine = tmp_path / "engine"
    engine.write_text(f'#!/bin/sh\nexec {FAKE_COMMAND} --endless "$@"\n')
    engine.chmod(0o755)
    command = [sys.executable, str(ROOT / "api.py"), "--port", "0", "--grpc", "0", "--engine", str(engine)]
    options = ["--stop-grace", "20", "--log-level", "info"]
    process = await asyncio.create_subprocess_exec(
        *command, *options, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(PATIENCE):
            assert (await process.stdout.readline()).startswith(b"http://")
            log = b""
            while b"gRPC listens on " not in log:
                log = await process.stderr.readline()
            async with Rpc(port_in(log.decode())) as rpc:
                watched = aiter(rpc.health.Watch(health_pb2.HealthCheckRequest(service=SERVICE)))
                assert (await anext(watched)).status == SERVING
                call = rpc.complete(prompt="x", n=1, max_tokens=2000)
                events = aiter(call)
                await anext(events)
                process.send_signal(signal.SIGTERM)
                assert (await anext(watched)).status == NOT_SERVING
                assert await rpc.serves() == NOT_SERVING
                code, message, _ = await failure(rpc.complete(**PLAIN))
                assert (code, message) == (Code.UNAVAILABLE, "the engine is draining")
                assert [name for name, _ in await all_of(events)][-1] == "done"
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_drain_is_seen_in_health_and_refuses_new_calls(start: Start) -> None:
    started = await start("--endless")
    async with started.rpc() as rpc:
        watched = aiter(rpc.health.Watch(health_pb2.HealthCheckRequest(service=SERVICE)))
        assert (await anext(watched)).status == SERVING
        events = aiter(rpc.complete(prompt="x", n=1, max_tokens=300))
        await anext(events)
        async with started.served.http.post(started.served.url + "/drain") as response:
            assert response.status == 200
        assert (await anext(watched)).status == NOT_SERVING
        code, message, details = await failure(rpc.complete(**PLAIN))
        assert (code, message) == (Code.UNAVAILABLE, "the server drains: it takes no new requests")
        assert details["retry-after"] == "5"
        assert [name for name, _ in await all_of(events)][-1] == "done"
        async with started.served.http.delete(started.served.url + "/drain") as response:
            assert response.status == 200
        assert (await anext(watched)).status == SERVING
        assert [name for name, _ in await all_of(rpc.complete(**PLAIN))][-1] == "done"


async def test_health_is_not_serving_while_an_engine_starts_again(start: Start) -> None:
    async with (await start("--exit-after", "1")).rpc() as rpc:
        assert (await rpc.serves(), await rpc.serves(SERVICE)) == (SERVING, SERVING)
        watched = aiter(rpc.health.Watch(health_pb2.HealthCheckRequest()))
        assert (await anext(watched)).status == SERVING
        await failure(rpc.complete(**PLAIN))
        assert [(await anext(watched)).status for _ in range(2)] == [NOT_SERVING, SERVING]


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A new certificate of localhost, and its key."""
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    subprocess.run(
        [*command, *subject, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True
    )
    return cert, key


async def test_the_certificate_is_that_of_https_also_after_sighup(start: Start, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, "first")
    started = await start(tls_cert=str(cert), tls_key=str(key))
    trusted = [grpc.ssl_channel_credentials(cert.read_bytes())]
    new_cert, new_key = certificate(tmp_path, "second")
    trusted.append(grpc.ssl_channel_credentials(new_cert.read_bytes()))
    async with Rpc(started.port, credentials=trusted[0]) as rpc:
        assert (await all_of(rpc.complete(**PLAIN)))[-1][0] == "done"
    async with Rpc(started.port, credentials=trusted[1]) as rpc:
        assert (await failure(rpc.complete(**PLAIN, timeout=PATIENCE)))[0] == Code.UNAVAILABLE
    new_cert.replace(cert)
    new_key.replace(key)
    os.kill(os.getpid(), signal.SIGHUP)
    async with asyncio.timeout(PATIENCE):
        while True:  # the signal's handler runs in a later turn of the loop
            async with Rpc(started.port, credentials=trusted[1]) as rpc:
                if await works(rpc):
                    break
    async with Rpc(started.port) as rpc:
        assert (await failure(rpc.complete(**PLAIN)))[0] == Code.UNAVAILABLE


async def works(rpc: Rpc) -> bool:
    try:
        return (await all_of(rpc.complete(**PLAIN, timeout=PATIENCE)))[-1][0] == "done"
    except grpc.aio.AioRpcError:
        return False


async def test_a_port_that_is_taken_is_an_error_at_the_start(start: Start, serving: Serving) -> None:
    started = await start()
    with pytest.raises(
        StartError, match=rf"gRPC cannot listen on 127\.0\.0\.1 port {started.port}.*try --grpc"
    ):
        await serving(grpc=started.port)


async def test_without_its_packages_the_start_says_what_to_install(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("llama_srb.grpc")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grpc_health.v1", None)
    with pytest.raises(
        StartError, match=r"needs the package grpc_health\.v1: pip install 'llama-srb\[grpc\]'"
    ):
        await serving(grpc=0)


def test_the_compiled_form_is_that_of_the_proto_file() -> None:
    compiled = runpy.run_path(str(ROOT / "scripts/proto"))["compiled"]
    assert (ROOT / "llama_srb/grpc/llama_srb.binpb").read_bytes() == compiled()
