"""OpenLLM-Server's shapes: /chat, /complete and /embed. Pure.

Settings stand beside the prompt or in `configuration`; an answer has texts, and the settings that were used.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NotRequired, TypeAlias

from llama_srb.dialects.common.fields import switch
from llama_srb.dialects.common.reply import Json, Reply, ServerInfo
from llama_srb.dialects.common.response_types import Told, Vector
from llama_srb.engine.events import Event, Prompt
from llama_srb.request.fields import CANONICAL, NO_SEEDS, ROWS
from llama_srb.request.parse import request_from, unknown_field
from llama_srb.request.values import RequestError, wrong

N = 1
READ_HERE = frozenset({"model", "stream", "configuration"})
TURNS = ("prompt", "message")
NO_SETTINGS = frozenset({"prompt", "message", "messages", "stream", "configuration"})
OWN = ("n", "max_tokens", "min_tokens", "stop", "banned_strings")  # settings of the request, not of samplers

ConfiguredVectors: TypeAlias = list[Vector]


class ConfiguredChat(Told):
    """message: the text of the answer; choices: with n above 1 all texts, of which message is the first.

    configuration: the prompt, and each setting that was used, by the client's name for it.
    """

    message: str
    choices: NotRequired[list[str]]
    configuration: dict[str, Any]


class ConfiguredTexts(Told):
    """configuration: the prompt, and each setting that was used, by the client's name for it."""

    choices: list[str]
    configuration: dict[str, Any]


def merged(body: Json) -> Json:
    """The body with the fields of its configuration beside it, where those of other dialects stand."""
    configuration = body.get("configuration") or {}
    if not isinstance(configuration, dict):
        raise wrong("configuration", configuration, "an object of request fields")
    return {**body, **configuration, "configuration": configuration}


def refuse_unknown(fields: Mapping[str, Any], known: Collection[str]) -> None:
    """RequestError if a field that is given is none of these."""
    for name in [name for name, value in fields.items() if value is not None and name not in known]:
        raise RequestError(unknown_field(name, known), param=name)


class Answer(Reply):
    """The answer of /complete; `fields` are merged."""

    known = READ_HERE
    ours: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, fields: Json, about: ServerInfo) -> None:
        if switch(fields, "stream", False):
            message = (
                "stream is true; this path answers with one body: /v1/events and /v1/chat/completions stream"
            )
            raise RequestError(message, param="stream")
        defaults = replace(about.defaults_of(N, about.defaults.max_tokens, stream=False), strict=True)
        request = request_from(self.beginning(fields), defaults, known=self.known, ours=self.ours)
        super().__init__(request, about, stream=False)
        self._fields = fields
        self._echoed = ""  # the prompt, with echo

    def beginning(self, fields: Json) -> Json:
        """The fields with the prompt or the messages."""
        return fields

    @property
    def prompt(self) -> Any:
        """The prompt as the client gave it."""
        return self._fields.get("prompt")

    @property
    def configuration(self) -> Json:
        """The settings of the client, then all that were set elsewhere, or act by default.

        A request with them gives the same texts: a seed that was drawn is one of them.
        """
        given = {
            name: value
            for name, value in self._fields.items()
            if value is not None and name not in NO_SETTINGS
        }
        named = {CANONICAL.get(name, name): name for name in given}
        if self.start is not None and given.get(named.get("seed", "seed"), -1) in NO_SEEDS:
            given[named.get("seed", "seed")] = self.start.seed
        sampling = self.request.sampling
        used = {**{name: getattr(self.request, name) for name in OWN}, **sampling.model_dump(mode="json")}
        more = {
            name: value
            for name, value in used.items()
            if name not in named
            and name != "seed"
            and (name in sampling.model_fields_set or _acts(name, value))
        }
        prompt = {} if self.prompt is None else {"prompt": self.prompt}
        return {**prompt, **given, **more}

    @property
    def choices(self) -> list[str]:
        return [self._echoed + self.texts[i].text for i in self.ordered]

    def take(self, events: Iterable[Event]) -> None:
        events = list(events)
        self._echoed += "".join(event.text for event in events if isinstance(event, Prompt))
        super().take(events)

    def body(self) -> Any:
        answer: ConfiguredTexts = {"choices": self.choices, "configuration": self.configuration}
        return {**answer, **self.told}


def _acts(name: str, value: object) -> bool:
    """Whether a setting with this value changes anything; those whose neutral value is unknown: n."""
    neutral = ROWS[name].neutral
    if neutral is None:
        return name in ("n", "max_tokens")
    return value != neutral and value not in ((), [])


class ChatAnswer(Answer):
    """The answer of /chat."""

    known = READ_HERE | {"message"}
    # The engine would repeat the prompt as the model's template writes it.
    ours: Mapping[str, Any] = MappingProxyType({"echo": False})

    def beginning(self, fields: Json) -> Json:
        """`prompt` or `message` is one turn of the user, a text or an object, after `messages` if given."""
        given = [name for name in TURNS if fields.get(name) is not None]
        if len(given) > 1:
            raise RequestError("only one of prompt and message may be given", param="message")
        if not given and fields.get("messages") is None:
            raise RequestError("message is missing, and prompt and messages are, too", param="message")
        earlier = fields.get("messages") or []
        if not isinstance(earlier, list):
            raise wrong("messages", earlier, "a list of messages")
        turns = [_turn(name, fields[name]) for name in given]
        return {**fields, "prompt": None, "messages": [*earlier, *turns]}

    @property
    def prompt(self) -> Any:
        earlier = self._fields.get("messages") or []
        turns = [self._fields[name] for name in TURNS if self._fields.get(name) is not None]
        if not earlier and isinstance(turns[0], str):
            return turns[0]
        return [*earlier, *(_turn("message", turn) for turn in turns)]

    def body(self) -> Any:
        texts = self.choices
        if switch(self._fields, "echo", False):
            texts = [self._asked + text for text in texts]
        answer: ConfiguredChat = {"message": texts[0], "configuration": self.configuration}
        if self.request.n > 1:
            answer["choices"] = texts
        return {**answer, **self.told}

    @property
    def _asked(self) -> str:
        """The text of the last turn; empty if it has no text."""
        prompt = self.prompt
        last = prompt if isinstance(prompt, str) else prompt[-1].get("content")
        return last if isinstance(last, str) else ""


def _turn(name: str, value: object) -> Json:
    if not isinstance(value, str | dict):
        raise wrong(name, value, "a text, or an object with role and content")
    return {"role": "user", "content": value} if isinstance(value, str) else value


REPLIES: Mapping[str, Any] = {"/complete": Answer, "/chat": ChatAnswer}
