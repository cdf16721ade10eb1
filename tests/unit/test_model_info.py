"""GGUF headers of the bundled model, of generated files, and of files that are no model."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFWriter
from gguf.constants import GGML_QUANT_SIZES, LlamaFileType

from llama_srb.models import gguf_header
from llama_srb.models.gguf_header import BLOCK_SIZES, FILE_TYPES, ModelFileError
from tests.support.rows import each_row

BUNDLED = Path(__file__).parents[2] / "models" / "storyteller.gguf"


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def pair(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def tensor(name: str, dimensions: tuple[int, ...], kind: int, offset: int) -> bytes:
    shape = struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
    return text(name) + shape + struct.pack("<IQ", kind, offset)


def gguf(pairs: list[bytes], tensors: list[bytes], data: int = 0, version: int = 3) -> bytes:
    header = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs)) + b"".join(pairs + tensors)
    return header + bytes(-len(header) % 32) + bytes(data)


NAMES = [
    pair("general.architecture", 8, text("llama")),
    pair("general.name", 8, text("Näme")),
    pair("general.file_type", 4, struct.pack("<I", 15)),
    pair("llama.context_length", 4, struct.pack("<I", 4096)),
    pair("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 3) + text("a") + text("") + text("ß")),
    pair("tokenizer.ggml.scores", 9, struct.pack("<IQ3f", 6, 3, 1, 2, 3)),
    pair("tokenizer.ggml.add_bos_token", 7, b"\1"),
]


def write(folder: Path, content: bytes) -> Path:
    path = folder / "m.gguf"
    path.write_bytes(content)
    return path


def test_special_tokens_have_their_texts(tmp_path: Path) -> None:
    ids = [pair(f"tokenizer.ggml.{name}_token_id", 4, struct.pack("<I", id))
           for name, id in (("bos", 2), ("eos", 0), ("unknown", 7))]  # fmt: skip
    info = gguf_header.read(write(tmp_path, gguf([*ids, *NAMES], [])))
    assert info.special_tokens == {"bos_token": "ß", "eos_token": "a"}, "there is no token 7"
    odd = [ids[0], pair("tokenizer.ggml.tokens", 9, struct.pack("<IQ2f", 6, 2, 1, 2))]
    assert gguf_header.read(write(tmp_path, gguf(odd, []))).special_tokens == {}
    assert gguf_header.read(write(tmp_path, gguf(ids, []))).special_tokens == {}


def test_the_bundled_models_facts_are_read() -> None:
    info = gguf_header.read(BUNDLED)
    assert (info.name, info.architecture, info.quantisation, info.context) == (
        "Storyteller",
        "llama",
        "Q8_0",
        1024,
    )
    assert info.parameters == 4_458_752
    assert info.size_bytes == BUNDLED.stat().st_size


def test_arrays_are_skipped_and_texts_and_numbers_read(tmp_path: Path) -> None:
    tensors = [tensor("a", (32, 4), 8, 0), tensor("b", (5,), 0, 160)]
    info = gguf_header.read(write(tmp_path, gguf(NAMES, tensors, data=180)))
    assert (info.name, info.quantisation, info.context, info.parameters) == ("Näme", "Q4_K_M", 4096, 133)
    assert info.metadata["tokenizer.ggml.add_bos_token"] is True
    assert info.metadata["tokenizer.ggml.tokens"] is None


NUMBERS = {
    "uint8": 200,
    "int8": -100,
    "uint16": 60_000,
    "int16": -30_000,
    "uint32": 4_000_000_000,
    "int32": -2_000_000_000,
    "float32": 0.5,
    "bool": True,
    "uint64": 2**63 + 1,
    "int64": -(2**62),
    "float64": 0.1,
}


def test_numbers_of_every_type_are_read_as_they_were_written(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "m.gguf", "llama")
    for kind, value in NUMBERS.items():
        getattr(writer, f"add_{kind}")(f"x.{kind}", value)
    for write_part in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.close):
        write_part()
    metadata = gguf_header.read(tmp_path / "m.gguf").metadata
    assert {kind: metadata[f"x.{kind}"] for kind in NUMBERS} == NUMBERS


def test_a_model_without_a_name_is_called_by_its_file(tmp_path: Path) -> None:
    info = gguf_header.read(write(tmp_path, gguf([], [])))
    assert (info.name, info.architecture, info.quantisation, info.context) == (
        "m",
        "unknown",
        "unknown",
        None,
    )


WHOLE = gguf(NAMES, [tensor("a", (32, 4), 8, 0)], data=136)


@each_row("length", range(1, len(WHOLE)))
def test_a_file_cut_anywhere_is_truncated(tmp_path: Path, length: int) -> None:
    with pytest.raises(ModelFileError, match="truncated"):
        gguf_header.read(write(tmp_path, WHOLE[:length]))


def test_the_whole_file_is_not_truncated(tmp_path: Path) -> None:
    gguf_header.read(write(tmp_path, WHOLE))


BROKEN: dict[str, bytes] = {
    "the file is empty": b"",
    "not a GGUF file": b"GGML" + bytes(100),
    "GGUF version 1;": gguf([], [], version=1),
    "GGUF version 50331648;": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "unknown type 99": gguf([pair("k", 99, b"")], []),
    "array of the unknown type 9": gguf([pair("k", 9, struct.pack("<IQ", 9, 1))], []),
    "5 dimensions": gguf([], [tensor("a", (1,) * 5, 0, 0)]),
    "general.alignment": gguf([pair("general.alignment", 8, text("x"))], []),
    "llama.context_length is 2147483648; it must be between 0 and 2147483647": gguf(
        [NAMES[0], pair("llama.context_length", 10, struct.pack("<Q", 1 << 31))], []
    ),
    "llama.context_length is -1; it must be": gguf(
        [NAMES[0], pair("llama.context_length", 5, b"\xff" * 4)], []
    ),
    "truncated": gguf([pair("k", 9, struct.pack("<IQ", 8, 2**62))], []),
    "truncated (": gguf([pair("k", 9, struct.pack("<IQ", 0, 2**63))], []),
    "is truncated": b"GGUF" + struct.pack("<IQQ", 3, 2**60, 2**60),
}


@each_row("reason", BROKEN)
def test_a_file_that_is_no_model_is_refused_with_its_path_in_one_line(tmp_path: Path, reason: str) -> None:
    path = write(tmp_path, BROKEN[reason])
    with pytest.raises(ModelFileError) as caught:
        gguf_header.read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


PLACES: list[tuple[Callable[[Path], Path], str]] = [
    (lambda folder: folder / "none.gguf", "there is no such file"),
    (lambda folder: folder, "directory"),
]


@pytest.mark.parametrize(("place", "reason"), PLACES)
def test_a_path_without_a_file_is_refused(tmp_path: Path, place: Callable[[Path], Path], reason: str) -> None:
    with pytest.raises(ModelFileError, match=reason):
        gguf_header.read(place(tmp_path))


def _names(types: Any) -> dict[int, str]:
    return {int(kind): kind.name.removeprefix("MOSTLY_").removeprefix("ALL_") for kind in types}


def test_the_tables_of_types_equal_the_gguf_packages() -> None:
    known = {int(kind): sizes for kind, sizes in GGML_QUANT_SIZES.items()}
    assert {kind: known.get(kind, sizes) for kind, sizes in BLOCK_SIZES.items()} == BLOCK_SIZES
    names = _names(LlamaFileType)
    assert {kind: names.get(kind, name) for kind, name in FILE_TYPES.items()} == FILE_TYPES
