"""The paths of stories, as rows of the table of routes."""

from __future__ import annotations

from llama_srb.dialects.openai import Error
from llama_srb.http.route import FAILED, Answer, Route, json_of
from llama_srb.http.stories.handlers import StoryRoutes
from llama_srb.http.stories.response_types import Story, StoryEntry, StoryList
from llama_srb.serving.keys.scopes import COMPLETE_OR_CHAT

NONE = {
    501: json_of("The server keeps no stories: --stories.", Error),
    503: json_of("It cannot be read or written now, for the reason in the message.", Error),
}
WRONG_ID = {400: json_of("The id is wrong; the message has value and bound.", Error)}
NO_STORY = {404: json_of("The key has no story of this id.", Error), **WRONG_ID, **FAILED, **NONE}
CHANGED = {412: json_of("It was changed elsewhere; the message has its version.", Error)}
ONE = "/v1/stories/{story}"

# fmt: off
STORIES: tuple[Route, ...] = (
    Route("GET", "/v1/stories", COMPLETE_OR_CHAT, StoryRoutes.list_stories,
        "The stories of the key, also those in the trash, and the entries of removed ones.",
        {200: json_of("A list.", StoryList), **FAILED, **NONE}, works=True),
    Route("GET", ONE, COMPLETE_OR_CHAT, StoryRoutes.get_story,
        "A story of the key, as it was sent. Its ETag is its version.",
        {200: json_of("The story.", Story), 304: Answer("It has not changed.", {}), **NO_STORY}, works=True),
    Route("PUT", ONE, COMPLETE_OR_CHAT, StoryRoutes.put_story,
        "Stores a story of the studio: with If-Match in place of the version that the client has, with "
        "If-None-Match: * as a new one. One that is in the trash comes back.",
        {
            200: json_of("It is stored.", StoryEntry),
            400: json_of("The body or the id is wrong; the message has field, value and bound.", Error),
            **FAILED, **NONE, **CHANGED,
            403: json_of("The key has too many stories, or lacks the scope.", Error),
            413: json_of("The body is larger than --max-body.", Error),
            428: json_of("If-Match and If-None-Match are missing.", Error),
            503: json_of("There is no room for it (--stories-size).", Error),
        }, request="StoredStory"),
    Route("DELETE", ONE, COMPLETE_OR_CHAT, StoryRoutes.delete_story,
        "Moves a story to the trash; with forever=true it is removed, and only its entry stays. With "
        "If-Match only if it has this version.",
        {200: json_of("It is in the trash, or removed.", StoryEntry), **NO_STORY, **CHANGED},
        queries=("forever",)),
)
# fmt: on
