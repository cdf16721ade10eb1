"""Adapters over HTTP: loaded and unloaded as with vLLM, only from their folder, and named by requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.rows import each_row
from tests.support.served import Served, Serving, bearer, key_file

LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "adapters"
    (folder / "deep").mkdir(parents=True)
    for file in (folder / "pirate.gguf", folder / "deep/noir.gguf", tmp_path / "outside.gguf"):
        file.write_bytes(b"GGUF")
    (folder / "link.gguf").symlink_to(folder / "pirate.gguf")
    (folder / "way_out.gguf").symlink_to(tmp_path / "outside.gguf")
    (folder / "up").symlink_to(tmp_path)
    (folder / "circle.gguf").symlink_to(folder / "circle.gguf")
    return folder


@pytest.fixture
async def lending(serving: Serving, folder: Path) -> Served:
    """A server that lends adapters of the folder."""
    return await serving(adapters_dir=str(folder))


async def answer(served: Served, path: str, body: Any, **headers: str) -> tuple[int, str]:
    """The status, and the text or the error's message."""
    status, data = await served.post(body, path, **headers)
    return status, data.decode() if status == 200 else json.loads(data)["error"]["message"]


async def load(served: Served, name: str, path: str | Path, **more: Any) -> tuple[int, str]:
    return await answer(served, LOAD, {"lora_name": name, "lora_path": str(path), **more})


async def get(served: Served, path: str) -> Any:
    async with served.http.get(served.url + path) as response:
        assert response.status == 200
        return await response.json()


async def test_an_adapter_is_loaded_named_and_unloaded(serving: Serving, folder: Path) -> None:
    served = await serving(adapters_dir=str(folder))
    fingerprints = [await fingerprint(served)]
    assert await load(served, "pirate", "pirate.gguf") == (
        200,
        "Success: LoRA adapter 'pirate' added successfully.",
    )
    assert await load(served, "noir", folder / "deep/noir.gguf") == (
        200,
        "Success: LoRA adapter 'noir' added successfully.",
    )
    listed = (await get(served, "/v1/adapters"))["data"]
    assert [(one["id"], one["name"], one["scale"]) for one in listed] == [(0, "pirate", 0), (1, "noir", 0)]
    models = {one["id"]: one for one in (await get(served, "/v1/models"))["data"]}
    assert models["pirate"]["parent"] == "storyteller"
    assert models["pirate"]["root"] == str(folder / "pirate.gguf")
    for body in (
        {"prompt": "x", "model": "pirate"},
        {"prompt": "x", "lora": [{"name": "noir", "scale": 0.5}]},
        {"prompt": "x", "lora": [{"id": 1}]},
    ):
        assert (await answer(served, "/v1/completions", body | {"max_tokens": 2}))[0] == 200
    assert (await answer(served, "/v1/score", {"texts": ["x"], "lora": [{"name": "noir"}]}))[0] == 200
    fingerprints.append(await fingerprint(served))
    assert await answer(served, UNLOAD, {"lora_name": "pirate"}) == (
        200,
        "Success: LoRA adapter 'pirate' removed successfully.",
    )
    assert (await answer(served, UNLOAD, {"lora_name": "pirate"})) == (
        404,
        "The lora adapter 'pirate' cannot be found.",
    )
    refused = await answer(served, "/v1/completions", {"prompt": "x", "lora": [{"name": "pirate"}]})
    assert refused == (400, "lora.name is 'pirate', which is no adapter here; did you mean noir?")
    assert (await load(served, "pirate", "link.gguf"))[0] == 200
    assert [one["id"] for one in (await get(served, "/v1/adapters"))["data"]] == [1, 2]
    fingerprints.append(await fingerprint(served))
    assert len(set(fingerprints)) == 3


async def fingerprint(served: Served) -> str:
    _, data = await served.post({"prompt": "x", "max_tokens": 1, "stream": False})
    return str(json.loads(data)["system_fingerprint"])


