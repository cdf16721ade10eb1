"""A request as data, one row a field: name, default, bounds, aliases, meaning, group, neutral value.

The rows are the fields of `Sampling` and `CompletionRequest`; validation, `/v1/samplers`, the documentation
and the command line all read them. Knows neither HTTP nor the engine process.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import starmap
from typing import Annotated, Any, Literal, NewType, TypeAlias, TypeVar

import orjson
from annotated_types import Ge, Le
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

INT32_MAX = 2**31 - 1
RANDOM_SEED = 2**32 - 1  # llama.cpp's LLAMA_DEFAULT_SEED, "draw one"
MAX_LOGPROBS = 100
MAX_TEXTS, MAX_TEXT_BYTES = 1024, 4096  # of stop, breakers, ... and of one of them: the engine's limits
MAX_BIAS = 1e9
MAX_INDEX = 100_000  # of a sequence: the engine's limit
MAX_MESSAGES = 10_000
MAX_ADAPTERS = 1024
MAX_ADAPTER_SCALE = 100  # the engine's limit
MAX_EMBEDDED = 2048  # texts of one request: OpenAI's limit, and the engine's
MAX_SCORED = 1024  # texts of one request: the engine's limit
MAX_PROMPTS = 256  # of one request
MAX_WARNINGS = 16  # finding the nearest name takes a millisecond; a body may hold a million unknown ones

SAMPLER_NAMES = (
    "penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature",
    "adaptive_p", "infill",
)  # fmt: skip
DEFAULT_SAMPLERS = SAMPLER_NAMES[:9]
DEFAULT_BREAKERS = ("\n", ":", '"', "*")


class RequestError(Exception):
    """The client asked for what cannot be; the message names field, value and bound; status is HTTP's."""

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        status: int = 400,
        code: str | None = None,
        retry_after: int | None = None,  # seconds until it may go better
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.status = status
        self.code = code
        self.retry_after = retry_after


# ----------------------------------------------------------------------------------------------------
# How a value reads
# ----------------------------------------------------------------------------------------------------


def _shown(value: object) -> str:
    """A value as JSON would write it, cut short: an error must not repeat a prompt."""
    if isinstance(value, list | tuple | dict) and len(value) > 8:
        return f"a{'n object' if isinstance(value, dict) else ' list'} of {len(value)}"
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def wrong(name: str, value: object, wanted: str, param: str | None = None) -> RequestError:
    """Says what a field is and what it must be."""
    return RequestError(f"{name} is {_shown(value)}; it must be {wanted}", param=param or name)


def whole(name: str, value: object, low: int, high: int) -> int:
    """A whole number within bounds; 8.0 is one, true is none."""
    value = int(value) if isinstance(value, float) and value.is_integer() else value
    bounds = f"between {low} and {high}"
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong(name, value, f"a whole number {bounds}")
    if not low <= value <= high:
        raise wrong(name, value, bounds)
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_token(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INT32_MAX


def _token_id(value: object) -> object:
    """A text of digits as its number; int() itself refuses thousands of digits, so only few are looked at."""
    if isinstance(value, str) and len(value) <= 10 and value.isascii() and value.isdecimal():
        return int(value)
    return value


def is_tokens(value: Iterable[object]) -> bool:
    """Whether each of them can be a token id."""
    return all(map(_is_token, value))


def is_text(value: object) -> bool:
    """A str without lone surrogates, which no UTF-8 can carry."""
    return isinstance(value, str) and (value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value))


# ----------------------------------------------------------------------------------------------------
# Values that come in several shapes, each brought to one
# ----------------------------------------------------------------------------------------------------


def _prompt(value: object) -> object:
    if isinstance(value, str):
        if not is_text(value):
            raise RequestError("prompt holds a lone surrogate, which is no character", param="prompt")
        return value
    if isinstance(value, list | tuple) and value and is_tokens(value):
        return tuple(value)
    raise wrong("prompt", value, "a text or a list of token ids")


def _texts(name: str) -> Callable[[object], object]:
    """A text or a list of texts; empty ones are dropped, since an empty text would match everywhere."""

    def normalise(value: object) -> tuple[str, ...]:
        items: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
        if not all(map(is_text, items)):
            raise wrong(name, value, "a text or a list of texts")
        if len(items) > MAX_TEXTS:
            raise RequestError(f"{name} has {len(items)} texts; it may have {MAX_TEXTS}", param=name)
        if (longest := max((len(item.encode()) for item in items), default=0)) > MAX_TEXT_BYTES:
            raise RequestError(
                f"{name} has a text of {longest} bytes; it may have {MAX_TEXT_BYTES}", param=name
            )
        return tuple(item for item in items if item)

    return normalise


def _breakers(value: object) -> object:
    """A list of texts; or the same as a JSON string; or the inside of one: `"\\n", ":"`; or `a,b`."""
    if isinstance(value, str) and not set(value) & set('["'):
        value = value.split(",")
    if isinstance(value, str):
        try:
            value = json.loads(value if value.lstrip().startswith("[") else f"[{value}]")
        except (ValueError, RecursionError):
            raise wrong(
                "dry_sequence_breakers", value, 'a list of texts, or one as text: "\\n", ":"'
            ) from None
    if not isinstance(value, list | tuple):
        raise wrong("dry_sequence_breakers", value, "a list of texts")
    return _texts("dry_sequence_breakers")(value)


SAMPLER_CHARS = dict(zip("edskypmxtai", SAMPLER_NAMES, strict=True))  # llama.cpp: common_sampler_type_to_chr
SAMPLER_ALIASES = {
    "typical_p": "typ_p", "typical": "typ_p", "typ": "typ_p", "temp": "temperature", "nucleus": "top_p",
    "dynamic_temperature": "temperature", "repetition_penalty": "penalties", "presence_penalty": "penalties",
    "frequency_penalty": "penalties",
}  # fmt: skip
SAMPLER_SPELLINGS = (
    {name.replace("_", gap): name for name in SAMPLER_NAMES for gap in ("_", "-", "")}
    | SAMPLER_ALIASES
)  # fmt: skip
# Steps that other servers have between theirs; their own fields say in `warnings` that they do nothing here.
FOREIGN_SAMPLERS = frozenset({
    "quadratic_sampling", "epsilon_cutoff", "eta_cutoff", "tfs", "top_a", "mirostat", "skew",
    "encoder_repetition_penalty", "no_repeat_ngram", "tail_free_sampling", "tfs_z",
})  # fmt: skip


def _sampler_name(item: object) -> str:
    name = SAMPLER_SPELLINGS.get(item.lower()) if isinstance(item, str) else None
    if name is None:
        raise wrong("samplers", item, "one of " + ", ".join(SAMPLER_NAMES))
    return name


def _samplers(value: object) -> object:
    """Names, or llama.cpp's letters in one text."""
    if (
        isinstance(value, str)
        and value
        and set(value) <= SAMPLER_CHARS.keys()
        and value not in SAMPLER_SPELLINGS
    ):
        return tuple(SAMPLER_CHARS[letter] for letter in value)
    if isinstance(value, str):
        value = [part for part in value.replace(";", " ").replace(",", " ").split() if part]
    if not isinstance(value, list | tuple):
        raise wrong("samplers", value, "a list of sampler names")
    return tuple(_sampler_name(item) for item in value if str(item) not in FOREIGN_SAMPLERS)


def _bias_entry(key: object, bias: object) -> tuple[int | str, float | bool]:
    key = _token_id(key)
    if not (_is_token(key) or (isinstance(key, str) and key and is_text(key))):
        raise RequestError(
            f"logit_bias names {_shown(key)}; it must be a token id or a text", param="logit_bias"
        )
    assert isinstance(key, int | str)
    if bias is False:
        return key, False
    if not (isinstance(bias, int | float) and _is_number(bias) and abs(bias) <= MAX_BIAS):
        raise wrong(
            f"logit_bias for {_shown(key)}", bias, "a number between -1e9 and 1e9, or false", "logit_bias"
        )
    return key, float(bias)


