"""The adapters: their files are not read, and texts are the same with and without them."""

from __future__ import annotations

import os
from argparse import Namespace
from typing import Any

from .fields import Refused


class Adapters:
    def __init__(self, loaded: list[dict[str, Any]]) -> None:
        self.loaded = loaded
        self.ids = 1 + max((one["id"] for one in loaded), default=-1)  # all ids so far are smaller

    @classmethod
    def of(cls, flags: Namespace) -> Adapters:
        listed = [text.split(":", 2) for text in flags.adapter if text != "none"]
        if not flags.adapter:
            scaled = [file.rpartition(":")[::2] for file in flags.lora_scaled.split(",") if file]
            given = [(file, "1") for file in flags.lora.split(",") if file] + scaled
            listed = [[str(id), scale, file] for id, (file, scale) in enumerate(given)]
        return cls([{"id": int(id), "path": path, "scale": float(scale)} for id, scale, path in listed])

    def load(self, wanted: dict[str, Any]) -> None:
        if wanted["id"] < self.ids:
            raise Refused("adapter.id", f"adapter.id is {wanted['id']}; it must be at least {self.ids}")
        if not os.path.isfile(wanted["path"]):
            raise Refused("adapter.path", f"{wanted['path']} cannot be loaded as an adapter: it is no file")
        self.loaded.append({"scale": 0.0} | wanted)
        self.ids = wanted["id"] + 1

    def unload(self, id: int) -> None:
        self.loaded.remove(self.find(id))

    def check(self, lora: list[dict[str, Any]]) -> None:
        for entry in lora:
            self.find(entry["id"])

    def find(self, id: int) -> dict[str, Any]:
        for one in self.loaded:
            if one["id"] == id:
                return one
        raise Refused("lora.id", f"lora.id is {id}; there is no adapter with this id")
