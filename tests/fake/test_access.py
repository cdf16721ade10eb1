"""Access control, over real sockets: keys, scopes, limits, origins, host names, TLS."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest

from llama_srb import config
from llama_srb.cli.doctor import checks
from llama_srb.server import lifetime as server
from llama_srb.serving.keys import api_keys
from tests.support import forked
from tests.support.places import ROOT
from tests.support.rows import each_row
from tests.support.served import SECRET, Served, Serving, bearer, frames, key_file
from tests.support.waiting import PATIENCE

BODY = {"prompt": "x", "n": 1, "max_tokens": 2}


async def ask(
    served: Served, headers: dict[str, str], path: str = "/v1/events", body: Any = BODY
) -> tuple[int, Any]:
    """The status, and the error's code if there is one."""
    status, data = await served.post(body, path, **headers)
    return status, json.loads(data)["error"]["code"] if status >= 400 else None


# Keys


async def test_without_keys_no_key_is_needed(serving: Serving) -> None:
    assert await ask(await serving(), {}) == (200, None)


async def test_a_key_is_read_from_either_header_and_no_other_place(serving: Serving) -> None:
    served = await serving(api_key="one two")
    for headers in (bearer("one"), {"Authorization": "bearer two"}, {"X-Api-Key": "two"}):
        assert await ask(served, headers) == (200, None)
    for headers in ({}, bearer("three"), bearer(""), {"Authorization": "Basic one"}):
        assert await ask(served, headers) == (401, "invalid_api_key")
    assert await ask(served, {}, "/v1/events?api_key=one") == (401, "invalid_api_key")
    async with served.http.get(served.url + "/v1/models") as response:
        assert (response.status, response.headers["WWW-Authenticate"]) == (401, "Bearer")


async def test_health_and_preflights_need_no_key(serving: Serving) -> None:
    served = await serving(api_key="one")
    async with served.http.get(served.url + "/health") as response:
        assert response.status == 200
    for path, status in (("/v1/events", 204), ("/completions", 200)):  # llama-server's path, and its status
        async with served.http.options(served.url + path) as response:
            assert (path, response.status) == (path, status)


async def test_scopes_and_expiry_of_keys_are_enforced(serving: Serving, tmp_path: Path) -> None:
    past = datetime.now(UTC) - timedelta(hours=1)
    file = key_file(
        tmp_path / "keys",
        {"name": "writer", "scopes": ["complete"]},
        {"name": "admin", "scopes": ["admin"]},
        {"name": "late", "expires": past},
    )
    served = await serving(api_key_file=str(file))
    chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
    assert await ask(served, bearer("writer")) == (200, None)
    assert await ask(served, bearer("admin")) == (200, None)
    assert await ask(served, bearer("late")) == (401, "invalid_api_key")
    assert await ask(served, bearer("writer"), "/v1/chat/completions", chat) == (403, "scope_missing")
    assert await ask(served, bearer("admin"), "/v1/chat/completions", chat) == (200, None)


async def test_limits_of_a_key_are_enforced(serving: Serving, tmp_path: Path) -> None:
    file = key_file(
        tmp_path / "keys",
        {"name": "few", "max_n": 2},
        {"name": "one", "concurrent": 1},
        {"name": "poor", "tokens_per_minute": 30},
    )
    served = await serving("--endless", api_key_file=str(file))
    status, data = await served.post({"prompt": "x", "n": 3}, "/v1/events", **bearer("few"))
    error = json.loads(data)["error"]
    assert (status, error["param"]) == (400, "n")
    assert "at most 2" in error["message"]
    status, data = await served.post({"prompt": "x", "n": 1, "best_of": 9}, "/v1/events", **bearer("few"))
    assert (status, json.loads(data)["error"]["param"]) == (400, "best_of")
    endless = {"prompt": "x", "n": 1, "max_tokens": -1}
    running = asyncio.create_task(served.post(endless, "/v1/events", **bearer("one")))
    await served.note("generate")
    assert await ask(served, bearer("one")) == (429, "rate_limit_exceeded")
    assert await ask(served, bearer("few")) == (200, None)
    running.cancel()
    await served.note("cancel")
    status, data = await served.post({"prompt": "x", "max_tokens": 2}, "/v1/events", **bearer("few"))
    assert (status, frames(data)[0]["count"]) == (200, 2), "the server's own n gives way"
    assert await ask(served, bearer("poor"), body={"prompt": "x", "n": 1, "max_tokens": 60}) == (200, None)
    url, headers = served.url + "/v1/events", bearer("poor")
    async with served.http.post(url, json=BODY, headers=headers) as response:
        assert (response.status, 55 <= int(response.headers["Retry-After"]) <= 70) == (429, True)