def _logit_bias(value: object) -> object:
    """{id: bias}, or [[id | text, bias | false], …]; false bans the token."""
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list | tuple) or not all(
        isinstance(p, list | tuple) and len(p) == 2 for p in pairs
    ):
        raise wrong("logit_bias", value, "an object {id: bias} or a list of [id or text, bias or false]")
    return tuple(_bias_entry(key, bias) for key, bias in pairs)


@dataclass(frozen=True, slots=True)
class SequenceName:
    """A sequence, running or over; at: only its first tokens, so many. Without id: of the request at hand."""

    index: int
    at: int | None = None
    id: str = ""

    def fields(self) -> dict[str, Any]:
        """As the engine reads it."""
        given = {"id": self.id} if self.id else {}
        return given | {"index": self.index} | ({} if self.at is None else {"at": self.at})


def _sequence_name(name: str, *, with_id: bool) -> Callable[[object], object]:
    """{"id", "index", "at"}; null is absent, and an id may be as OpenAI's answers write it: cmpl-…"""
    known = ("id", "index", "at") if with_id else ("index", "at")

    def normalise(value: object) -> object:
        if value is None or isinstance(value, SequenceName):
            return value
        if not isinstance(value, dict):
            raise wrong(name, value, "an object: " + ", ".join(known))
        given = {key: one for key, one in value.items() if one is not None}
        for key in [key for key in given if key not in known]:
            raise RequestError(f"{name} has no field {_shown(key)}, only {', '.join(known)}", param=name)
        for key in [key for key in known[:-1] if key not in given]:
            raise RequestError(f"{name}.{key} is missing", param=f"{name}.{key}")
        id = plain_id(f"{name}.id", given["id"]) if with_id else ""
        at = whole(f"{name}.at", given["at"], 0, INT32_MAX) if "at" in given else None
        return SequenceName(whole(f"{name}.index", given["index"], 0, MAX_INDEX), at, id)

    return normalise


_continued = _sequence_name("continue", with_id=True)


def plain_id(name: str, value: object) -> str:
    """An id of ours: that of the start event, or the same behind OpenAI's `cmpl-` or `chatcmpl-`."""
    id = value.removeprefix("chat").removeprefix("cmpl-") if isinstance(value, str) and is_text(value) else ""
    if not id:
        raise wrong(name, value, "the id of a request")
    return id


def _structure_text(name: str) -> Callable[[object], object]:
    """A grammar or a regular expression; an empty one is none, as other servers have it."""

    def normalise(value: object) -> object:
        if value is not None and not is_text(value):
            raise wrong(name, value, "a text")
        return value or None

    return normalise


def _schema(value: object) -> object:
    """A JSON schema as JSON, which keeps the order of its properties: they are written in this order."""
    if value == "":  # none, as an empty grammar is
        return None
    if isinstance(value, str) and is_text(value):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            where = f"line {error.lineno}, column {error.colno}"
            raise RequestError(f"json_schema: {where}: {error.msg}", param="json_schema") from None
    if value is not None and not isinstance(value, dict):
        raise wrong("json_schema", value, "an object, or one as text")
    return None if value is None else _as_json("json_schema", value)


def _as_json(name: str, value: object) -> str:
    """As JSON, which keeps the order of keys."""
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError as error:  # from Python, or a number or a character that JSON has not
        raise RequestError(f"{name} is no JSON: {error}", param=name) from None


def _from_json(value: object) -> object:
    """What may be given as JSON in a text; a text that is none stays, to be refused."""
    try:
        return orjson.loads(value) if isinstance(value, str) and is_text(value) else value
    except orjson.JSONDecodeError:
        return value


_OF_A_MESSAGE = ("role", "content", "reasoning_content", "tool_calls", "tool_call_id", "name")


def _messages(value: object) -> object:
    """Each with a role and a text, or parts of type text; what else clients say of one is dropped."""
    if value is None:
        return None
    value = _from_json(value)
    if not isinstance(value, list | tuple) or not value:
        raise wrong("messages", value, "a list of messages, at least one")
    if len(value) > MAX_MESSAGES:
        raise RequestError(f"messages has {len(value)}; it may have {MAX_MESSAGES}", param="messages")
    return _as_json("messages", [_message(f"messages[{i}]", one) for i, one in enumerate(value)])


def _message(name: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise wrong(name, value, "an object: role, content", "messages")
    message = {key: value[key] for key in _OF_A_MESSAGE if value.get(key) is not None}
    if not isinstance(message.get("role"), str):
        raise wrong(f"{name}.role", message.get("role"), "a text", "messages")
    content = message.setdefault("content", "")
    if not isinstance(content, str | list):
        raise wrong(f"{name}.content", content, "a text or a list of parts of type text", "messages")
    for part in content if isinstance(content, list) else ():
        if not (isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)):
            raise wrong(f"{name}.content", part, "a part of type text: there are no others here", "messages")
    return message


def _tools(value: object) -> object:
    """Functions by name; an empty list is none."""
    value = _from_json(value)
    if value in (None, [], ()):
        return None
    if not isinstance(value, list | tuple) or not all(map(_tool_name, value)):
        raise wrong("tools", value, 'a list of {"type": "function", "function": {"name", …}}')
    return _as_json("tools", value)


def _tool_name(tool: object) -> str | None:
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else None


def _kwargs(value: object) -> object:
    if value is None:
        return None
    value = _from_json(value)
    if not isinstance(value, dict):
        raise wrong("chat_template_kwargs", value, "an object")
    return _as_json("chat_template_kwargs", value)


def _choices(value: object) -> object:
    """Unlike stop strings, none may be empty, and there must be one."""
    if value in ("", [], ()) or (isinstance(value, list | tuple) and not all(value)):
        raise wrong("choice", value, "a list of texts, at least one, none of them empty")
    return None if value is None else _texts("choice")(value)


def _one_of(name: str, names: tuple[str, ...]) -> Callable[[object], object]:
    """One of some names."""

    def normalise(value: object) -> object:
        if value is not None and value not in names:
            raise wrong(name, value, "one of " + ", ".join(names))
        return value

    return normalise


def lora_scales(value: object) -> object:
    """[{"id", "scale"}]: so much of these adapters, and nothing of the others; scale is 1 unless given."""
    if value is None:
        return None
    if not isinstance(value, list | tuple) or len(value) > MAX_ADAPTERS:
        raise wrong("lora", value, f"a list of up to {MAX_ADAPTERS} objects {{id, scale}}")
    return tuple(starmap(_lora_scale, enumerate(value)))


def _lora_scale(place: int, entry: object) -> tuple[int, float]:
    if isinstance(entry, tuple):
        return entry
    if not isinstance(entry, dict) or "id" not in entry or entry.keys() - {"id", "scale"}:
        raise wrong(f"lora[{place}]", entry, "an object {id, scale}", "lora")
    scale = 1.0 if entry.get("scale") is None else entry["scale"]
    if not _is_number(scale) or abs(scale) > MAX_ADAPTER_SCALE:
        bounds = f"a number between -{MAX_ADAPTER_SCALE} and {MAX_ADAPTER_SCALE}"
        raise wrong(f"lora[{place}].scale", scale, bounds, "lora")
    return whole(f"lora[{place}].id", entry["id"], 0, MAX_ADAPTERS - 1), float(scale)


def lora_fields(scales: LoraScales | None) -> dict[str, Any]:
    """As the engine reads it; None leaves the adapters as they were loaded."""
    return {} if scales is None else {"lora": [{"id": id, "scale": scale} for id, scale in scales]}


def _logprobs_mode(value: object) -> object:
    """Also as vLLM has it: raw_logprobs, processed_logprobs."""
    mode = value.removesuffix("_logprobs") if isinstance(value, str) else value
    if mode not in ("raw", "processed"):
        raise wrong("logprobs_mode", value, '"raw" or "processed"')
    return mode