async def test_a_taken_name_is_refused_unless_it_is_loaded_in_place(serving: Serving, folder: Path) -> None:
    served = await serving(adapters_dir=str(folder))
    assert (await load(served, "a", "pirate.gguf"))[0] == 200
    assert await load(served, "a", "pirate.gguf") == (
        400,
        "The lora adapter 'a' has already been loaded. If you want to load the adapter in place, set "
        "'load_inplace' to True.",
    )
    before = await fingerprint(served)
    assert (await load(served, "a", "pirate.gguf", load_inplace=True))[0] == 200
    assert [(one["id"], one["name"]) for one in (await get(served, "/v1/adapters"))["data"]] == [(1, "a")]
    assert await fingerprint(served) != before
    status, message = await load(served, "storyteller", "pirate.gguf", load_inplace=True)
    assert (status, message) == (400, "lora_name is storyteller, which is the name of a model")


OUTSIDE = [
    "../outside.gguf",
    "way_out.gguf",
    "up/outside.gguf",
    "deep/../../outside.gguf",
    "/etc/passwd",
    "up",
]
MISSING = ["none.gguf", "", ".", "deep", "pirate.gguf/x"]


@pytest.mark.parametrize("path", OUTSIDE)
async def test_a_file_outside_of_the_folder_is_refused(serving: Serving, folder: Path, path: str) -> None:
    served = await serving(adapters_dir=str(folder))
    status, message = await load(served, "a", path)
    assert (status, message) == (
        403,
        f"lora_path is {path}, which is outside of the folder for adapters (--adapters-dir)",
    )
    assert "load_adapter" not in [note["what"] for note in served.noted()]


async def test_of_what_is_outside_nothing_is_told(serving: Serving, folder: Path) -> None:
    served = await serving(adapters_dir=str(folder))
    told = [await load(served, "a", path) for path in ("/etc/passwd", "/etc/none", "../none.gguf")]
    assert {status for status, _ in told} == {403}


@pytest.mark.parametrize("path", MISSING)
async def test_what_is_no_file_is_refused(serving: Serving, folder: Path, path: str) -> None:
    served = await serving(adapters_dir=str(folder))
    assert (await load(served, "a", path))[0] in (400, 404)


@pytest.mark.parametrize("path", ["circle.gguf", "a\0b", "x" * 5000])
async def test_what_is_no_path_is_refused(serving: Serving, folder: Path, path: str) -> None:
    served = await serving(adapters_dir=str(folder))
    assert (await load(served, "a", path))[0] in (400, 404)


async def test_without_a_folder_none_is_loaded(serving: Serving, folder: Path) -> None:
    served = await serving()
    status, message = await load(served, "a", folder / "pirate.gguf")
    assert (status, message) == (
        403,
        "adapters are loaded only from the folder that --adapters-dir names, which is not set",
    )


@each_row(
    "body",
    [
        {},
        {"lora_name": "a"},
        {"lora_path": "pirate.gguf"},
        {"lora_name": 7, "lora_path": "pirate.gguf"},
        {"lora_name": "a\nb", "lora_path": "pirate.gguf"},
        {"lora_name": "a" * 201, "lora_path": "pirate.gguf"},
        {"lora_name": "a?b", "lora_path": "pirate.gguf"},
        {"lora_name": " a", "lora_path": "pirate.gguf"},
        {"lora_name": "a", "lora_path": 7},
        {"lora_name": "a", "lora_path": "pirate.gguf", "load_inplace": "yes"},
        {"lora_name": "a", "lora_path": "pirate.gguf", "model": 7},
    ],
    ids=str,
)
async def test_a_wrong_body_is_refused(lending: Served, body: dict[str, Any]) -> None:
    assert (await answer(lending, LOAD, body))[0] == 400


async def test_only_admins_change_adapters(serving: Serving, folder: Path, tmp_path: Path) -> None:
    rows = ({"name": "writer", "scopes": ["complete"]}, {"name": "boss", "scopes": ["admin"]})
    served = await serving(adapters_dir=str(folder), api_key_file=str(key_file(tmp_path / "keys", *rows)))
    body = {"lora_name": "a", "lora_path": "pirate.gguf"}
    for path in (LOAD, UNLOAD):
        assert (await answer(served, path, body, **bearer("writer")))[0] == 403
        assert (await answer(served, path, body))[0] == 401
        assert (await answer(served, path, body, **bearer("boss")))[0] == 200