async def test_jwts_are_keys(serving: Serving) -> None:
    served = await serving(jwt_secret=SECRET, jwt_audience="srb")
    claims = {"sub": "ann", "aud": "srb", "exp": time.time() + 60}
    token = jwt.encode(claims | {"scope": "complete"}, SECRET, "HS256")
    assert await ask(served, bearer(token)) == (200, None)
    assert await ask(served, bearer(jwt.encode(claims, SECRET, "HS256"))) == (403, "scope_missing")
    assert await ask(served, bearer(token[:-2])) == (401, "invalid_api_key")


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


HS256 = encoded(b'{"alg":"HS256"}')
RUBBISH = {
    "an unknown key": "srb-" + "a" * 43,
    "any bytes": "\udcff\udcfe",
    "any bytes, three times": "\udcff.\udcff.\udcff",
    "no header": "..",
    "a header that is a list": encoded(b"[]") + ".W10.x",
    "a header that is deep": encoded(b"[" * 5000) + ".W10.x",
    "a header of another form": encoded(b'{"alg":["HS256"],"kid":{}}') + ".W10.x",
    "no algorithm": encoded(b'{"alg":"none"}') + "." + encoded(b'{"sub":"ann","exp":99999999999}') + ".",
    "claims that are a list": HS256 + ".W10.x",
    "a signature of nothing": HS256 + "." + encoded(b'{"sub":"ann","exp":99999999999}') + ".",
    "parts that are no base64": HS256 + ".%%%.%%%",
}


@pytest.fixture
async def of_jwts(serving: Serving) -> Served:
    return await serving(jwt_secret=SECRET)


@each_row("key", RUBBISH.values(), ids=RUBBISH)
async def test_a_key_that_is_rubbish_is_a_401(of_jwts: Served, key: str) -> None:
    host, port = of_jwts.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nx-api-key: {key}\r\n\r\n"
    writer.write(head.encode(errors="surrogateescape"))
    assert b" 401 " in await reader.readline()
    writer.close()


CLAIMS: list[dict[str, Any]] = [{"scope": 7}, {"scope": [7]}, {"sub": ["ann"]}, {"sub": "\ud800"},
                                {"max_n": "x"}, {"exp": "x"}, {"exp": float("inf")}, {"nbf": {}}]  # fmt: skip


@each_row("claims", CLAIMS)
async def test_claims_that_are_rubbish_are_no_500(of_jwts: Served, claims: dict[str, Any]) -> None:
    whole = {"sub": "ann", "exp": time.time() + 60, "scope": "complete"} | claims
    status, _ = await ask(of_jwts, bearer(jwt.encode(whole, SECRET)))
    assert status in (401, 403)