Texts: TypeAlias = tuple[str, ...]
LoraScales: TypeAlias = tuple[tuple[int, float], ...]
LogprobsMode: TypeAlias = Literal["raw", "processed"]
SchemaText = NewType("SchemaText", str)
MessagesText = NewType("MessagesText", str)
ToolsText = NewType("ToolsText", str)
ObjectText = NewType("ObjectText", str)
ToolChoice = NewType("ToolChoice", str)
TOOL_CHOICES = ("auto", "none", "required")
REASONING_FORMATS = ("auto", "none", "deepseek", "deepseek-legacy")
LogitBias: TypeAlias = tuple[tuple[int | str, float | bool], ...]


# ----------------------------------------------------------------------------------------------------
# The rows
# ----------------------------------------------------------------------------------------------------


def _row(
    default: Any,
    group: str,
    meaning: str,
    *,
    aliases: str = "",
    neutral: Any = None,
    **bounds: Any,
) -> Any:
    """One field. neutral is the value at which it does nothing; bounds are ge and le."""
    extra = {"group": group, "aliases": aliases.split(), "neutral": neutral}
    return Field(default, description=meaning, json_schema_extra=extra, **bounds)


class _Row(BaseModel):
    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, populate_by_name=True
    )


class Sampling(_Row):
    """The settings of one sequence's samplers; names and defaults are llama.cpp's (common/common.h)."""

    # fmt: off
    temperature: float = _row(0.8, "temperature", ge=0, le=100, neutral=1, aliases="temp",
        meaning="Randomness of each draw; 0 always takes the most probable token.")
    dynatemp_range: float = _row(0.0, "temperature", ge=0, le=100, neutral=0,
        meaning="Entropy moves the temperature by up to this much, up and down.")
    dynatemp_exponent: float = _row(1.0, "temperature", ge=0, le=100, neutral=1,
        meaning="How entropy maps to temperature within dynatemp_range.")
    top_k: int = _row(40, "truncation", ge=-1, le=INT32_MAX, neutral=0,
        meaning="Keep the k most probable tokens; 0 or -1 keeps all.")
    top_p: float = _row(0.95, "truncation", ge=0, le=1, neutral=1,
        meaning="Keep the smallest set of tokens that has this much probability together.")
    min_p: float = _row(0.05, "truncation", ge=0, le=1, neutral=0,
        meaning="Keep tokens of at least this share of the most probable one's probability.")
    typical_p: float = _row(1.0, "truncation", ge=0, le=1, neutral=1, aliases="typical typ_p",
        meaning="Keep tokens of typical surprise, up to this much probability together.")
    top_n_sigma: float = _row(-1.0, "truncation", ge=-1, le=100, neutral=-1, aliases="nsigma",
        meaning="Keep logits within this many standard deviations of the best; 0 or -1 is off.")
    xtc_probability: float = _row(0.0, "truncation", ge=0, le=1, neutral=0,
        meaning="Chance at each token to remove the most probable ones (XTC).")
    xtc_threshold: float = _row(0.1, "truncation", ge=0, le=1,
        meaning="XTC removes all but the last of the tokens at least this probable; above 0.5 is off.")
    adaptive_target: float = _row(-1.0, "adaptive", ge=-1, le=1, neutral=-1, aliases="adaptive_p",
        meaning="Select tokens near this probability (adaptive-p); below 0 is off.")
    adaptive_decay: float = _row(0.9, "adaptive", ge=0, le=0.99,
        meaning="How long adaptive-p remembers: about 1 / (1 - decay) tokens.")
    repeat_penalty: float = _row(1.0, "repetition", ge=0.01, le=100, neutral=1,
        aliases="repetition_penalty rep_pen",
        meaning="Divide the logits of tokens that occurred lately by this.")
    repeat_last_n: int = _row(64, "repetition", ge=-1, le=INT32_MAX, neutral=0,
        aliases="rep_pen_range repetition_penalty_range penalty_range repetition_range",
        meaning="Tokens that the penalties look back on; 0 is off, -1 the whole context.")
    presence_penalty: float = _row(0.0, "repetition", ge=-100, le=100, neutral=0,
        meaning="Subtract this from the logits of tokens that occurred lately.")
    frequency_penalty: float = _row(0.0, "repetition", ge=-100, le=100, neutral=0,
        meaning="Subtract this for every time that the token occurred lately.")
    dry_multiplier: float = _row(0.0, "repetition", ge=0, le=100, neutral=0,
        meaning="Strength of DRY, which penalises tokens that would go on a repetition.")
    dry_base: float = _row(1.75, "repetition", ge=0, le=100,
        meaning="DRY's penalty grows by this factor per repeated token; below 1 is off.")
    dry_allowed_length: int = _row(2, "repetition", ge=0, le=INT32_MAX,
        meaning="Repetitions up to this many tokens cost nothing under DRY.")
    dry_penalty_last_n: int = _row(64, "repetition", ge=-1, le=INT32_MAX, neutral=0, aliases="dry_range",
        meaning="Tokens that DRY looks back on; 0 is off, -1 the whole context.")
    dry_sequence_breakers: Annotated[Texts, BeforeValidator(_breakers)] = _row(DEFAULT_BREAKERS, "repetition",
        meaning='Texts at which DRY\'s repetitions end: a list, or in one string JSON, "\\n", ":" or a,b.')
    mirostat: int = _row(0, "mirostat", ge=0, le=2, neutral=0, aliases="mirostat_mode",
        meaning="Hold the surprise steady instead of truncating: 1 Mirostat, 2 Mirostat 2.0.")
    mirostat_tau: float = _row(5.0, "mirostat", ge=0, le=100,
        meaning="Mirostat's target surprise.")
    mirostat_eta: float = _row(0.1, "mirostat", ge=0, le=100,
        meaning="Mirostat's learning rate.")
    seed: int = _row(-1, "other", ge=-1, le=RANDOM_SEED, neutral=-1, aliases="sampler_seed",
        meaning="Sequence i draws with seed + i, or by a code made of both (diversity); -1 takes a random "
        "seed, which the start event tells.")
    min_keep: int = _row(0, "other", ge=0, le=INT32_MAX, neutral=0,
        meaning="Truncating samplers leave at least this many tokens.")
    ignore_eos: bool = _row(False, "other", neutral=False, aliases="ban_eos_token use_default_badwordsids",
        meaning="Never end by a stop token.")
    logit_bias: Annotated[LogitBias, BeforeValidator(_logit_bias)] = _row((), "other", neutral=[],
        meaning="Added to logits: {id: bias} or [[id or text, bias or false], …]; false bans the token.")
    samplers: Annotated[Texts, BeforeValidator(_samplers)] = _row(DEFAULT_SAMPLERS, "other",
        meaning="The samplers in their order: names, or llama.cpp's letters (edskypmxt).")
    # fmt: on


class Override(Sampling):
    """What one sequence has otherwise than its request; only fields that are set count."""

    max_tokens: int = Field(-1, ge=-1, le=INT32_MAX)
    min_tokens: int = Field(0, ge=0, le=INT32_MAX)
    stop: Annotated[Texts, BeforeValidator(_texts("stop"))] = ()
    banned_strings: Annotated[Texts, BeforeValidator(_texts("banned_strings"))] = ()


def _given(sampling: Sampling) -> dict[str, Any]:
    """The fields that were set, as JSON; a random seed is one that the engine is not told."""
    fields = sampling.model_dump(mode="json", exclude_unset=True)
    return {name: value for name, value in fields.items() if name != "seed" or value not in (-1, RANDOM_SEED)}


STRUCTURES = ("grammar", "json_schema", "regex", "choice")
DIVERSITIES, FIRST_TOKENS = ("none", "arithmetic"), ("any", "distinct")
RANKINGS = ("logprob", "typical", "diversity")
SAME_DISTRIBUTION = frozenset({"max_tokens", "stop", "seed"})
"""What a sequence may have of its own when the n are coupled."""
CHAT = (
    "messages", "tools", "tool_choice", "parallel_tool_calls", "reasoning_format", "enable_thinking",
    "chat_template_kwargs", "add_generation_prompt", "continue_final_message",
)  # fmt: skip


