"""A model that is larger than a device's memory: the device takes as many layers as have room."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.lender import Device, Lender
from tests.support.lines import Lines
from tests.support.places import BINARY, STORYTELLER
from tests.support.serving import serving

MIB = 1 << 20
ASKED: dict[str, Any] = {"prompt": "Once upon a time", "n": 2, "max_tokens": 16, "sampling": {"top_k": 1}}


@pytest.fixture
def small() -> Iterator[Device]:
    """Room for some of the layers and their cells, beside the buffers of a step."""
    lender = Lender()
    lender.start()
    with Device(lender, free=16 * MIB) as device:
        yield device
    lender.kill()


def flags(device: Device) -> tuple[str, ...]:
    return ("-t", "1", "--rpc", device.address, "--fit-target", "1")


def props(device: Device) -> dict[str, Any]:
    with serving("--parallel", "4", "--", *flags(device)) as server:
        found: dict[str, Any] = server.json("GET", "/props")[1]
    return found


def test_the_device_takes_as_many_layers_as_have_room(small: Device, tmp_path: Path) -> None:
    with Lines("-t", "1") as alone:
        expected = alone.generate(**ASKED).texts
    with Lines("-np", "4", *flags(small)) as engine:
        assert engine.generate(**ASKED).texts == expected
    found = props(small)
    assert 0 < found["n_gpu_layers"] < found["n_layers"]
    rpc, cpu = found["devices"]
    assert rpc["model"] + rpc["context"] + rpc["compute"] <= small.free
    assert cpu["model"] > 0


def test_a_model_that_has_room_lies_on_the_device_as_a_whole(small: Device) -> None:
    small.free = 4096 * MIB
    found = props(small)
    assert found["n_gpu_layers"] == found["n_layers"]


def test_what_cannot_fit_ends_with_what_is_needed_and_what_is_free(small: Device) -> None:
    small.free = 3 * MIB
    command = [BINARY, "-m", STORYTELLER, "-ngl", "99", "-c", "4096", *flags(small)]
    ended = subprocess.run(command, input="", capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "MiB are needed on RPC0, and 3 are free: leave out -ngl or" in ended.stderr
    assert '"event":"ready"' not in ended.stdout
