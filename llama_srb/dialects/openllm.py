"""OpenLLM-Server's shapes: /chat, /complete and /embed with the settings in `configuration`. Pure.

Its sources and documentation were not found: only the names of paths and fields are known. What stands inside
`message`, `choices` and an answer of /embed is our own.
"""

from collections.abc import Mapping
from typing import Any, NotRequired

from typing_extensions import TypedDict

from llama_srb.dialects.common.fields import switch
from llama_srb.dialects.common.reply import Json, Reply, ServerInfo
from llama_srb.dialects.common.response_types import Count, Finish, Told, Vector, Warned, finish_of
from llama_srb.request.parse import request_from
from llama_srb.request.values import RequestError, wrong

N = 1
READ_HERE = frozenset({"model", "stream", "message", "configuration"})


class ConfiguredMessage(TypedDict):
    role: str
    content: str


class ConfiguredText(TypedDict):
    index: Count
    text: str
    finish_reason: Finish


class ConfiguredTurn(TypedDict):
    index: Count
    message: ConfiguredMessage
    finish_reason: Finish


class ConfiguredChat(Told):
    """message: with n = 1; choices: with a larger n. configuration: the request's, with n and max_tokens."""

    message: NotRequired[ConfiguredMessage]
    choices: NotRequired[list[ConfiguredTurn]]
    configuration: dict[str, Any]


class ConfiguredTexts(Told):
    choices: list[ConfiguredText]
    configuration: dict[str, Any]


class ConfiguredVectors(Warned):
    """embeddings: a vector for each text."""

    embeddings: list[Vector]
    prompt_tokens: Count


def merged(body: Json) -> Json:
    """The body with the fields of its configuration beside it, where those of other dialects stand."""
    configuration = body.get("configuration") or {}
    if not isinstance(configuration, dict):
        raise wrong("configuration", configuration, "an object of request fields")
    return {**body, **configuration, "configuration": configuration}


class Answer(Reply):
    """The answer of /complete and /chat, as one body; `fields` are merged."""

    def __init__(self, fields: Json, about: ServerInfo) -> None:
        if switch(fields, "stream", False):
            message = (
                "stream is true; this path answers with one body: /v1/events and /v1/chat/completions stream"
            )
            raise RequestError(message, param="stream")
        defaults = about.defaults_of(N, about.defaults.max_tokens, stream=False)
        request = request_from(self.beginning(fields), defaults, known=READ_HERE)
        super().__init__(request, about, stream=False)
        counts = {"n": request.n, "max_tokens": request.max_tokens}
        self._configuration = {**fields["configuration"], **counts}

    def beginning(self, fields: Json) -> Json:
        """The fields with the prompt or the messages."""
        return fields

    def body(self) -> Any:
        choices: list[ConfiguredText] = [
            {"index": i, "text": self.texts[i].text, "finish_reason": finish_of(self.texts[i].stop)}
            for i in self.ordered
        ]
        answer: ConfiguredTexts = {"choices": choices, "configuration": self._configuration}
        return {**answer, **self.told}


class ChatAnswer(Answer):
    """The answer of /chat."""

    def beginning(self, fields: Json) -> Json:
        """`message` is one turn of the user, as a text or an object, after `messages` if both are given."""
        if (message := fields.get("message")) is None:
            if fields.get("messages") is None:
                raise RequestError("message is missing, and messages is, too", param="message")
            return {**fields, "prompt": None}
        turn = {"role": "user", "content": message} if isinstance(message, str) else message
        if not isinstance(turn, dict):
            raise wrong("message", message, "a text, or an object with role and content")
        earlier = fields.get("messages") or []
        if not isinstance(earlier, list):
            raise wrong("messages", earlier, "a list of messages")
        return {**fields, "prompt": None, "messages": [*earlier, turn]}

    def body(self) -> Any:
        turns: list[ConfiguredTurn] = [
            {
                "index": i,
                "message": {"role": "assistant", "content": self.texts[i].text},
                "finish_reason": finish_of(self.texts[i].stop),
            }
            for i in self.ordered
        ]
        answer: ConfiguredChat = {"configuration": self._configuration}
        if self.request.n == 1:
            answer["message"] = turns[0]["message"]
        else:
            answer["choices"] = turns
        return {**answer, **self.told}


REPLIES: Mapping[str, Any] = {"/complete": Answer, "/chat": ChatAnswer}