class CompletionRequest(_Row):
    """One prompt, n sequences."""

    # fmt: off
    prompt: Annotated[str | tuple[int, ...], BeforeValidator(_prompt)] = _row("", "request",
        meaning="The text to continue, or its token ids. With continue: what follows that, perhaps nothing.")
    continue_: Annotated[SequenceName | None, BeforeValidator(_continued)] = _row(
        None, "request", alias="continue",
        meaning="Go on from a sequence of an earlier request, exactly: {id, index, at}; at: only its first "
        "tokens, so many.")
    n: int = _row(8, "request", ge=1, aliases="n_cmpl",
        meaning="How many continuations.")
    max_tokens: int = _row(128, "request", ge=-1, le=INT32_MAX,
        aliases="n_predict max_completion_tokens max_length max_new_tokens num_predict",
        meaning="Tokens per sequence; -1 until the end or the context's limit, 0 only scores the prompt.")
    min_tokens: int = _row(0, "request", ge=0, le=INT32_MAX, neutral=0, aliases="min_length min_new_tokens",
        meaning="No stop token before this many tokens.")
    stop: Annotated[Texts, BeforeValidator(_texts("stop"))] = _row((), "request", neutral=[],
        aliases="stop_sequence stopping_strings",
        meaning="A sequence ends where one of these texts would begin; they are never streamed.")
    timeout: float | None = _row(None, "request", ge=0, le=86400, neutral=0,
        meaning="Seconds that it may take, waiting included; then what has come stays, and finish_reason is "
        "timeout. 0 is no limit.")
    sampling: Sampling = _row(Sampling(), "request",
        meaning="The sampling fields, which stand in the body itself.")
    sequences: tuple[Override, ...] = _row((), "request", neutral=[],
        meaning="One object per continuation: sampling fields, stop, max_tokens, … of its own.")
    logprobs: int | None = _row(None, "request", ge=0, le=MAX_LOGPROBS, aliases="n_probs",
        meaning="Log-probabilities of each token and of this many alternatives.")
    logprobs_mode: Annotated[LogprobsMode, BeforeValidator(_logprobs_mode)] = _row("raw", "request",
        meaning="raw: before the samplers; processed: of what they left, as the token was drawn from it.")
    echo: bool = _row(False, "request", neutral=False,
        meaning="The text begins with the prompt.")
    cache: bool = _row(True, "request", aliases="cache_prompt",
        meaning="Use and keep the computed prompt.")
    banned_strings: Annotated[Texts, BeforeValidator(_texts("banned_strings"))] = _row((), "request",
        neutral=[], aliases="bad_words",
        meaning="Phrases that never appear: sampling steps back when one completes.")
    lora: Annotated[LoraScales | None, BeforeValidator(lora_scales)] = _row(None, "request",
        meaning="Adapters by id, of those that --lora loads: [{id, scale}, …], the others not at all; "
        "not given: as they were loaded.")
    grammar: Annotated[str | None, BeforeValidator(_structure_text("grammar"))] = _row(None, "structure",
        aliases="grammar_string guided_grammar ebnf", neutral="",
        meaning="What each text must be, in GBNF; the rule root is the whole text.")
    json_schema: Annotated[SchemaText | None, BeforeValidator(_schema)] = _row(None, "structure",
        aliases="guided_json", neutral="",
        meaning="Each text is JSON that fits this schema, its properties in the schema's order.")
    regex: Annotated[str | None, BeforeValidator(_structure_text("regex"))] = _row(None, "structure",
        aliases="guided_regex regex_pattern", neutral="",
        meaning="Each text as a whole matches this regular expression.")
    choice: Annotated[Texts | None, BeforeValidator(_choices)] = _row(None, "structure",
        aliases="guided_choice",
        meaning="Each text is one of these.")
    diversity: Annotated[str | None, BeforeValidator(_one_of("diversity", DIVERSITIES))] = _row(
        None, "diversity", neutral="none",
        meaning="arithmetic spreads the draws of the n, each still an exact sample; none makes them "
        "independent. The event stream's default is arithmetic, where the settings allow it.")
    first_token: Annotated[str | None, BeforeValidator(_one_of("first_token", FIRST_TOKENS))] = _row(
        None, "diversity", neutral="any",
        meaning="distinct: the n first tokens are drawn without replacement, before any truncation.")
    best_of: int | None = _row(None, "diversity", ge=0, neutral=0,
        meaning="Generate so many and return the n best of them, by rank_by; 0 or 1 is off.")
    rank_by: Annotated[str | None, BeforeValidator(_one_of("rank_by", RANKINGS))] = _row(None, "diversity",
        meaning="Order and scores of the choices: logprob (the mean of its tokens, best first), typical "
        "(nearest the median), diversity (near the median and unlike those before).")
    dedupe: bool = _row(False, "diversity", neutral=False,
        meaning="A text that another choice has is generated again; when streaming it is marked.")
    whole: bool = Field(False, exclude=True)  # the answer is one body
    messages: Annotated[MessagesText | None, BeforeValidator(_messages)] = _row(None, "chat",
        meaning="A chat in place of the prompt, [{role, content}, …], written by the model's chat template; "
        "the texts are answers of the assistant.")
    tools: Annotated[ToolsText | None, BeforeValidator(_tools)] = _row(None, "chat", neutral=[],
        meaning="Functions that an answer may call: [{type: function, function: {name, description, "
        "parameters}}, …], parameters a JSON schema.")
    tool_choice: Annotated[ToolChoice | None, BeforeValidator(_one_of("tool_choice", TOOL_CHOICES))] = _row(
        None, "chat", meaning="auto: the model chooses; required: it must call one; none: it cannot; "
        "{type: function, function: {name}}: it must call this one.")
    parallel_tool_calls: bool | None = _row(None, "chat",
        meaning="Whether an answer may call several; by default if the template can.")
    reasoning_format: Annotated[
        str | None, BeforeValidator(_one_of("reasoning_format", REASONING_FORMATS))
    ] = _row(None, "chat", meaning="auto: what the model thinks stands apart from the text; none: in it.")
    enable_thinking: bool | None = _row(None, "chat",
        meaning="false: the template asks the model not to think, if it can.")
    chat_template_kwargs: Annotated[ObjectText | None, BeforeValidator(_kwargs)] = _row(None, "chat",
        neutral={}, meaning="Variables for the template.")
    add_generation_prompt: bool | None = _row(None, "chat",
        meaning="false: the prompt ends behind the last message, and none of the assistant is begun.")
    continue_final_message: bool | None = _row(None, "chat", neutral=False,
        meaning="The texts go on with the last message, which is the assistant's; the default if it is, and "
        "calls no tool.")
    warnings: tuple[str, ...] = Field((), exclude=True)
    # fmt: on

    @property
    def candidates(self) -> int:
        """How many are generated."""
        return max(self.n, self.best_of or 0)

    @property
    def ranked(self) -> bool:
        return self.rank_by is not None or self.candidates > self.n

    def engine_fields(self) -> dict[str, Any]:
        """The engine's generate command without op and id: only what was given; the defaults are its own."""
        optional = {
            "min_tokens": self.min_tokens,
            "stop": list(self.stop),
            "sampling": _given(self.sampling),
            "sequences": [_given(own) for own in self.sequences] if any(map(_given, self.sequences)) else [],
            "banned_strings": list(self.banned_strings),
        }
        given: dict[str, Any] = {name: value for name, value in optional.items() if value}
        if self.logprobs is not None:
            given["logprobs"] = self.logprobs
            given |= {"logprobs_mode": self.logprobs_mode} if self.logprobs_mode != "raw" else {}
        given |= {name: value for name in STRUCTURES if (value := getattr(self, name)) is not None}
        given |= lora_fields(self.lora)
        given |= {"echo": True} if self.echo else {}
        given |= {} if self.cache else {"cache": False}
        given |= self._diversity_fields()
        return {**self._beginning(), "n": self.candidates, "max_tokens": self.max_tokens, **given}

    def _diversity_fields(self) -> dict[str, Any]:
        given: dict[str, Any] = {"diversity": "arithmetic"} if self.diversity == "arithmetic" else {}
        given |= {"first_token": "distinct"} if self.first_token == "distinct" else {}
        given |= {"sum_logprobs": True} if self.ranked else {}
        return given | ({"dedupe": "again" if self.whole else "mark"} if self.dedupe else {})

    def prompt_fields(self) -> dict[str, Any]:
        """The prompt as the engine reads it."""
        return {"prompt": self.prompt} if isinstance(self.prompt, str) else {"tokens": list(self.prompt)}

    def _beginning(self) -> dict[str, Any]:
        if self.messages is not None:
            return self._chat()
        if self.continue_ is None:
            return self.prompt_fields()
        return {"continue": self.continue_.fields(), **(self.prompt_fields() if self.prompt else {})}

    def _chat(self) -> dict[str, Any]:
        given = {name: value for name in CHAT if (value := getattr(self, name)) is not None}
        if "chat_template_kwargs" in given:
            given["chat_template_kwargs"] = orjson.loads(given["chat_template_kwargs"])
        return given


