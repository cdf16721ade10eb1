"""Folders of this user, which variables may move."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def hub_models(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of models from a hub, in the folder that ./build.sh uses, too."""
    cache = Path(environ.get("XDG_CACHE_HOME") or "~/.cache") / "llama-srb"
    return Path(environ.get("LLAMA_SRB_CACHE") or cache).expanduser().absolute() / "hub"
