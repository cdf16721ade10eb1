"""YAML as a file of settings has it: YAML 1.2's core schema, so that `no`, `on`, `1:30` and dates stay texts.

Knows no setting. PyYAML is imported only here, when a file is YAML: it is an extra.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

INSTALL = "pip install 'llama-srb[yaml]'"
ENDINGS = (".yaml", ".yml")
SCALARS = {  # the tag of a scalar without quotation marks, by its form; others are texts
    "tag:yaml.org,2002:null": r"~|null|Null|NULL|",
    "tag:yaml.org,2002:bool": r"true|True|TRUE|false|False|FALSE",
    "tag:yaml.org,2002:int": r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+",
    "tag:yaml.org,2002:float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan",
    "tag:yaml.org,2002:merge": "<<",
}


class YamlError(ValueError):
    """The text is no YAML of a table, or PyYAML is not installed."""


def read(data: bytes) -> dict[str, Any]:
    """The table of a text; null is absent. YamlError."""
    try:
        import yaml
    except ImportError:
        raise YamlError(f"PyYAML is not installed: {INSTALL}, or write the settings as TOML") from None
    try:
        found = yaml.load(data, Loader=_loader())
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise YamlError(" ".join(str(error).split())) from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise YamlError(f"it is a {type(found).__name__}; it must be a table, NAME: VALUE")
    return _table(found)


def _table(found: Mapping[object, object]) -> dict[str, Any]:
    for name in found:
        if not isinstance(name, str):
            raise YamlError(f"the name {name!r} is no text; write it in quotation marks")
    return {str(name): _value(value) for name, value in found.items() if value is not None}


def _value(value: object) -> object:
    if isinstance(value, dict):
        return _table(value)
    return [_value(one) for one in value] if isinstance(value, list) else value


@cache
def _loader() -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """The safe loader, with the scalars of YAML 1.2 and no name twice in a table."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            names = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
            for name in names:
                if names.count(name) > 1:
                    problem = f"the name {name} is there twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
            made: dict[Any, Any] = super().construct_mapping(node, deep)
            return made

    def whole(loader: Any, node: Any) -> int:
        text = loader.construct_scalar(node)
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)

    Loader.yaml_implicit_resolvers = {}
    for tag, pattern in SCALARS.items():
        Loader.add_implicit_resolver(tag, re.compile(rf"(?:{pattern})\Z"), None)
    Loader.add_constructor("tag:yaml.org,2002:int", whole)
    return Loader