@dataclass(frozen=True, slots=True)
class Limit:
    """Tokens that prompt and answer may have together, a longer prompt being cut; None is the context.

    name is the client's field for it; head is what the prompt begins with and keeps, up to half of the room.
    """

    name: str
    tokens: int | None = None
    head: str = ""


def limit_of(fields: Mapping[str, Any], *names: str, head: str = "") -> Limit:
    """The limit by the first of these fields that is there; 0 is none."""
    name = next((name for name in names if fields.get(name)), names[0])
    value = fields.get(name)
    return Limit(name, None if value is None else whole(name, value, 0, INT32_MAX) or None, head)


@dataclass(frozen=True, slots=True)
class Row:
    """One field as a table shows it; bounds are inclusive."""

    name: str
    type: str
    default: object
    low: float | None
    high: float | None
    aliases: tuple[str, ...]
    meaning: str
    group: str
    neutral: object

    @property
    def is_number(self) -> bool:
        return self.type in ("int", "float")

    @property
    def bounds(self) -> str:
        """The bounds in words; empty when there are none."""
        if self.low is None:
            return ""
        low, high = (f"{bound:.10g}" for bound in (self.low, math.nan if self.high is None else self.high))
        if self.high is None:
            return f"at least {low}"
        return f"between {low} and {high}"

    @property
    def wanted(self) -> str:
        kind = {"int": "a whole number", "float": "a number", "bool": "true or false"}.get(
            self.type, self.type
        )
        return f"{kind} {self.bounds}".strip()


_TYPES: dict[object, str] = {
    int: "int",
    float: "float",
    bool: "bool",
    str: "text",
    int | None: "int",
    str | None: "text",
    LogprobsMode: "raw or processed",
    LoraScales | None: "adapters",
    Texts: "texts",
    Texts | None: "choices",
    SchemaText | None: "JSON schema",
    bool | None: "bool",
    MessagesText | None: "messages",
    ToolsText | None: "tools",
    ObjectText | None: "JSON object",
    ToolChoice | None: "tool choice",
}
_TYPES |= {
    LogitBias: "biases",
    str | tuple[int, ...]: "text or tokens",
    SequenceName | None: "sequence",
}


def _bound(info: FieldInfo, kind: type[Ge] | type[Le]) -> float | None:
    bounds = (getattr(bound, kind.__name__.lower()) for bound in info.metadata if isinstance(bound, kind))
    return next(map(float, bounds), None)


def _as_row(name: str, info: FieldInfo) -> Row:
    extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    aliases = extra.get("aliases", [])
    assert isinstance(aliases, list)
    return Row(
        name=name,
        type=_TYPES.get(info.annotation, "object"),
        default=None if name == "prompt" else info.default,
        low=_bound(info, Ge),
        high=_bound(info, Le),
        aliases=tuple(map(str, aliases)),
        meaning=info.description or "",
        group=str(extra.get("group", "")),
        neutral=extra.get("neutral"),
    )


def _rows(model: type[BaseModel]) -> dict[str, Row]:
    named = {info.alias or name: info for name, info in model.model_fields.items()}
    return {name: _as_row(name, info) for name, info in named.items() if info.exclude is not True}


SAMPLING_ROWS = _rows(Sampling)
REQUEST_ROWS = {name: row for name, row in _rows(CompletionRequest).items() if name != "sampling"}
ROWS = REQUEST_ROWS | SAMPLING_ROWS
OVERRIDE_ROWS = SAMPLING_ROWS | {
    name: REQUEST_ROWS[name] for name in ("max_tokens", "min_tokens", "stop", "banned_strings")
}
CANONICAL = {spelling: name for name, row in ROWS.items() for spelling in (name, *row.aliases)}


def samplers_table() -> list[dict[str, Any]]:
    """The sampling rows as JSON: `/v1/samplers`, the documentation's tables, the studio's sliders."""
    return [_row_json(row) for row in SAMPLING_ROWS.values()]


def request_table() -> list[dict[str, Any]]:
    """The rows of a request that are not sampling settings, as JSON."""
    return [_row_json(row) for row in REQUEST_ROWS.values()]


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "type": row.type,
        "default": row.default,
        "low": row.low,
        "high": row.high,
        "neutral": row.neutral,
        "aliases": row.aliases,
        "group": row.group,
        "per_choice": row.is_number and row.name in OVERRIDE_ROWS,
        "meaning": row.meaning,
    }


# ----------------------------------------------------------------------------------------------------
# What others have and llama.cpp has not: fine at the value at which it does nothing, else named in warnings
# ----------------------------------------------------------------------------------------------------

UNSUPPORTED: dict[str, tuple[object, ...]] = {
    "top_a": (0,),
    "tfs": (1,),
    "tfs_z": (1,),
    "epsilon_cutoff": (0,),
    "eps_cutoff": (0,),
    "eta_cutoff": (0,),
    "smoothing_factor": (0,),
    "smoothing_curve": (1,),
    "quadratic": (0,),
    "guidance_scale": (1,),
    "negative_prompt": ("",),
    "encoder_repetition_penalty": (1,),
    "no_repeat_ngram_size": (0,),
    "penalty_alpha": (0,),
    "rep_pen_slope": (0, 1),
    "repetition_decay": (0,),
    "skew": (0,),
    "temperature_last": (False,),
    "bypass_eos": (False,),
    "token_healing": (False,),
    "stop_token_ids": ([],),
    "allowed_token_ids": ([],),
    "include_stop_str_in_output": (False,),
    "add_bos_token": (True,),
    "add_special_tokens": (True,),
    "skip_special_tokens": (True,),
    "render_special": (False,),
    "spaces_between_special_tokens": (True,),
    "truncate_prompt_tokens": (-1,),
    "speculative_ngram": (False,),
    "loop_detect_window": (0,),
    "repetition_detection": ({},),
    "t_max_predict_ms": (-1, 0),
    "response_fields": ([],),
    "return_progress": (False,),
    "prompt_logprobs": (0,),
    "length_penalty": (1,),
    "use_beam_search": (False,),
    "do_sample": (True,),
    "early_stopping": (False,),
    "num_beams": (1,),
    "images": ([],),
    "template": ("",),
    "context": ([],),
}

# Fields of other servers that say nothing about the text: how they are to run, and for whom.
HINTS = frozenset({
    "truncation_length", "max_context_length", "num_ctx", "n_ctx", "max_seq_len", "id_slot", "n_keep",
    "n_discard", "n_indent", "t_max_prompt_ms", "genkey", "priority", "request_id", "cache_salt", "user",
    "trim_stop", "return_tokens", "timings_per_token", "sse_ping_interval", "keep_alive", "quiet", "api_type",
    "api_server", "auto_max_new_tokens", "replace_instruct_placeholders", "memory",
    "include_reasoning", "legacy_api", "max_tokens_second", "minimum_message_content_tokens",
})  # fmt: skip

