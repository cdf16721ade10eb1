"""The bundled engine and model are found inside of the package, or beside it in a checkout."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from llama_srb import bundled

ENGINE, MODEL = "llama-batched", "storyteller.gguf"
INSTALLED = {"llama_srb/_engine/" + ENGINE, "llama_srb/_models/" + MODEL}
CHECKOUT = {"build.sh", "models/" + MODEL}

KINDS = {
    "a wheel": (INSTALLED, "llama_srb/_engine/" + ENGINE, "llama_srb/_models/" + MODEL, "wheel"),
    "a checkout": (
        CHECKOUT | {"build/bin/" + ENGINE},
        "build/bin/" + ENGINE,
        "models/" + MODEL,
        "./build.sh",
    ),
    "a checkout before ./build.sh": (CHECKOUT, "build/bin/" + ENGINE, "models/" + MODEL, "./build.sh"),
    "a checkout with both": (CHECKOUT | INSTALLED, *sorted(INSTALLED), "wheel"),
    "the package alone": (set(), "llama_srb/_engine/" + ENGINE, "llama_srb/_models/" + MODEL, "--engine"),
}


@pytest.mark.parametrize(("files", "engine", "model", "remedy"), KINDS.values(), ids=KINDS)
def test_engine_and_model_are_found_in_each_kind_of_installation(
    tmp_path: Path, files: set[str], engine: str, model: str, remedy: str
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    package = tmp_path / "llama_srb"
    assert bundled.engine(package) == tmp_path / engine
    assert bundled.model(package) == tmp_path / model
    assert remedy in bundled.remedy(package)


@pytest.mark.parametrize(
    ("tags", "oldest"),
    [
        (["py3-none-any"], None),
        (["py3-none-manylinux_2_35_x86_64"], "2.35"),
        (["py3-none-manylinux_2_28_x86_64", "py3-none-manylinux_2_27_x86_64"], "2.27"),
    ],
)
def test_the_oldest_supported_system_is_that_of_the_wheels_tag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tags: list[str], oldest: str | None
) -> None:
    info = tmp_path / "llama_srb-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: llama-srb\nVersion: 0.1.0\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\n" + "".join(f"Tag: {tag}\n" for tag in tags))
    monkeypatch.syspath_prepend(tmp_path)
    assert metadata.distribution("llama-srb").locate_file("") == tmp_path
    assert bundled.oldest_glibc() == oldest