async def test_sighup_reads_the_keys_again_and_keeps_them_if_it_cannot(
    serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = key_file(tmp_path / "keys", {"name": "old"})
    served = await serving(api_key_file=str(file))

    async def reread(answer: str) -> None:
        caplog.clear()
        os.kill(os.getpid(), signal.SIGHUP)
        async with asyncio.timeout(PATIENCE):
            while answer not in caplog.text:  # noqa: ASYNC110 (nothing else tells)
                await asyncio.sleep(0.005)

    caplog.set_level("INFO")
    key_file(file, {"name": "new"})
    await reread("SIGHUP: ")
    assert [(await ask(served, bearer(key)))[0] for key in ("old", "new")] == [401, 200]
    file.write_text("{")
    await reread("stay as they were")
    assert await ask(served, bearer("new")) == (200, None)
    api_keys.write(file, ())
    await reread("SIGHUP: ")
    assert await ask(served, bearer("new")) == (401, "invalid_api_key")


def process_text(pid: int) -> bytes:
    """A process's environment and command line, as text."""
    return b"".join(Path(f"/proc/{pid}/{what}").read_bytes() for what in ("environ", "cmdline"))


OTHERS = ("LLAMA_SRB_API_KEY", "LLAMA_SRB_JWT_SECRET", "NVIDIA_API_KEY", "LLAMA_API_KEY", "HF_TOKEN",
          "OTEL_EXPORTER_OTLP_HEADERS", "DATABASE_URL", "SMTP_PASS", "PGPASSWORD", "KEYBOARD",
          "CUDA_ACCESSKEY", "LLAMA_AUTHTOKEN", "NVIDIA_PASSPHRASE")  # fmt: skip
LISTED = ("CUDA_VISIBLE_DEVICES", "HSA_OVERRIDE_GFX_VERSION", "OMP_NUM_THREADS", "GGML_CUDA_P2P", "TMPDIR",
          "LANG", "WANTED", "WANTED_TOKEN")  # fmt: skip


async def test_an_engine_gets_listed_variables_only(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No secret is in its environment or on its command line, wherever the server read it."""
    for name in OTHERS:
        monkeypatch.setenv(name, "hunter2")
    for name in LISTED:
        monkeypatch.setenv(name, "/tmp")
    wanted = ("WANTED", "WANTED_TOKEN", "ABSENT")
    served = await serving(api_key="hunter2", jwt_secret="hunter2" * 5, engine_env=wanted)
    pids = [note["pid"] for note in served.noted() if note["what"] == "ready"]
    assert pids
    for pid in pids:
        told = process_text(pid)
        assert b"hunter2" not in told
        assert [name for name in (*LISTED, "PATH") if f"\0{name}=".encode() not in b"\0" + told] == []


def test_programs_that_the_doctor_runs_get_no_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "engine"
    program.write_text(f"#!/bin/sh\nenv > {tmp_path}/told\necho version 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("LLAMA_SRB_API_KEY", "hunter2")
    settings = config.load({"engine": str(program)}, environ={})
    assert checks.CHECKS["engine"](settings).verdict == "ok"
    told = (tmp_path / "told").read_text()
    assert ("hunter2" in told, "PATH=" in told) == (False, True)


FORMS = [  # the form of a refusal, by a path of each API
    (
        "/completion",
        {"error": {"code": 401, "message": "there is no such key", "type": "authentication_error"}},
    ),
    ("/api/v1/generate", {"detail": {"msg": "there is no such key", "type": "unauthorized"}}),
    ("/api/generate", {"error": "there is no such key"}),
]


@pytest.mark.parametrize(("path", "answer"), FORMS)
async def test_a_missing_key_is_a_401_in_the_form_of_each_api(
    serving: Serving, path: str, answer: dict[str, Any]
) -> None:
    served = await serving(api_key="one")
    async with served.http.post(served.url + path, json={}, headers=bearer("two")) as response:
        assert (response.status, await response.json()) == (401, answer)


# Web pages and host names

PAGES: list[tuple[dict[str, Any], dict[str, str], str | None]] = [
    ({}, {"Origin": "https://evil.example"}, "origin_not_allowed"),
    ({}, {"Origin": "null"}, "origin_not_allowed"),
    ({}, {"Origin": "http://localhost.evil.example"}, "origin_not_allowed"),
    ({}, {"Origin": "http://localhost:3000"}, None),
    ({}, {"Origin": "http://127.0.0.1:8000"}, None),
    ({}, {"Origin": "http://[::1]:8000"}, None),
    ({}, {"Origin": "app://obsidian.md"}, None),
    ({}, {"Origin": "vscode-webview://0b1c"}, None),
    ({}, {"Origin": "https://app://x"}, "origin_not_allowed"),
    ({"cors": "https://good.example"}, {"Origin": "app://obsidian.md"}, "origin_not_allowed"),
    ({"cors": "localhost null"}, {"Origin": "null"}, None),
    ({"cors": ""}, {"Origin": "http://localhost:3000"}, "origin_not_allowed"),
    ({"cors": "https://good.example"}, {"Origin": "https://good.example"}, None),
    ({"cors": "https://good.example"}, {"Origin": "https://evil.example"}, "origin_not_allowed"),
    ({"cors": "*"}, {"Origin": "https://evil.example"}, None),
    # Host names that such a page may have resolved to this address
    ({}, {"Host": "evil.example:9090"}, "host_not_allowed"),
    ({}, {"Host": "127.0.0.1.evil.example"}, "host_not_allowed"),
    ({}, {"Host": "localhost"}, None),
    ({}, {"Host": "LOCALHOST.:1234"}, None),
    ({}, {"Host": "app.localhost:9090"}, None),
    ({}, {"Host": "192.168.1.5:9090"}, None),
    ({}, {"Host": "[::1]:9090"}, None),
    ({"allowed_hosts": "box.example"}, {"Host": "box.example"}, None),
    ({"allowed_hosts": "*"}, {"Host": "evil.example"}, None),
]


@pytest.mark.parametrize(("options", "headers", "refusal"), PAGES)
async def test_only_pages_of_named_origins_may_call_by_a_known_name(
    serving: Serving, options: dict[str, Any], headers: dict[str, str], refusal: str | None
) -> None:
    """A simple request (a form's, or of text/plain) has no preflight, so it must be refused itself."""
    served = await serving(**options)
    answered = await ask(served, {**headers, "Content-Type": "text/plain"})
    assert answered == (403 if refusal else 200, refusal)
    assert [note["what"] for note in served.noted()].count("generate") == (refusal is None)


async def test_the_servers_own_pages_may_call(serving: Serving) -> None:
    served = await serving(cors="")
    assert await ask(served, {"Origin": served.url}) == (200, None)


async def test_with_a_key_the_host_name_does_not_matter(serving: Serving) -> None:
    served = await serving(api_key="one")
    assert await ask(served, {"Host": "tunnel.example", **bearer("one")}) == (200, None)


# The start


UNSAFE = [
    ({"host": "0.0.0.0"}, "--insecure"),
    ({"host": "::"}, "--insecure"),
    ({"host": "unix:/nowhere/srb.sock", "grpc": 5}, "--grpc 5 lets all users of this computer in"),
    ({"tls_cert": "x.pem"}, "go together"),
    ({"tls_cert": "x.pem", "tls_key": "y.pem"}, "cannot use x.pem and y.pem"),
    ({"api_key_file": "nowhere"}, "cannot read"),
    ({"jwt_secret": "short"}, "32"),
]


@each_row(("options", "said"), UNSAFE)
async def test_an_unsafe_server_does_not_start(options: dict[str, str], said: str) -> None:
    settings = config.load({"engine": sys.executable, "port": 0, **options}, environ={})
    with pytest.raises(server.StartError, match=said):
        await server.serve(settings, on_loading=lambda _: None, on_ready=lambda _: None)


@pytest.mark.parametrize("options", [{"insecure": True}, {"api_key": "one"}])
async def test_it_listens_on_other_addresses_with_keys_or_when_told_so(
    serving: Serving, options: dict[str, Any]
) -> None:
    served = await serving(host="0.0.0.0", **options)
    assert await ask(served, bearer("one")) == (200, None)


async def test_https_is_served_with_a_certificate(serving: Serving, tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    await asyncio.to_thread(subprocess.run, [*command, *subject, *files], check=True, capture_output=True)
    served = await serving(tls_cert=str(certificate), tls_key=str(key))
    assert served.url.startswith("https://127.0.0.1:")
    trust = ssl.create_default_context(cafile=str(certificate))
    async with aiohttp.ClientSession() as http, http.get(served.url + "/health", ssl=trust) as response:
        assert response.status == 200


# The command


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, "-m", "llama_srb.cli", "keys", *arguments]
    return forked.run(whole, capture_output=True, text=True, check=False, cwd=ROOT)


def test_keys_are_added_listed_and_revoked(tmp_path: Path) -> None:
    file = ("--file", str(tmp_path / "keys.json"))
    added = command("add", "ann", *file, "--scopes", "complete metrics", "--expires", "30d", "--max-n", "4")
    assert (added.returncode, added.stdout[:4]) == (0, "srb-")
    found = api_keys.find(api_keys.read(tmp_path / "keys.json"), added.stdout.strip())
    assert found
    assert (found.name, found.scopes, found.max_n) == ("ann", ("complete", "metrics"), 4)
    assert found.expires
    assert 29 <= (found.expires - datetime.now(UTC)).days <= 30
    listed = command("list", *file)
    assert listed.stdout.split("\t")[:2] == ["ann", "complete metrics"]
    assert command("revoke", "ann", *file).returncode == 0
    assert command("list", *file).stdout == ""


def test_a_key_may_have_names_of_models_tasks_and_memories(tmp_path: Path) -> None:
    file = ("--file", str(tmp_path / "keys.json"))
    command("add", "ann", *file, "--models", "", "--tasks", "story,brief", "--memories", "notes")
    command("add", "bob", *file)
    ann, bob = api_keys.read(tmp_path / "keys.json")
    assert (ann.models, ann.tasks, ann.memories) == ((), ("story", "brief"), ("notes",))
    assert (bob.models, bob.tasks, bob.memories) == (None, None, None)
    assert command("list", *file).stdout.splitlines()[0].split("\t")[6:] == ["", "story,brief", "notes"]


SIGNERS = {  # what makes a private key and its public one; without one a secret signs
    "secret": (),
    "RSA": ("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"),
    "P-256": ("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"),
}


def make_keys(kind: tuple[str, ...], private: Path, public: Path) -> None:
    for made in ((*kind, "-out", private), ("pkey", "-in", private, "-pubout", "-out", public)):
        subprocess.run(["openssl", *map(str, made)], check=True, capture_output=True)


@pytest.mark.parametrize("signer", SIGNERS)
async def test_a_server_accepts_tokens_that_the_command_signs(
    serving: Serving, tmp_path: Path, signer: str
) -> None:
    private, public, settings = tmp_path / "key.pem", tmp_path / "public.pem", tmp_path / "srb.yaml"
    settings.write_text(f"jwt_secret: '{SECRET}'\njwt_audience: srb\njwt_issuer: us\n")
    given: dict[str, Any] = {"jwt_audience": "srb", "jwt_issuer": "us"}
    signed = ["token", "ann", "--scopes", "complete", "--max-n", "2", "--config", str(settings)]
    if SIGNERS[signer]:
        make_keys(SIGNERS[signer], private, public)
        served = await serving(**given, jwt_keys=str(public))
        signed += ["--key", str(private)]
    else:
        served = await serving(**given, jwt_secret=SECRET)
    done = await asyncio.to_thread(command, *signed)
    assert (done.returncode, "cannot be revoked" in done.stderr) == (0, True), done.stderr
    key = bearer(done.stdout.strip())
    assert await ask(served, key) == (200, None)
    assert (await ask(served, key, body={**BODY, "n": 3}))[0] == 400
    assert (await ask(served, key, "/v1/embeddings", {"input": "x"}))[0] == 403


def test_failed_keys_commands_say_why(tmp_path: Path) -> None:
    file = ("--file", str(tmp_path / "keys.json"))
    command("add", "ann", *file)
    for arguments, said in (
        (("add", "ann"), "has a key ann"),
        (("add", "bob", "--scopes", "fly"), "known are complete"),
        (("add", "bob", "--expires", "soon"), "must be like 12h"),
        (("revoke", "bob"), "no key bob"),
        (("token", "bob"), "set LLAMA_SRB_JWT_SECRET"),
        (("token", "bob", "--scopes", "fly"), "known are complete"),
        (("token", "bob", "--key", str(tmp_path / "keys.json")), "no private key as PEM"),
        (("token", "bob", "--key", str(tmp_path / "none")), "cannot read"),
    ):
        done = command(*arguments, *(() if arguments[0] == "token" else file))
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr


async def test_a_websocket_takes_its_key_from_the_query_too_and_logs_it_nowhere(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    served = await serving(api_key="hunter2")
    async with served.http.ws_connect(served.url + "/v1/ws?api_key=hunter2"):
        pass
    for query, status in (("", 401), ("?api_key=hunter3", 401)):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await served.http.ws_connect(served.url + "/v1/ws" + query)
        assert refused.value.status == status
    assert "/v1/ws" in caplog.text
    assert "hunter" not in caplog.text