Fields: TypeAlias = dict[str, Any]
Reader: TypeAlias = Callable[[object], Any]
"""Of one field: its value, or RequestError."""


def _convert_dynatemp(fields: Fields) -> None:
    """Lowest and highest temperature become middle and range (SillyTavern, text-generation-webui, Tabby)."""
    enabled = fields.pop("dynamic_temperature", True)
    for low_name, high_name in (
        ("dynatemp_low", "dynatemp_high"),
        ("min_temp", "max_temp"),
        ("dynatemp_min", "dynatemp_max"),
    ):
        low, high = fields.pop(low_name, None), fields.pop(high_name, None)
        for name, value in ((low_name, low), (high_name, high)):
            if value is not None and not (_is_number(value) and 0 <= value <= 100):
                raise wrong(name, value, "a number between 0 and 100")
        if low is None or high is None or low == high or not enabled or fields.get("dynatemp_range"):
            continue
        if low > high:
            raise RequestError(f"{low_name} is {low}; it must be at most {high_name}, {high}", param=low_name)
        fields |= {"temperature": (low + high) / 2, "dynatemp_range": (high - low) / 2}
    if "temp_exponent" in fields:
        fields.setdefault("dynatemp_exponent", fields.pop("temp_exponent"))


def _ban(fields: Fields, name: str, banned: Iterable[object]) -> None:
    """Token ids become logit_bias, texts banned_strings."""
    items = list(banned)
    if not all(_is_token(item) or is_text(item) for item in items):
        raise wrong(name, items, "a list of token ids or texts")
    ids = [(item, False) for item in items if not isinstance(item, str)]
    texts = [item for item in items if isinstance(item, str)]
    if ids:
        fields["logit_bias"] = (*_pairs(fields.get("logit_bias", ())), *ids)
    if texts:
        fields["banned_strings"] = [*_listed(fields.get("banned_strings", ())), *texts]


def _pairs(bias: object) -> tuple[object, ...]:
    pairs = _logit_bias(bias)
    assert isinstance(pairs, tuple)
    return pairs


def _listed(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _convert_bans(fields: Fields) -> None:
    """banned_tokens holds ids (TabbyAPI) or phrases (koboldcpp); custom_token_bans is "1,2" or [1, 2]."""
    if "banned_tokens" in fields:
        _ban(fields, "banned_tokens", _listed(fields.pop("banned_tokens")))
    if "custom_token_bans" in fields:
        bans = fields.pop("custom_token_bans")
        parts = (
            [part.strip() for part in bans.split(",") if part.strip()]
            if isinstance(bans, str)
            else _listed(bans)
        )
        ids = [_token_id(part) for part in parts]
        if not all(map(_is_token, ids)):
            raise wrong("custom_token_bans", bans, 'token ids: [1, 2] or "1,2"')
        _ban(fields, "custom_token_bans", ids)


# koboldcpp's numbers (gpttype_adapter.cpp); 1 top_a and 3 tfs do not exist here, min_p goes with top_p
SAMPLER_ORDER: dict[int, tuple[str, ...]] = {
    0: ("top_k",), 1: (), 2: ("top_p", "min_p"), 3: (), 4: ("typ_p",), 5: ("temperature",), 6: ("penalties",),
}  # fmt: skip


def _convert_sampler_order(fields: Fields) -> None:
    """sampler_order (koboldcpp, numbers) and sampler_priority (text-generation-webui) become samplers."""
    order, priority = fields.pop("sampler_order", None), fields.pop("sampler_priority", None)
    if order is not None and "samplers" not in fields:
        if not isinstance(order, list) or not all(
            _is_token(step) and step in SAMPLER_ORDER for step in order
        ):
            raise wrong("sampler_order", order, "a list of numbers from 0 to 6")
        fields["samplers"] = (
            "dry",
            "top_n_sigma",
            *(name for step in order for name in SAMPLER_ORDER[step]),
            "xtc",
        )
    elif priority is not None and "samplers" not in fields:
        steps = priority.split() if isinstance(priority, str) else _listed(priority)
        known = _samplers(steps)
        assert isinstance(known, tuple)
        fields["samplers"] = tuple(dict.fromkeys(known))


def _convert_no_logprobs(fields: Fields) -> None:
    """n_probs 0 (llama.cpp) and logprobs false (koboldcpp) are none; logprobs 0 is of the token alone."""
    if fields.get("n_probs") == 0 and fields["n_probs"] is not False:
        del fields["n_probs"]
    if fields.get("logprobs") is False:
        del fields["logprobs"]


def _convert_formats(fields: Fields) -> None:
    """response_format (OpenAI) and structured_outputs (vLLM) become the field that they stand for."""
    form = fields.pop("response_format", None)
    if form is not None:
        kind = form.get("type") if isinstance(form, dict) else None
        if kind not in ("text", "json_object", "json_schema"):
            wanted = 'an object whose type is "text", "json_object" or "json_schema"'
            raise wrong("response_format", form, wanted)
        if kind != "text":
            _add_structure(fields, "response_format", "json_schema", _schema_of(form))
    for name, value in _structured_outputs(fields.pop("structured_outputs", None)):
        _add_structure(fields, "structured_outputs", name, value)


def _schema_of(form: Fields) -> object:
    """The schema stands in json_schema.schema (OpenAI's completions) or in schema (llama.cpp)."""
    if form["type"] == "json_object" and form.get("schema") is None:
        return {"type": "object"}
    named = form.get("json_schema")
    schema = named.get("schema") if isinstance(named, dict) else form.get("schema")
    if schema is None:
        raise RequestError("response_format.json_schema.schema is missing", param="response_format")
    return schema


_OUTPUTS = {"json": "json_schema", "regex": "regex", "choice": "choice", "grammar": "grammar"}


def _structured_outputs(given: object) -> list[tuple[str, object]]:
    if given is not None and not isinstance(given, dict):
        raise wrong("structured_outputs", given, "an object: " + ", ".join(_OUTPUTS))
    return [(ours, given[name]) for name, ours in _OUTPUTS.items() if given and given.get(name) is not None]


def _add_structure(fields: Fields, source: str, name: str, value: object) -> None:
    if fields.get(name) is not None:
        raise RequestError(f"only one of {source} and {name} may be given", param=source)
    fields[name] = value


def _convert_tool_choice(fields: Fields) -> None:
    """A function that must be called is the only one of the tools, and required."""
    choice = fields.get("tool_choice")
    if not isinstance(choice, dict):
        return
    name, tools = _tool_name(choice), fields.get("tools")
    named = [tool for tool in tools if _tool_name(tool) == name] if isinstance(tools, list) and name else []
    if not named:
        raise wrong("tool_choice", choice, '"auto", "none", "required" or one of tools by its name')
    fields |= {"tools": named, "tool_choice": "required"}


def _convert_reasoning_effort(fields: Fields) -> None:
    """OpenAI's field: none is enable_thinking false, all else a variable for the template."""
    effort, kwargs = fields.pop("reasoning_effort", None), fields.get("chat_template_kwargs", {})
    if effort is None:
        return
    if not isinstance(effort, str):
        raise wrong("reasoning_effort", effort, "a text")
    if effort == "none":
        fields.setdefault("enable_thinking", False)
    elif isinstance(kwargs, dict):
        fields["chat_template_kwargs"] = {"reasoning_effort": effort, **kwargs}


def _convert_last_message(fields: Fields) -> None:
    """What the assistant has begun it goes on with, unless the client says otherwise: as llama-server."""
    messages = fields.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, dict) or last.get("role") != "assistant":
        return
    begun = last.get("content") and not last.get("tool_calls")
    if begun and not fields.keys() & {"continue_final_message", "add_generation_prompt"}:
        fields["continue_final_message"] = True


def _convert_probs_mode(fields: Fields) -> None:
    """llama.cpp's switch for the same."""
    processed = fields.pop("post_sampling_probs", None)
    if processed is not None and not isinstance(processed, bool):
        raise wrong("post_sampling_probs", processed, "true or false")
    if processed:
        fields.setdefault("logprobs_mode", "processed")


