"""Which model a name means: tables of names, defaults, grants, and the errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from llama_srb.models import names
from llama_srb.models.names import Names, RequestIds
from llama_srb.request.values import RequestError
from tests.support.rows import each_row


@dataclass(frozen=True)
class Model:
    names: tuple[str, ...]
    adapters: Mapping[str, int] = field(default_factory=dict)


TALE = Model(("tale", "gpt"), {"pirate": 2})
POEM = Model(("poem",))
ONE = Names([Model(("m", "m.gguf"))], answers_all=True)
STRICT = Names([Model(("m", "m.gguf"))], answers_all=True, strict=True)
TWO = Names([TALE, POEM])
DEFAULT = Names([TALE, POEM], default="poem")


@each_row(
    ("models", "asked", "own", "answered", "adapter", "warns"),
    [
        (ONE, None, "m", "m", None, False),
        (ONE, "", "m", "m", None, False),
        (ONE, "m.gguf", "m", "m.gguf", None, False),
        (ONE, "gpt-4", "m", "m", None, False),
        (STRICT, None, "m", "m", None, False),
        (STRICT, "m.gguf", "m", "m.gguf", None, False),
        (TWO, None, "tale", "tale", None, False),
        (TWO, "gpt", "tale", "gpt", None, False),
        (TWO, "pirate", "tale", "pirate", 2, False),
        (TWO, "poem", "poem", "poem", None, False),
        (DEFAULT, None, "poem", "poem", None, False),
        (DEFAULT, "tale", "tale", "tale", None, False),
        (DEFAULT, "gpt-4", "poem", "poem", None, True),
        (Names([TALE, POEM], default="pirate"), None, "tale", "pirate", 2, False),
        (Names([TALE, POEM], default="pirate"), "gpt-4", "tale", "pirate", 2, True),
    ],
)
def test_the_model_of_a_name(
    models: Names[Model], asked: str | None, own: str, answered: str, adapter: int | None, warns: bool
) -> None:
    found = models.choose(asked)
    assert (found.model.names[0], found.name, found.adapter) == (own, answered, adapter)
    assert bool(found.warnings) == warns
    assert all(f"'{asked}'" in warning and answered in warning for warning in found.warnings)


@each_row(
    ("models", "asked", "message"),
    [
        (STRICT, "gpt-4", "there is no model gpt-4 here, only m"),
        (TWO, "poet", "there is no model poet here; did you mean poem?"),
        (TWO, "pirat", "there is no model pirat here; did you mean pirate?"),
        (TWO, "gpt4", "there is no model gpt4 here; did you mean gpt?"),
        (TWO, "zzz", "there is no model zzz here, only tale, poem"),
        (TWO, "Tale", "there is no model Tale here; did you mean tale?"),
        (TWO, "PIRATE", "there is no model PIRATE here; did you mean pirate?"),
        (TWO, "x" * 999, f"there is no model {'x' * 100} here, only tale, poem"),
        (
            Names([TALE, POEM], default="poem", strict=True),
            "poet",
            "there is no model poet here; did you mean poem?",
        ),
    ],
)
def test_an_unknown_name_is_404_with_the_nearest_one(models: Names[Model], asked: str, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        models.choose(asked)
    error = caught.value
    assert (error.message, error.status, error.code) == (message, 404, names.NOT_FOUND)
    assert error.param == "model"


def test_a_path_names_a_known_model_only() -> None:
    for models in (ONE, DEFAULT):
        with pytest.raises(RequestError, match="there is no model other here"):
            models.choose("other", is_known=True)


GRANTS: list[tuple[Names[Model], str | None, tuple[str, ...], str]] = [
    (TWO, None, ("poem",), "poem"),
    (TWO, "gpt", ("tale",), "tale"),
    (TWO, "pirate", ("gpt",), "tale"),
    (DEFAULT, None, ("gpt",), "tale"),
    (DEFAULT, "gpt-4", ("tale",), "tale"),
    (ONE, "gpt-4", ("m",), "m"),
]
REFUSED: list[tuple[Names[Model], str | None, tuple[str, ...], int, str]] = [
    (TWO, "poem", ("tale",), 403, "this key may use the models tale, not poem"),
    (TWO, "pirate", ("poem",), 403, "this key may use the models poem, not pirate"),
    (
        TWO,
        "pirate",
        ("pirate",),
        403,
        "this key may use the models pirate; pirate is not the name of a model",
    ),
    (TWO, None, (), 403, "this key may use no model"),
    (TWO, None, ("gone",), 403, "this key may use the models gone, none of which is here"),
    (ONE, "gpt-4", ("other",), 403, "this key may use the models other, not gpt-4"),
    (TWO, "pirat", ("poem",), 404, "there is no model pirat here, only poem"),
]


@each_row(("models", "asked", "allowed", "own"), GRANTS)
def test_a_key_gets_the_first_of_its_models_as_its_default(
    models: Names[Model], asked: str | None, allowed: tuple[str, ...], own: str
) -> None:
    assert models.choose(asked, allowed).model.names[0] == own


@each_row(("models", "asked", "allowed", "status", "message"), REFUSED)
def test_a_key_gets_no_other_model_and_no_name_of_one(
    models: Names[Model], asked: str | None, allowed: tuple[str, ...], status: int, message: str
) -> None:
    with pytest.raises(RequestError) as caught:
        models.choose(asked, allowed)
    assert caught.value.status == status
    assert caught.value.message.startswith(message)


def test_a_request_of_another_model_cannot_be_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "MAX_IDS", 2)
    ids = RequestIds()
    ids.add("1", "tale")
    ids.require("1", "tale")
    with pytest.raises(
        RequestError, match=r"continue\.id is 1, a request of the model tale; this one is for poem"
    ):
        ids.require("1", "poem")
    ids.add("2", "tale")
    ids.add("3", "tale")
    ids.require("1", "poem")  # forgotten: the engine refuses it
    assert list(ids) == ["2", "3"]