async def test_adapters_of_the_settings_have_their_names(serving: Serving, folder: Path) -> None:
    served = await serving(
        lora=[str(folder / "deep/noir.gguf")],
        adapters={"buccaneer": str(folder / "pirate.gguf")},
        adapters_dir=str(folder),
    )
    listed = (await get(served, "/v1/adapters"))["data"]
    assert [(one["id"], one["name"]) for one in listed] == [(0, "noir"), (1, "buccaneer")]
    assert [one["id"] for one in (await get(served, "/v1/models"))["data"]] == ["storyteller", "buccaneer"]
    for name in ("noir", "buccaneer"):
        assert (await answer(served, UNLOAD, {"lora_name": name}))[0] == 200
    assert (await get(served, "/v1/adapters"))["data"] == []
    assert (await load(served, "buccaneer", "pirate.gguf"))[0] == 200
    assert [one["id"] for one in (await get(served, "/v1/adapters"))["data"]] == [2]


# TabbyAPI


async def test_tabby_loads_adapters_for_all_requests_and_unloads_them(serving: Serving, folder: Path) -> None:
    served = await serving(adapters={"buccaneer": str(folder / "pirate.gguf")}, adapters_dir=str(folder))

    async def scales() -> dict[str, float]:
        return {one["name"]: one["scale"] for one in (await get(served, "/v1/adapters"))["data"]}

    assert (await load(served, "noir", "deep/noir.gguf"))[0] == 200
    wanted = [
        {"name": "buccaneer", "scaling": 0.5},
        {"name": "pirate"},
        {"name": "link.gguf", "scaling": None},
        {"name": "none"},
        {"name": "storyteller"},
    ]
    status, told = await answer(served, "/v1/lora/load", {"loras": wanted, "skip_queue": True})
    loaded = json.loads(told)
    assert (status, loaded["success"], loaded["failure"]) == (
        200,
        ["buccaneer", "pirate", "link.gguf"],
        ["none", "storyteller"],
    )
    assert loaded["warnings"] == [
        "none is not loaded: lora_path is none.gguf; there is no such file in the folder for adapters",
        "storyteller is not loaded: lora_name is storyteller, which is the name of a model",
    ]
    assert await scales() == {"noir": 0, "buccaneer": 0.5, "pirate": 1, "link.gguf": 1}
    assert (await answer(served, "/v1/lora/load", {"loras": [{"name": "pirate", "scaling": 2}]}))[0] == 200
    assert (await scales())["pirate"] == 2
    assert await answer(served, "/v1/lora/unload", {}) == (200, "null\n")
    assert await scales() == {"noir": 0, "buccaneer": 0}, "what others have loaded stays"
    assert (await served.post(b"", "/v1/lora/unload"))[0] == 200


@each_row(
    ("loras", "message"),
    [
        ([], "loras is []; it must be a list of 1 to 1024 objects, {name, scaling}"),
        ("x", 'loras is "x"; it must be a list of 1 to 1024 objects, {name, scaling}'),
        ([{}], "loras[0] is {}; it must be an object with a name, and scaling or none"),
        (
            [{"name": "x", "scaling": 101}],
            "loras[0].scaling is 101; it must be a number between -100 and 100",
        ),
    ],
    ids=str,
)
async def test_a_wrong_list_of_adapters_is_refused(lending: Served, loras: Any, message: str) -> None:
    assert await answer(lending, "/v1/lora/load", {"loras": loras}) == (400, message)


@each_row("name", [*OUTSIDE, "../outside"])
async def test_tabby_too_loads_nothing_outside_of_the_folder(lending: Served, name: str) -> None:
    status, _ = await answer(lending, "/v1/lora/load", {"loras": [{"name": name}]})
    assert status in (200, 403)
    assert (await get(lending, "/v1/adapters"))["data"] == []