CONVERSIONS: tuple[Callable[[Fields], None], ...] = (
    _convert_dynatemp, _convert_bans, _convert_sampler_order, _convert_no_logprobs, _convert_probs_mode,
    _convert_formats,
    _convert_tool_choice, _convert_reasoning_effort, _convert_last_message,
)  # fmt: skip
# fmt: off
CONVERTED = {  # what CONVERSIONS read, and what becomes of it
    "dynatemp_low": "with dynatemp_high: temperature is their middle, dynatemp_range half their distance",
    "dynatemp_high": "see dynatemp_low",
    "dynatemp_min": "with dynatemp_max: the same",
    "dynatemp_max": "see dynatemp_min",
    "min_temp": "with max_temp: the same",
    "max_temp": "see min_temp",
    "dynamic_temperature": "false: the pairs above are not used",
    "temp_exponent": "dynatemp_exponent",
    "banned_tokens": "token ids: logit_bias false; texts: banned_strings",
    "custom_token_bans": 'token ids, as [1, 2] or "1,2": logit_bias false',
    "sampler_order": "koboldcpp's numbers 0 to 6: samplers",
    "sampler_priority": "text-generation-webui's names: samplers",
    "post_sampling_probs": "true: logprobs_mode processed",
    "response_format": 'json_schema: {"type": "json_object"} becomes that of any object, '
    '{"type": "json_schema", "json_schema": {"schema": …}} that one, {"type": "text"} none',
    "reasoning_effort": "none: enable_thinking false; else in chat_template_kwargs",
    "structured_outputs": "vLLM's json, regex, choice, grammar: json_schema, regex, choice, grammar",
    "preset": "the fields of the preset of that name (/v1/presets), but for what is given besides",
}
# fmt: on
KNOWN_SPELLINGS = (*CANONICAL, *CONVERTED, *UNSUPPORTED, *HINTS)


# ----------------------------------------------------------------------------------------------------
# From a client's fields to a request
# ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a server or a dialect adds to a body: n, max_tokens, diversity, sampling if it has none; largest
    n, how strict; whole: the answer is one body."""

    n: int = 8
    max_tokens: int = 128
    max_n: int = 1024
    strict: bool = False
    diversity: str = "none"
    whole: bool = False
    sampling: Mapping[str, Any] = field(default_factory=dict)  # canonical names
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by name, canonical names too


def parse_body(data: bytes) -> dict[str, Any]:
    """A request's body as an object. RequestError: empty, not UTF-8, not JSON, too deep, not an object."""
    if not data.strip():
        raise RequestError("the body is empty; it must be a JSON object")
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise RequestError(*_why_not_json(data, error)) from None
    if not isinstance(body, dict):
        raise RequestError(f"the body is {_shown(body)}; it must be a JSON object")
    return body


def _why_not_json(data: bytes, error: orjson.JSONDecodeError) -> tuple[str]:
    try:
        body = json.loads(
            data.decode("utf-8")
        )  # more lenient: lets NaN and lone surrogates through to be named
    except UnicodeDecodeError as wrong:
        return (f"the body is not UTF-8 (byte {wrong.start})",)
    except RecursionError:
        return ("the body is nested too deeply",)
    except ValueError:
        return (f"the body is not JSON: {error.msg} (line {error.lineno}, column {error.colno})",)
    if isinstance(body, dict):
        for name, value in body.items():
            _refuse_what_json_has_not(name, value)
    return (
        "the body is nested too deeply" if "ecursion" in error.msg else f"the body is not JSON: {error.msg}",
    )


def _refuse_what_json_has_not(name: str, value: object) -> None:
    """Writing it as strict JSON fails at NaN, Infinity and lone surrogates, however deep they stand."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise RequestError(
            f"{_shown(name)[1:-1]} holds a lone surrogate, which is no character", param=name
        ) from None
    except ValueError:
        raise RequestError(f"{name} is {_shown(value)}; JSON has no such number", param=name) from None


Model = TypeVar("Model", bound=BaseModel)


def request_from(
    body: Mapping[str, Any], defaults: Defaults = Defaults(), *, known: frozenset[str] = frozenset()
) -> CompletionRequest:
    """A client's fields, in any spelling, as a request; known are fields that the dialect has read itself.

    RequestError names the field, its value and its bound. Fields that mean nothing here end up in `warnings`,
    or, when defaults.strict, in a RequestError.
    """
    fields = {name: value for name, value in body.items() if value is not None and name not in known}
    warnings: list[str] = []
    preset = _preset(fields.pop("preset", None), defaults.presets)
    given = {**defaults.sampling, **preset, **_sort(fields, CANONICAL, defaults.strict, warnings)}
    if not given.keys() & {"prompt", "continue", "messages"}:
        raise RequestError("prompt is missing", param="prompt")
    request: Fields = {"n": defaults.n, "max_tokens": defaults.max_tokens, "whole": defaults.whole}
    request |= {name: value for name, value in given.items() if name in REQUEST_ROWS and name != "sequences"}
    request["n"] = n = whole("n", request["n"], 1, defaults.max_n)
    sequences = _sequences(given.pop("sequences", []), n, defaults.strict, warnings)
    sampling = {name: value for name, value in given.items() if name in SAMPLING_ROWS}
    _spread(request, sequences, defaults)
    _spread(sampling, sequences, defaults)
    overrides = enumerate(sequences) if any(sequences) else ()
    request["sequences"] = tuple(_build(Override, own, f"sequences[{i}].") for i, own in overrides)
    request["sampling"] = _build(Sampling, sampling)
    made = _build(CompletionRequest, request | {"warnings": tuple(warnings[:MAX_WARNINGS])})
    _check_min_tokens(made)
    _check_structures(made)
    _check_chat(made)
    _check_best_of(made, defaults.max_n)
    return _coupled(made, defaults.diversity)


def _preset(name: object, presets: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """The fields of a preset; what a body itself says goes before them. "None" is text-generation-webui's."""
    if name in (None, "", "None"):
        return {}
    if not isinstance(name, str) or name not in presets:
        raise wrong("preset", name, "one of " + (", ".join(sorted(presets)) or "none: there are no presets"))
    return presets[name]


def canonical(fields: Mapping[str, Any]) -> Fields:
    """Fields of a preset by their canonical names; RequestError for what no request takes."""
    defaults = Defaults(strict=True)
    request_from({"prompt": "", **fields}, defaults)
    return _sort(dict(fields), CANONICAL, True, [])


def _sort(
    fields: Fields, spellings: Mapping[str, str], strict: bool, warnings: list[str], prefix: str = ""
) -> Fields:
    """Canonical names for what is known, warnings for the rest; a canonical spelling beats its aliases."""
    for convert in CONVERSIONS:
        convert(fields)
    given: Fields = {name: value for name, value in fields.items() if spellings.get(name) == name}
    for name, value in fields.items():
        if strict and name not in spellings and name not in UNSUPPORTED and name not in HINTS:
            raise RequestError(unknown_field(name, spellings), param=name)
        if name in spellings and given.setdefault(spellings[name], value) == value:
            continue
        if len(warnings) < MAX_WARNINGS and (warning := _warning(name, value, fields, spellings)):
            warnings.append(prefix + warning)
    return given


def _warning(name: str, value: object, fields: Fields, spellings: Mapping[str, str]) -> str:
    """Why a field is not used; empty when it would do nothing anyway."""
    if name in spellings:
        return f"{name} is not used, because {spellings[name]} is given too"
    if name in HINTS:
        return ""
    if name not in UNSUPPORTED:
        return unknown_field(name, spellings)
    if _is_neutral(value, UNSUPPORTED[name]):
        return ""
    return f"{name} is {_shown(value)}, but there is no such setting here; it is not used"


def _is_neutral(value: object, neutral: tuple[object, ...]) -> bool:
    return any(value == at and isinstance(value, bool) == isinstance(at, bool) for at in neutral)


