"""Files that are no adapters, or hostile ones: each is an error with the reason, and the engine lives on."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter

from tests.support.lines import Lines
from tests.support.models import Pairs, write_adapter, write_model
from tests.support.rows import each_row

Q, EMBEDDINGS = "blk.0.attn_q.weight", "token_embd.weight"
F32 = np.float32


def pair(name: str, a: tuple[int, ...], b: tuple[int, ...], kind: Any = F32) -> Callable[..., None]:
    def change(_: GGUFWriter, pairs: Pairs) -> None:
        pairs[name] = [np.ones(a, kind), np.ones(b, kind)]

    return change


def text(key: str, value: str) -> Callable[..., None]:
    def change(writer: GGUFWriter, _: Pairs) -> None:
        del writer.kv_data[0][key]
        writer.add_string(key, value)

    return change


def number(key: str) -> Callable[..., None]:
    def change(writer: GGUFWriter, _: Pairs) -> None:
        del writer.kv_data[0][key]
        writer.add_uint32(key, 7)

    return change


def alpha(value: float) -> Callable[..., None]:
    def change(writer: GGUFWriter, _: Pairs) -> None:
        del writer.kv_data[0]["adapter.lora.alpha"]
        writer.add_float32("adapter.lora.alpha", value)

    return change


def tokens(writer: GGUFWriter, _: Pairs) -> None:
    writer.add_array("adapter.alora.invocation_tokens", [1, 2, 3])


def only_a(_: GGUFWriter, pairs: Pairs) -> None:
    pairs[Q].pop()


def another_name(writer: GGUFWriter, _: Pairs) -> None:
    writer.add_tensor("blk.0.attn_q.weight.lora_c", np.ones((4, 4), F32))


WRONG: dict[str, tuple[Callable[..., None], str]] = {  # what is wrong with it, a part of the message
    "a model": (text("general.type", "model"), 'its general.type is "model"; it must be "adapter"'),
    "a type that is a number": (number("general.type"), "its general.type is no string"),
    "a control vector": (text("adapter.type", "cvec"), 'its adapter.type is "cvec"; it must be "lora"'),
    "another architecture": (text("general.architecture", "llama"), 'it must be "qwen3"'),
    "an architecture that is a number": (number("general.architecture"), "architecture is no string"),
    "aLoRA": (tokens, "(aLoRA), which is not supported"),
    "an alpha that is an integer": (number("adapter.lora.alpha"), "adapter.lora.alpha is no finite"),
    "an alpha that is infinite": (alpha(float("inf")), "adapter.lora.alpha is no finite"),
    "A without B": (only_a, "it has only A, not B"),
    "a tensor C": (another_name, "blk.0.attn_q.weight.lora_c is neither"),
    "a tensor that the model lacks": (pair("blk.9.attn_q.weight", (4, 64), (64, 4)), "does not exist"),
    "a wrong width": (pair(Q, (4, 65), (64, 4)), "incorrect shape"),
    "two ranks": (pair(Q, (4, 64), (64, 5)), "A has the rank 4 and B has the rank 5"),
    "two ranks of embeddings": (pair(EMBEDDINGS, (512, 4), (64, 5)), "A has the rank 4 and B has the rank 5"),
    "several matrices": (pair(Q, (2, 4, 64), (2, 64, 4)), "have not 1 matrix"),
    "integers": (pair(Q, (4, 64), (64, 4), np.int32), "has the type i32"),
    "doubles": (pair(Q, (4, 64), (64, 4), np.float64), "has the type f64"),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    write_model(folder / "model.gguf", "qwen3")
    write_adapter(folder / "sound.gguf", "qwen3", 0)
    return folder


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Lines]:
    with Lines("-c", "1024", "-np", "4", model=folder / "model.gguf") as engine:
        yield engine


IDS = iter(range(1_000_000))


def load(engine: Lines, path: Path) -> tuple[int, dict[str, Any]]:
    id = next(IDS)
    return id, engine.ask("load_adapter", adapter={"id": id, "path": str(path)})


def refused(engine: Lines, path: Path) -> str:
    _, error = load(engine, path)
    assert (error["event"], error["code"], error["param"]) == ("error", "invalid_request", "adapter.path")
    assert engine.generate(prompt="Once", max_tokens=2).done["completion_tokens"] == 2
    return str(error["message"])


@each_row(("change", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_adapter_is_refused_with_the_reason(
    engine: Lines, tmp_path: Path, change: Callable[..., None], message: str
) -> None:
    path = tmp_path / "wrong.gguf"
    write_adapter(path, "qwen3", 0, change=change)
    said = refused(engine, path)
    assert said.startswith(f"{path} cannot be loaded as an adapter: ")
    assert message in said


def test_what_is_no_file_of_the_format_is_refused(engine: Lines, folder: Path, tmp_path: Path) -> None:
    sound = (folder / "sound.gguf").read_bytes()
    contents = {
        "empty": (b"", "no GGUF file, or a damaged one"),
        "text": (b"Once upon a time", "no GGUF file, or a damaged one"),
        "zeros": (bytes(1 << 20), "no GGUF file, or a damaged one"),
        "half": (sound[: len(sound) // 2], "not within the file bounds"),
        "header": (sound[:100], "no GGUF file, or a damaged one"),
        "counts": (sound[:8] + b"\xff" * 16 + sound[24:], "no GGUF file, or a damaged one"),
    }
    for name, (content, message) in contents.items():
        (tmp_path / name).write_bytes(content)
        assert message in refused(engine, tmp_path / name), name


def test_what_is_no_regular_file_is_refused(engine: Lines, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "No such file" in refused(engine, tmp_path / "none.gguf")
    assert "no regular file" in refused(engine, tmp_path / "pipe")
    assert "no regular file" in refused(engine, tmp_path)
    assert "no regular file" in refused(engine, Path("/dev/zero"))


SOUND: dict[str, Callable[..., None]] = {
    "of embeddings": pair(EMBEDDINGS, (512, 4), (64, 4)),
    "in half precision": pair(Q, (4, 64), (64, 4), np.float16),
    "of a tensor that no product uses": pair("output_norm.weight", (4, 64), (1, 4)),
    "of the rank 0": alpha(0.0),
}


@pytest.mark.parametrize("change", SOUND.values(), ids=SOUND)
def test_an_unusual_adapter_is_loaded_and_used(
    engine: Lines, tmp_path: Path, change: Callable[..., None]
) -> None:
    write_adapter(tmp_path / "a.gguf", "qwen3", 0, change=change)
    id, answer = load(engine, tmp_path / "a.gguf")
    assert answer["event"] == "result", answer
    assert engine.generate(prompt="Once", lora=[{"id": id}], max_tokens=4).done["completion_tokens"] >= 1
    engine.ask("unload_adapter", adapter=id)


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e38], ids=str)
def test_weights_that_are_no_sensible_numbers_harm_their_own_requests_only(
    engine: Lines, tmp_path: Path, number: float
) -> None:
    def change(_: GGUFWriter, pairs: Pairs) -> None:
        pairs[Q] = [np.full((4, 64), number, F32), np.full((64, 4), number, F32)]

    write_adapter(tmp_path / "a.gguf", "qwen3", 0, change=change)
    (before,) = engine.answers(engine.send({"op": "score", "texts": ["Once upon a time"]}))
    id, _ = load(engine, tmp_path / "a.gguf")
    spoilt, sound = engine.generate_all(
        {"prompt": "Once", "lora": [{"id": id}], "max_tokens": 8}, {"prompt": "Once", "max_tokens": 8}
    )
    assert spoilt.events[-1]["event"] in ("done", "error")
    assert sound.done["completion_tokens"] >= 1
    (after,) = engine.answers(engine.send({"op": "score", "texts": ["Once upon a time"]}))
    assert after.named("score")[0]["logprob"] == pytest.approx(before.named("score")[0]["logprob"], abs=1e-3)
    engine.ask("unload_adapter", adapter=id)


def test_changed_bytes_of_a_header_are_refused_or_harmless(
    engine: Lines, folder: Path, tmp_path: Path
) -> None:
    sound = (folder / "sound.gguf").read_bytes()
    n_header = sound.index(b"blk.1.ffn_down.weight.lora_b") + 60
    chance, path, n_loaded = random.Random(1), tmp_path / "a.gguf", 0
    for _ in range(200):
        changed = bytearray(sound)
        for _ in range(chance.randint(1, 3)):
            changed[chance.randrange(n_header)] = chance.choice(
                [0, 1, 2, 127, 128, 255, chance.randrange(256)]
            )
        path.write_bytes(changed)
        id, answer = load(engine, path)
        if answer["event"] == "result":
            n_loaded += 1
            engine.generate(prompt="Once", lora=[{"id": id}], max_tokens=2)
            engine.ask("unload_adapter", adapter=id)
    assert 0 < n_loaded < 200
    assert engine.generate(prompt="Once", max_tokens=2).done["completion_tokens"] == 2
