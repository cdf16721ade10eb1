"""What the body of a story must have; the rest of it is kept as it is. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_srb.request.values import wrong
from llama_srb.serving.story_store import About

MAX_NAME, MAX_KIND = 1000, 20  # characters


def about_of(story: Mapping[str, Any]) -> About:
    """What a story says about itself; RequestError if it is none."""
    name, kind = story.get("name"), story.get("kind", "story")
    if not isinstance(name, str) or len(name) > MAX_NAME:
        raise wrong("name", name, f"a text of at most {MAX_NAME} characters")
    if not isinstance(kind, str) or len(kind) > MAX_KIND:
        raise wrong("kind", kind, f"a text of at most {MAX_KIND} characters")
    nodes, root = story.get("nodes"), story.get("root")
    if not isinstance(nodes, dict):
        raise wrong("nodes", nodes, "an object of nodes by id")
    if not isinstance(root, str) or root not in nodes:
        raise wrong("root", root, "the id of one of the nodes")
    return About(name, kind)
