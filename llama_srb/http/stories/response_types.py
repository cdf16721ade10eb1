"""The types of answers about stories that the server keeps. Pure."""

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from llama_srb.dialects.common.response_types import Count
from llama_srb.serving.story_store import State

Story = Annotated[dict[str, Any], Field(description="The story as it was sent.")]


class StoryEntry(TypedDict):
    """A story without its text. version: of its content, also its ETag. changed: milliseconds since 1970.

    state: a story in the trash is complete; of a removed one only this entry is left.
    """

    id: str
    object: Literal["story"]
    version: str
    name: str
    kind: str
    changed: Count
    bytes: Count
    state: State


class StoryList(TypedDict):
    """The last changed one first."""

    object: Literal["list"]
    data: list[StoryEntry]
