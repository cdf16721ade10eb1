"""The packages of all extras, with what they need, have licences that a server under MIT can use."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.places import ROOT
from tests.support.rows import each_row

REFUSED = re.compile(r"\bA?GPL|Affero|GNU General Public", re.IGNORECASE)
FREE_OF_IT = re.compile(r"\bLGPL|Lesser General|GPL[^,;]*exception", re.IGNORECASE)
NOT_INSTALLED = {
    "torch",
    "matplotlib",
    "tokenizers",  # of the extras train and bench, which CI does not install
    "llama-srb-cuda13",  # ours
}
EXTRAS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]
# The tools that a developer runs, and that no user installs (dev, evals), may be under the GPL. The extra
# `ray`, which CI does not install, is checked by tests/ray/test_extra.py.
USED_BY_USERS = sorted(EXTRAS.keys() - {"dev", "evals", "ray"})


def required(name: str, seen: set[str]) -> Iterator[metadata.Distribution]:
    """A package and all that it needs here."""
    if (key := canonicalize_name(name)) in seen:
        return
    seen.add(key)
    found = metadata.distribution(name)
    yield found
    for line in found.requires or ():
        one = Requirement(line)
        if one.marker is None or one.marker.evaluate({"extra": ""}):
            yield from required(one.name, seen)


def licences(found: metadata.Distribution) -> list[str]:
    """What a package says of its licence: the expression, else the classifiers, else the field."""
    about = found.metadata
    if expression := about.get("License-Expression"):
        return [expression]
    named = [one for one in about.get_all("Classifier", []) if one.startswith("License ::")]
    return named or [(about.get("License") or "").split("\n")[0]]


def is_refused(said: list[str]) -> bool:
    """A package under several licences may be used under that of them which is not refused."""
    parts = [part for one in said for part in re.split(r"\bOR\b|,|/", one)]
    return bool(parts) and all(REFUSED.search(part) and not FREE_OF_IT.search(part) for part in parts)


@each_row("extra", USED_BY_USERS)
def test_no_package_of_an_extra_is_under_the_gpl_or_agpl(extra: str) -> None:
    require_no_gpl(extra)


def require_no_gpl(extra: str) -> None:
    """AssertionError if a package that is installed for this extra may only be used under the GPL."""
    seen: set[str] = set()
    for line in EXTRAS[extra]:
        name = Requirement(line).name
        if name in NOT_INSTALLED:
            continue
        for found in required(name, seen):
            said = licences(found)
            assert any(said), f"{found.name} says nothing of its licence"
            assert not is_refused(said), f"{found.name}: {said}"
    assert seen or set(map(str.lower, seen)) <= NOT_INSTALLED


@pytest.mark.parametrize("name", ["ebooklib", "pymupdf", "pymupdfb"])
def test_libraries_under_the_agpl_are_in_no_extra(name: str) -> None:
    assert not [
        line for some in EXTRAS.values() for line in some if canonicalize_name(Requirement(line).name) == name
    ]


@each_row(
    ("said", "refused"),
    [
        (["AGPL-3.0-or-later"], True),
        (["License :: OSI Approved :: GNU Affero General Public License v3"], True),
        (["GNU General Public License v2 (GPLv2)"], True),
        (["LGPL-3.0-only"], False),
        (["MIT"], False),
        (["MIT OR GPL-2.0-only"], False),
        (["MPL-2.0 AND MIT"], False),
    ],
)
def test_licences_are_told_apart(said: list[str], refused: bool) -> None:
    assert is_refused(said) is refused
