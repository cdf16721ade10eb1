"""Schemas as msgspec writes them of its own structs and of attrs classes: a line of JSON each.

attrs and cattrs write none themselves.
"""

# mypy: ignore-errors
# ruff: noqa: UP007, RUF036 (people write models in all of these forms)
import datetime
import decimal
import enum
import json
import sys
import uuid
from typing import Annotated, Any, Literal, Optional, Union

import attrs
import msgspec
from msgspec import Meta, Struct


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"
    BLUE = "dark blue"


class Level(enum.IntEnum):
    LOW = 1
    MIDDLE = 5
    HIGH = 10


class Person(Struct):
    """Somebody whom a story is about."""

    name: Annotated[str, Meta(min_length=1, max_length=20, description="As others call them")]
    age: Annotated[int, Meta(ge=0, lt=150)]
    email: str | None = None
    tags: list[str] = []
    is_alive: bool = True


class Address(Struct):
    street: str
    zip: Annotated[str, Meta(pattern=r"^[A-Z]{3}-\d{2,4}$")]
    floor: Annotated[int, Meta(ge=-3, title="Which floor")] | None = None


class Home(Struct):
    main: Address
    other: Address | None = None
    color: Color = Color.RED
    by_name: dict[str, Address] = {}


class Settings(Struct):
    color: Color
    mode: Literal["draft", "final", 3, None]
    level: Level = Level.LOW
    only: Literal["x"] = "x"


class Cat(Struct, tag_field="kind", tag="cat"):
    lives: int = 9


class Dog(Struct, tag_field="kind", tag="dog"):
    name: str


class Bird(Struct, tag_field="kind", tag="bird"):
    words: list[str] = []


class Zoo(Struct):
    star: Union[Cat, Dog, Bird]
    others: list[Union[Cat, Dog]]


class Tree(Struct):
    value: int
    left: Optional["Tree"] = None
    children: list["Tree"] = []


class When(Struct):
    day: datetime.date
    at: datetime.time
    moment: datetime.datetime
    lasts: datetime.timedelta
    id: uuid.UUID


class Maps(Struct):
    counts: dict[str, int]
    levels: dict[str, Color | None]
    lists: dict[str, list[float]] = {}
    inner: dict[Annotated[str, Meta(min_length=1, max_length=9)], dict[str, bool]] = {}


class Tuples(Struct):
    pair: tuple[int, str]
    many: tuple[int, ...]
    three: Annotated[list[int], Meta(min_length=1, max_length=3)]
    pairs: list[tuple[str, float]] = []


class Row(Struct, array_like=True):
    id: int
    name: str
    note: str = ""


class Numbers(Struct):
    ratio: Annotated[float, Meta(gt=0, le=1)]
    even: Annotated[int, Meta(multiple_of=2, ge=0, le=1000)]
    price: decimal.Decimal
    below: Annotated[float, Meta(lt=0)] = -0.5
    any: float = 1.5


class Scalars(Struct):
    either: Union[int, str, list[bool]]
    maybe: Union[str, None, float] = None
    anything: Any = None
    nothing: None = None
    data: dict = {}
    raw: bytes = b""


class Names(Struct, forbid_unknown_fields=True):
    first: str = msgspec.field(name="first name")
    empty: int = msgspec.field(name="$ref", default=0)
    quoted: int = msgspec.field(name="größe", default=0)


class Lines(Struct):
    text: str
    count: int = 1


class Order(Struct, kw_only=True):
    id: uuid.UUID
    items: Annotated[list[Lines], Meta(min_length=1)]
    payment: Union[Cat, str]
    note: Annotated[str, Meta(max_length=10)] = ""


class Sets(Struct):
    colors: set[Color]
    modes: frozenset[Literal["a", "b"]] = frozenset()


class FreeSets(Struct):
    numbers: set[int]


STRUCTS = [
    Sets,
    FreeSets,
    Person,
    Home,
    Settings,
    Zoo,
    Tree,
    When,
    Maps,
    Tuples,
    Row,
    Numbers,
    Scalars,
    Names,
    Order,
]


@attrs.define
class AddressOf:
    street: str
    zip: Annotated[str, Meta(pattern=r"^[A-Z]{3}-\d{2,4}$")]
    floor: int | None = None


@attrs.define
class HomeOf:
    main: AddressOf
    other: AddressOf | None = None
    color: Color = Color.RED
    by_name: dict[str, AddressOf] = attrs.Factory(dict)


@attrs.frozen
class PersonOf:
    name: str
    age: int
    email: str | None = None
    tags: list[str] = attrs.Factory(list)
    is_alive: bool = True


@attrs.define
class TreeOf:
    value: int
    left: Optional["TreeOf"] = None
    children: list["TreeOf"] = attrs.Factory(list)


@attrs.define
class SettingsOf:
    color: Color
    mode: Literal["draft", "final", 3, None]
    level: Level = Level.LOW
    only: Literal["x"] = "x"


@attrs.define
class MapsOf:
    counts: dict[str, int]
    levels: dict[str, Color | None]
    lists: dict[str, list[float]] = attrs.Factory(dict)
    inner: dict[str, dict[str, bool]] = attrs.Factory(dict)


@attrs.define
class TuplesOf:
    pair: tuple[int, str]
    many: tuple[int, ...]
    three: Annotated[list[int], Meta(min_length=1, max_length=3)]
    pairs: list[tuple[str, float]] = attrs.Factory(list)


@attrs.define
class WhenOf:
    day: datetime.date
    at: datetime.time
    moment: datetime.datetime
    lasts: datetime.timedelta
    id: uuid.UUID


CLASSES = [PersonOf, HomeOf, SettingsOf, TreeOf, WhenOf, MapsOf, TuplesOf]


for writer, classes in (("msgspec", STRUCTS), ("attrs", CLASSES)):
    for one in classes:
        schema = msgspec.json.schema(one)
        line = {"writer": writer, "model": one.__name__.removesuffix("Of"), "schema": schema}
        json.dump(line, sys.stdout)
        print()