def unknown_field(name: str, known: Iterable[str] = KNOWN_SPELLINGS) -> str:
    """Says that a field is not known, and which known one is nearest."""
    nearest = difflib.get_close_matches(name[:100], list(known), n=1)
    return f"{_shown(name)} is not a known field" + (
        f"; did you mean {_shown(nearest[0])}?" if nearest else ""
    )


def read_fields(
    body: Mapping[str, Any], readers: Mapping[str, Reader], *, required: str = "", strict: bool = False
) -> Fields:
    """A small body: each field by its reader, and `warnings` of unknown ones; null is absent."""
    given = {name: value for name, value in body.items() if value is not None}
    unknown = [name for name in given if name not in readers]
    if unknown and strict:
        raise RequestError(unknown_field(unknown[0], readers), param=unknown[0])
    if required and required not in given:
        raise RequestError(f"{required} is missing", param=required)
    warnings = tuple(unknown_field(name, readers) for name in unknown[:MAX_WARNINGS])
    values = {name: read(given[name]) for name, read in readers.items() if name in given}
    return values | {"warnings": warnings}


OVERRIDE_SPELLINGS = {spelling: name for spelling, name in CANONICAL.items() if name in OVERRIDE_ROWS}


def _sequences(value: object, n: int, strict: bool, warnings: list[str]) -> list[Fields]:
    """One dict of overrides per sequence, canonical names; n empty ones when none are given."""
    if not isinstance(value, list | tuple) or not all(isinstance(own, dict) for own in value):
        raise wrong("sequences", value, "a list of objects, one per sequence")
    if value and len(value) != n:
        raise RequestError(f"sequences has {len(value)} entries; it must have n, {n}", param="sequences")
    sequences: list[Fields] = [{} for _ in range(n)]
    for index, own in enumerate(value):
        prefix, given = f"sequences[{index}].", {k: v for k, v in own.items() if v is not None}
        try:
            sequences[index] = _sort(given, OVERRIDE_SPELLINGS, strict, warnings, prefix)
        except RequestError as error:
            raise _prefixed(error, prefix) from None
    return sequences


def _spread(fields: Fields, sequences: list[Fields], defaults: Defaults) -> None:
    """A list where a number stands is one value per sequence; a sequence's own setting goes before it."""
    for name in [name for name in fields if name in OVERRIDE_ROWS and ROWS[name].is_number]:
        values = fields[name]
        if not isinstance(values, list | tuple):
            continue
        if len(values) != len(sequences):
            raise RequestError(
                f"{name} is a list of {len(values)}; it must have n, {len(sequences)}", param=name
            )
        del fields[name]
        if name == "max_tokens":
            fields[name] = defaults.max_tokens
        for own, value in zip(sequences, values, strict=True):
            if value is not None:
                own.setdefault(name, value)


def _build(model: type[Model], fields: Fields, prefix: str = "") -> Model:
    integers = {
        name: int(value)
        if isinstance(value, float) and value.is_integer() and ROWS[name].type == "int"
        else value
        for name, value in fields.items()
        if name in ROWS
    }
    try:
        return model.model_validate(fields | integers)
    except ValidationError as invalid:
        raise _explained(invalid, prefix) from None
    except RequestError as error:
        raise _prefixed(error, prefix) from None


def _prefixed(error: RequestError, prefix: str) -> RequestError:
    return RequestError(prefix + error.message, param=prefix + (error.param or ""), status=error.status)


_OUT_OF_BOUNDS = frozenset({"greater_than_equal", "less_than_equal", "finite_number"})


def _explained(invalid: ValidationError, prefix: str) -> RequestError:
    """pydantic's first complaint in our words."""
    first = invalid.errors(include_url=False)[0]
    name = str(first["loc"][0])
    row = ROWS[name]
    wanted = row.bounds if first["type"] in _OUT_OF_BOUNDS and row.bounds else row.wanted
    return wrong(prefix + name, first["input"], wanted)


def _check_min_tokens(request: CompletionRequest) -> None:
    every: tuple[CompletionRequest | Override, ...] = (request, *request.sequences)
    for limits in every:
        most = limits.max_tokens if "max_tokens" in limits.model_fields_set else request.max_tokens
        least = limits.min_tokens if "min_tokens" in limits.model_fields_set else request.min_tokens
        if least > most >= 0:
            raise RequestError(
                f"min_tokens is {least}; it must be at most max_tokens, {most}", param="min_tokens"
            )


def _check_structures(request: CompletionRequest) -> None:
    given = [name for name in STRUCTURES if getattr(request, name) is not None]
    if len(given) > 1:
        raise RequestError(f"only one of {given[0]} and {given[1]} may be given", param=given[1])


def _check_best_of(request: CompletionRequest, max_n: int) -> None:
    best_of, n = request.best_of, request.n
    if best_of is not None and best_of > 1 and not n <= best_of <= max_n:
        raise wrong("best_of", best_of, f"0, 1, or between n, {n}, and {max_n}")
    if request.candidates > n and request.sequences:
        message = f"best_of is {best_of}, more than the n, {n}, that have settings of their own"
        raise RequestError(message, param="best_of")


def _coupled(request: CompletionRequest, default: str) -> CompletionRequest:
    """The request with its diversity; RequestError when what it asks for cannot be."""
    obstacles = {
        "diversity": _moody(request) or _own_settings(request),
        "first_token": _own_settings(request),
    }
    for name, obstacle in obstacles.items():
        value = getattr(request, name)
        if value in ("arithmetic", "distinct") and obstacle:
            raise RequestError(f'{name} is "{value}", which is not possible with {obstacle}', param=name)
    if request.diversity is not None:
        return request
    return request.model_copy(update={"diversity": "none" if obstacles["diversity"] else default})


def _moody(request: CompletionRequest) -> str:
    """A sampler whose draws depend on more than the text; empty when there is none."""
    sampling = request.sampling
    if sampling.mirostat:
        return "mirostat"
    return "adaptive_p" if sampling.adaptive_target >= 0 or "adaptive_p" in sampling.samplers else ""


def _own_settings(request: CompletionRequest) -> str:
    """A setting that one sequence draws otherwise by; empty when there is none."""
    own = {name for sequence in request.sequences for name in sequence.model_fields_set}
    return f"{min(differing)} of one choice" if (differing := own - SAME_DISTRIBUTION) else ""


def _check_chat(request: CompletionRequest) -> None:
    given = [name for name in CHAT if getattr(request, name) is not None]
    if request.messages is None and given:
        raise RequestError(f"{given[0]} is given without messages", param=given[0])
    for name, value in (("prompt", request.prompt), ("continue", request.continue_)):
        if request.messages is not None and value:
            raise RequestError(f"only one of messages and {name} may be given", param="messages")


# ----------------------------------------------------------------------------------------------------
# More sequences for a request that runs
# ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Extension:
    """So many more sequences, as the others of the request or as forks of one; a later limit for all."""

    add: int = 1
    max_tokens: int | None = None
    fork: SequenceName | None = None
    warnings: tuple[str, ...] = ()

    def engine_fields(self) -> dict[str, Any]:
        """The engine's extend command without op and id."""
        limit = {} if self.max_tokens is None else {"max_tokens": self.max_tokens}
        return {"add": self.add, **limit, **({"fork": self.fork.fields()} if self.fork else {})}


_READERS: dict[str, Reader] = {
    "add": lambda value: whole("add", value, 0, MAX_INDEX),
    "max_tokens": lambda value: whole("max_tokens", value, -1, INT32_MAX),
    "fork": _sequence_name("fork", with_id=False),
}


def extension_from(body: Mapping[str, Any], *, strict: bool = False) -> Extension:
    """A client's fields as an extension; RequestError names what is wrong."""
    values = read_fields(body, _READERS, strict=strict)
    if "max_tokens" in values and "fork" not in values:
        values.setdefault("add", 0)  # a later limit, and nothing else
    return Extension(**values)
