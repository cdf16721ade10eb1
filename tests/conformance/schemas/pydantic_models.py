"""Schemas as pydantic 1 or 2 writes them, whichever runs this: a line of JSON each."""

# mypy: ignore-errors
# ruff: noqa: UP007, UP042, UP045, RUF036 (people write models in all of these forms)
import datetime
import decimal
import enum
import ipaddress
import json
import pathlib
import sys
import uuid
from typing import Annotated, Any, Generic, Literal, Optional, TypeVar, Union

import pydantic
from pydantic import BaseModel, EmailStr, Field, conint, conlist, constr

IS_1 = pydantic.VERSION.startswith("1.")
PATTERN = {"regex" if IS_1 else "pattern": r"^[A-Z]{3}-\d{2,4}$"}
CODE = constr(**PATTERN)


class Color(str, enum.Enum):
    RED = "red"
    GREEN = "green"
    BLUE = "dark blue"


class Level(enum.IntEnum):
    LOW = 1
    MIDDLE = 5
    HIGH = 10


class Person(BaseModel):
    """Somebody whom a story is about."""

    name: str = Field(..., min_length=1, max_length=20, description="As others call them")
    age: conint(ge=0, lt=150)
    email: Optional[EmailStr] = None
    tags: list[str] = []
    is_alive: bool = True


class Address(BaseModel):
    street: str
    zip: CODE
    floor: Optional[int] = Field(default=None, title="Which floor", ge=-3)


class Home(BaseModel):
    main: Address = Field(..., description="Where letters go")
    other: Optional[Address] = Field(default=None, description="A second one")
    color: Color = Field(default=Color.RED, description="Of the door")
    by_name: dict[str, Address] = {}


class Settings(BaseModel):
    color: Color
    level: Level = Level.LOW
    mode: Literal["draft", "final", 3, None]
    only: Literal["x"] = "x"


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


class Bird(BaseModel):
    kind: Literal["bird", "parrot"]
    words: list[str] = []


class Zoo(BaseModel):
    star: Annotated[Union[Cat, Dog, Bird], Field(discriminator="kind")]
    others: list[Union[Cat, Dog]]


class Tree(BaseModel):
    value: int
    left: Optional["Tree"] = None
    children: list["Tree"] = []


class When(BaseModel):
    day: datetime.date
    at: datetime.time
    moment: datetime.datetime
    lasts: datetime.timedelta
    id: uuid.UUID
    home: pydantic.AnyUrl
    address: ipaddress.IPv4Address


class Maps(BaseModel):
    counts: dict[str, int]
    lists: dict[str, list[float]] = {}
    levels: dict[str, Optional[Color]]
    inner: dict[str, dict[str, bool]] = {}


class Tuples(BaseModel):
    pair: tuple[int, str]
    many: tuple[int, ...]
    pairs: list[tuple[str, float]] = []
    three: conlist(int, **({"min_items": 1, "max_items": 3} if IS_1 else {"min_length": 1, "max_length": 3}))


class Numbers(BaseModel):
    ratio: float = Field(..., gt=0, le=1)
    even: int = Field(..., multiple_of=2, ge=0, le=1000)
    price: decimal.Decimal
    below: float = Field(0.5, lt=0)
    any: float = 1.5


class Scalars(BaseModel):
    either: Union[int, str, list[bool]]
    maybe: Union[str, None, float] = None
    anything: Any = None
    nothing: None = None
    data: dict = {}


class Names(BaseModel):
    first: str = Field(..., alias="first name")
    empty: int = Field(0, alias="$ref")
    quoted: int = Field(0, alias='a "quoted" \\ name')
    umlaut: int = Field(0, alias="größe")

    if IS_1:

        class Config:
            extra = "forbid"

    else:
        model_config = pydantic.ConfigDict(extra="forbid")


class Lines(BaseModel):
    text: str
    count: int = 1


class Order(Lines):
    id: uuid.UUID
    items: conlist(Lines, **({"min_items": 1} if IS_1 else {"min_length": 1}))
    payment: Union[Cat, Address, str]
    note: constr(max_length=10) = ""


class Sets(BaseModel):
    colors: set[Color]
    modes: frozenset[Literal["a", "b"]] = frozenset()


class FreeSets(BaseModel):
    numbers: set[int]


class More(BaseModel):
    site: pydantic.HttpUrl
    data: bytes
    secret: pydantic.SecretStr
    file: pathlib.Path
    address: ipaddress.IPv6Address
    count: pydantic.PositiveInt
    temperature: Optional[Annotated[float, Field(ge=-273.15)]] = None


class Price(BaseModel):
    price: pydantic.condecimal(max_digits=5, decimal_places=2)


MODELS = [Person, Home, Settings, Zoo, Tree, When, Maps, Tuples, Numbers, Scalars, Names, Order]
MODELS += [Sets, FreeSets, More, Price]
if IS_1:
    Tree.update_forward_refs()
    made = [(model.__name__, model.schema()) for model in MODELS]
else:
    T = TypeVar("T")

    class Page(BaseModel, Generic[T]):
        items: list[T]
        next: int | None

    made = [(model.__name__, model.model_json_schema()) for model in MODELS]
    made += [("Page", Page[Person].model_json_schema())]
    made += [("Zoo", pydantic.TypeAdapter(Zoo).json_schema(mode="serialization"))]
    made += [("Order", Order.model_json_schema(mode="serialization"))]
    made += [("Numbers", Numbers.model_json_schema(mode="serialization"))]
for name, schema in made:
    json.dump(
        {"writer": f"pydantic {pydantic.VERSION.split('.')[0]}", "model": name, "schema": schema}, sys.stdout
    )
    print()
