"""A request as data. Each field is one row: name, default, bounds, aliases, meaning, group, neutral value.

The rows are the fields of `Sampling` and `CompletionRequest`. Validation, `/v1/samplers`, the documentation
and the command line are made from them. Knows neither HTTP nor the engine process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal, NewType, TypeAlias

import orjson
from annotated_types import Ge, Le
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.fields import FieldInfo

from llama_srb.request import shapes, steps
from llama_srb.request.finish import (
    MAX_LOOP,
    End,
    Finish,
    Prune,
    Repetition,
    read_end,
    read_finish,
    read_prune,
    read_repetition,
)
from llama_srb.request.phrases import BannedRegex, PhraseBias, read_banned, read_phrases
from llama_srb.request.rank_by import TITLES, RankBy, read_rank_by
from llama_srb.request.sequence_name import SequenceName, continued
from llama_srb.request.shapes import LoraScales, Part, cells_fields
from llama_srb.request.story.parts import Assembled
from llama_srb.request.story.shape import Story, read_story
from llama_srb.request.then import Then, read_then
from llama_srb.request.values import INT32_MAX, MAX_LOGPROBS, whole

RANDOM_SEED = shapes.RANDOM_SEED
NO_SEEDS = (-1, RANDOM_SEED)
DEFAULT_SAMPLERS = (
    "penalties", "encoder_repetition_penalty", "no_repeat_ngram", "dry", "top_n_sigma", "top_k", "top_a",
    "tfs", "typ_p", "epsilon_cutoff", "eta_cutoff", "top_p", "min_p", "xtc", "temperature", "smoothing",
)  # fmt: skip
DEFAULT_BREAKERS = ("\n", ":", '"', "*")

Texts: TypeAlias = tuple[str, ...]
PromptValue: TypeAlias = str | tuple[int, ...] | tuple[Part, ...]
LogprobsMode: TypeAlias = Literal["raw", "processed", "both"]
TokenIds: TypeAlias = tuple[int, ...]
Phrases: TypeAlias = tuple[PhraseBias, ...]
Bans: TypeAlias = tuple[str | BannedRegex, ...]
SchemaText = NewType("SchemaText", str)
TagText = NewType("TagText", str)
MessagesText = NewType("MessagesText", str)
ToolsText = NewType("ToolsText", str)
ObjectText = NewType("ObjectText", str)
ToolChoice = NewType("ToolChoice", str)
TOOL_CHOICES = ("auto", "none", "required")
REASONING_FORMATS = ("auto", "none", "deepseek", "deepseek-legacy")
ForProcessor: TypeAlias = bool | dict[str, Any]
LogitBias: TypeAlias = tuple[tuple[int | str, float | bool], ...]


def _row(
    default: Any,
    group: str,
    meaning: str,
    *,
    title: str = "",
    about: str = "",
    aliases: str = "",
    neutral: Any = None,
    values: Mapping[str, str] | None = None,
    **bounds: Any,
) -> Any:
    """Declares a field. title: its name for writers; neutral: the value without effect; bounds: ge and le.

    about: what it does, for writers, in place of the meaning.
    values: those that a writer may choose, with their names for writers.
    """
    extra: dict[str, Any] = {"group": group, "shown_as": title, "about": about, "aliases": aliases.split()}
    extra |= {"neutral": neutral, "values": dict(values or {})}
    return Field(default, description=meaning, json_schema_extra=extra, **bounds)


@dataclass(frozen=True, slots=True)
class Recalled:
    """A chunk of a memory for a prompt. score: the cosine of its vector and that of the client's text.

    score: None in a memory without vectors. scores: by name, those by which it was found.
    """

    memory: str
    id: str
    document: str
    score: float | None
    text: str
    scores: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ContinueFits:
    """What a sequence that is continued is cut to: a prompt of `room` tokens, whose `head` stays."""

    room: int
    head: str

    def fields(self) -> dict[str, Any]:
        return {"room": self.room, "head": self.head}


class _Row(BaseModel):
    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, populate_by_name=True
    )


MOST_BIASES = 400_000  # of all sequences; more would take the event loop longer than others may wait


class Sampling(_Row):
    """The settings of one sequence's samplers; names and defaults are llama.cpp's (common/common.h).

    Of those that it lacks they are text-generation-webui's, koboldcpp's and TabbyAPI's.
    """

    # fmt: off
    temperature: float = _row(0.8, "temperature", ge=0, le=100, neutral=1, aliases="temp",
        title="Creativity",
        about="How freely words are chosen: low is predictable, high is wild. 0 always takes the likeliest "
        "word.",
        meaning="Randomness of each draw; 0 always takes the most probable token.")
    dynatemp_range: float = _row(0.0, "temperature", ge=0, le=100, neutral=0,
        title="Creativity, how far it varies",
        about="Creativity rises by up to this much where many words would fit, and falls where few do.",
        meaning="Entropy moves the temperature by up to this much, up and down.")
    dynatemp_exponent: float = _row(1.0, "temperature", ge=0, le=100, neutral=1,
        title="Creativity, how fast it varies",
        about="How strongly creativity follows the number of words that fit. 1 is even.",
        meaning="How entropy maps to temperature within dynatemp_range.")
    temperature_last: bool = _row(True, "temperature",
        title="Creativity after the limits",
        about="On: the limits see the model's own odds, and creativity comes last. Off: before them.",
        meaning="true: the temperature and smoothing come behind all other samplers, whatever samplers says; "
        "false: before those that cut, unless samplers is given. Where it is not given, samplers counts.")
    smoothing_factor: float = _row(0.0, "temperature", ge=0, le=100, neutral=0, aliases="quadratic",
        title="Even out likely words",
        about="Brings likely words nearer to each other and sends others away. 0 is off; 0.2 is usual.",
        meaning="Quadratic sampling: a logit d below the best becomes this times d² below it; 0 is off.")
    smoothing_curve: float = _row(1.0, "temperature", ge=0, le=10, neutral=1,
        title="Even out likely words, how steeply the rest falls",
        about="Above 1 unlikely words fall away faster.",
        meaning="c: the distance is (3 - c) / 2 times the square and (c - 1) / 2 times the cube.")
    skew: float = _row(0.0, "temperature", ge=-10, le=10, neutral=0, title="Lean of each choice",
        about="Below 0 each choice leans to the likeliest words, above 0 to the unlikely ones. 0 is off.",
        meaning="Bends each draw: of the words from the likeliest on, a share c of the odds becomes c to the "
        "power of e^skew.")
    do_sample: bool = _row(True, "temperature", neutral=True, title="Choose by chance",
        about="Off: always the likeliest word.",
        meaning="false: the likeliest token after the penalties, whatever other samplers say.")
    top_k: int = _row(40, "truncation", ge=-1, le=INT32_MAX, neutral=0, title="How many likely words",
        about="Only so many of the likeliest words may be chosen. 0 allows all.",
        meaning="Keep the k most probable tokens; 0 or -1 keeps all.")
    top_p: float = _row(0.95, "truncation", ge=0, le=1, neutral=1, title="Share of likely words",
        about="Only the likeliest words, which together have this share of the odds. 1 allows all.",
        meaning="Keep the smallest set of tokens that has this much probability together.")
    min_p: float = _row(0.05, "truncation", ge=0, le=1, neutral=0, title="Leave out unlikely words",
        about="Leaves out words that are far less likely than the likeliest one: 0.1, those with less than "
        "a tenth of its odds. 0 allows all.",
        meaning="Keep tokens of at least this share of the most probable one's probability.")
    typical_p: float = _row(1.0, "truncation", ge=0, le=1, neutral=1, aliases="typical typ_p",
        title="Only words of usual surprise",
        about="Only words that are about as surprising as the text is on average. 1 allows all.",
        meaning="Keep tokens of typical surprise, up to this much probability together.")
    top_n_sigma: float = _row(-1.0, "truncation", ge=-1, le=100, neutral=-1, aliases="nsigma",
        title="Only words near the likeliest",
        about="Only words whose odds are near those of the likeliest one. The smaller the number, the "
        "fewer; -1 is off.",
        meaning="Keep logits within this many standard deviations of the best; 0 or -1 is off.")
    top_a: float = _row(0.0, "truncation", ge=0, le=1, neutral=0, title="Leave out words when one is sure",
        about="Leaves out unlikely words, the more of them the likelier the likeliest word is. 0 allows all.",
        meaning="Keep tokens of at least this times the square of the most probable one's probability.")
    tfs: float = _row(1.0, "truncation", ge=0, le=1, neutral=1, aliases="tfs_z",
        title="Leave out the tail",
        about="Leaves out the words behind the point where the odds level off. 1 allows all; 0.95 is usual.",
        meaning="Tail-free sampling: keep tokens up to this share of the curvature of the sorted "
        "probabilities.")
    epsilon_cutoff: float = _row(0.0, "truncation", ge=0, le=10_000, neutral=0, aliases="eps_cutoff",
        title="Leave out words below certain odds",
        about="Leaves out words with less than so many chances in 10,000. 0 allows all; 3 is usual.",
        meaning="Keep tokens of at least this probability, in units of 1e-4.")
    eta_cutoff: float = _row(0.0, "truncation", ge=0, le=10_000, neutral=0,
        title="Leave out words below odds that vary",
        about="The same, but fewer words go where many would fit. 0 allows all; 3 is usual.",
        meaning="Keep tokens of at least e or √e · exp(-entropy), if that is less; e is this times 1e-4.")
    xtc_probability: float = _row(0.0, "truncation", ge=0, le=1, neutral=0,
        title="Skip the obvious, how often",
        about="How often the most obvious words are left out, so that the text turns elsewhere. 0 is never.",
        meaning="Probability, at each token, of removing the most probable tokens (XTC).")
    xtc_threshold: float = _row(0.1, "truncation", ge=0, le=1, title="Skip the obvious, from which odds",
        about="Words with at least these odds count as obvious; the least likely of them stays. Above 0.5 "
        "it is off.",
        meaning="Of the tokens of at least this probability XTC keeps only the last; above 0.5 is off.")
    adaptive_target: float = _row(-1.0, "adaptive", ge=-1, le=1, neutral=-1, aliases="adaptive_p",
        title="Steady odds",
        about="Prefers words of about these odds, so neither the most obvious ones nor wild ones. Below 0 "
        "it is off.",
        meaning="Select tokens near this probability (adaptive-p); below 0 is off.")
    adaptive_decay: float = _row(0.9, "adaptive", ge=0, le=0.99,
        title="Steady odds, how long it remembers",
        about="How long it looks back to keep to that: nearer to 1 is longer.",
        meaning="How long adaptive-p remembers: about 1 / (1 - decay) tokens.")
    repeat_penalty: float = _row(1.0, "repetition", ge=0.01, le=100, neutral=1,
        aliases="repetition_penalty rep_pen", title="Avoid repeated words",
        about="Makes words that were just used less likely. 1 is off; 1.1 is felt, 1.3 is much.",
        meaning="Divide the logits of recent tokens by this.")
    repeat_last_n: int = _row(64, "repetition", ge=-1, le=INT32_MAX, neutral=0,
        aliases="rep_pen_range repetition_penalty_range penalty_range repetition_range",
        title="Avoid repeated words, how far back",
        about="How far back used words count, in tokens, which are words or parts of words. 0 is off, -1 is "
        "all that the model reads.",
        meaning="How many recent tokens the penalties cover; 0 is off, -1 the whole context.")
    presence_penalty: float = _row(0.0, "repetition", ge=-100, le=100, neutral=0,
        title="Avoid words that occurred",
        about="Makes each word that has occurred less likely, however often it did. 0 is off; below 0 it "
        "becomes likelier.",
        meaning="Subtract this from the logits of recent tokens.")
    frequency_penalty: float = _row(0.0, "repetition", ge=-100, le=100, neutral=0,
        title="Avoid frequent words",
        about="Makes a word the less likely, the more often it has occurred. 0 is off.",
        meaning="Subtract this from a token's logit for each of its recent occurrences.")
    dry_multiplier: float = _row(0.0, "repetition", ge=0, le=100, neutral=0,
        title="Avoid repeated phrases",
        about="Makes it less likely that a phrase is said again word by word. 0 is off; 0.8 is usual.",
        meaning="Strength of DRY, which penalises tokens that would continue a repetition.")
    dry_base: float = _row(1.75, "repetition", ge=0, le=100, title="Avoid repeated phrases, growth",
        about="How fast that grows with the length of the phrase that would be repeated.",
        meaning="DRY's penalty grows by this factor per repeated token; below 1 is off.")
    dry_allowed_length: int = _row(2, "repetition", ge=0, le=INT32_MAX,
        title="Avoid repeated phrases, length allowed",
        about="Phrases of up to so many tokens may be repeated freely.",
        meaning="DRY does not penalise repetitions of up to this many tokens.")
    dry_penalty_last_n: int = _row(64, "repetition", ge=-1, le=INT32_MAX, neutral=0, aliases="dry_range",
        title="Avoid repeated phrases, how far back",
        about="How far back phrases count, in tokens. 0 is off, -1 is all that the model reads.",
        meaning="How many recent tokens DRY covers; 0 is off, -1 the whole context.")
    dry_sequence_breakers: Annotated[Texts, BeforeValidator(shapes.breakers)] = _row(
        DEFAULT_BREAKERS, "repetition", title="Avoid repeated phrases, where they end",
        meaning='Texts that end a repetition for DRY: a list, or one string: JSON, "\\n", ":" or a,b.')
    rep_pen_slope: float = _row(1.0, "repetition", ge=0, le=10, neutral=1,
        title="Avoid repeated words, less what is older",
        about="Of the penalty so much counts in the older half of the range: 0.5 is half. 0 and 1 are off.",
        meaning="In the older half of repeat_last_n so much of a repeat_penalty above 1 counts; 0 and from 1 "
        "on it is off.")
    repetition_decay: int = _row(0, "repetition", ge=0, le=INT32_MAX, neutral=0,
        title="Avoid repeated words, how slowly they are forgotten",
        about="Beyond that range the penalties fade over so many tokens. 0 is at once.",
        meaning="Over so many tokens before repeat_last_n the three penalties fall to nothing.")
    encoder_repetition_penalty: float = _row(1.0, "repetition", ge=0.01, le=100, neutral=1,
        title="Stay with the words of the story",
        about="Above 1 words of what you wrote become likelier, below 1 less likely.",
        meaning="Multiply the logits of the prompt's tokens by this.")
    no_repeat_ngram_size: int = _row(0, "repetition", ge=0, le=100, neutral=0,
        title="Never repeat phrases of this length",
        about="No run of so many tokens comes a second time. 0 is off.",
        meaning="Ban tokens that would complete a run of so many that prompt and text have had; 0 is off.")
    mirostat: int = _row(0, "mirostat", ge=0, le=2, neutral=0, aliases="mirostat_mode",
        title="Constant surprise",
        about="Keeps the text as surprising throughout, in place of the other limits: 1 and 2 are two ways, "
        "0 is off.",
        meaning="Keep the surprise constant instead of truncating: 1 Mirostat, 2 Mirostat 2.0.")
    mirostat_tau: float = _row(5.0, "mirostat", ge=0, le=100, title="Constant surprise, how much",
        about="How surprising the text is to be: 3 is calm, 8 is wild.",
        meaning="Mirostat's target surprise.")
    mirostat_eta: float = _row(0.1, "mirostat", ge=0, le=100, title="Constant surprise, how fast",
        about="How fast that is corrected.",
        meaning="Mirostat's learning rate.")
    seed: Annotated[int, BeforeValidator(shapes.seed)] = _row(-1, "other", ge=shapes.LOWEST_SEED,
        le=shapes.HIGHEST_SEED, neutral=-1, aliases="sampler_seed", title="Same result again",
        about="With the same number, and all else the same, the same candidates come again. -1: others each "
        "time.",
        meaning="Sequence i uses seed + i, or a code made of both (diversity); after 4294967294 comes 0. "
        "-1 and 4294967295 mean no seed: a request then gets a random one, which the start event has, and an "
        "entry of sequences its request's seed + i. Larger seeds are taken modulo 4294967295, other negative "
        "ones as 4294967296 + seed, as llama-server does.")
    guidance_scale: float = _row(1.0, "other", ge=-100, le=100, neutral=1, aliases="cfg_scale",
        title="Away from what you do not want, how far",
        about="How strongly the text is led away from the words under “Not like this”. 1 is off; 1.5 is "
        "usual.",
        meaning="Classifier-free guidance: each token is drawn from log probabilities n + s · (p - n); p: "
        "behind the prompt, n: behind negative_prompt, s: this. 1 is off.")
    min_keep: int = _row(0, "other", ge=0, le=INT32_MAX, neutral=0, title="Words always kept",
        about="However strict the limits are, so many words may always be chosen.",
        meaning="Truncating samplers leave at least this many tokens.")
    ignore_eos: bool = _row(False, "other", neutral=False, aliases="ban_eos_token use_default_badwordsids",
        title="Never end",
        about="The model may not end the text by itself: a candidate gets its full length.",
        meaning="Never end at a stop token.")
    logit_bias: Annotated[LogitBias, BeforeValidator(shapes.logit_bias)] = _row((), "other", neutral=[],
        title="Favour or ban words",
        meaning="Added to logits: {id: bias} or [[id or text, bias or false], …]; false bans the token. "
        f"At most {MOST_BIASES:,}, those of all sequences counted.")
    samplers: Annotated[Texts, BeforeValidator(steps.samplers)] = _row(DEFAULT_SAMPLERS, "other",
        title="Order of the steps",
        meaning="The samplers in their order: names, in a list or in one text, each with values of its own "
        "or not, as dry > top_k:40 > xtc:0.5:0.1; or llama.cpp's letters (edskypmxt). A value here counts "
        "rather than the field's.")
    # fmt: on

    @cached_property
    def given(self) -> dict[str, Any]:
        """The fields that were set, as JSON; without a seed that means a random one.

        It is made once, with the request, where a long body has a thread: it may have 500,000 numbers.
        """
        fields = self.model_dump(mode="json", exclude_unset=True)
        if "samplers" in fields:
            fields["samplers"] = [*steps.step_fields(self.samplers)]
        return {name: value for name, value in fields.items() if name != "seed" or value not in NO_SEEDS}


LOOPS = ("end", "rewind")


class Override(Sampling):
    """A sequence's own settings, which replace those of its request; only fields that are set count."""

    max_tokens: int = Field(-1, ge=-1, le=INT32_MAX)
    min_tokens: int = Field(0, ge=0, le=INT32_MAX)
    thinking_budget_tokens: int = Field(-1, ge=-1, le=INT32_MAX)
    stop: Annotated[Texts, BeforeValidator(shapes.texts("stop"))] = ()
    banned_strings: Annotated[Bans, BeforeValidator(read_banned)] = ()
    phrase_bias: Annotated[Phrases, BeforeValidator(read_phrases)] = ()
    repetition_detection: Annotated[Repetition | None, BeforeValidator(read_repetition)] = None
    loop_detect_window: int = Field(0, ge=0, le=MAX_LOOP)
    loops: Annotated[str, BeforeValidator(shapes.one_of("loops", LOOPS))] = LOOPS[0]
    logits_processor: Annotated[ForProcessor, BeforeValidator(shapes.processor)] = False


STRUCTURES = ("grammar", "json_schema", "regex", "choice", "structural_tag")
SCHEMA_OPTIONS = ("lenient", "json_additional", "property_order", "json_whitespace")
MOST_STOPS = 1000  # each token of each sequence is looked up among them
TOKEN_LISTS = ("stop_token_ids", "allowed_token_ids")
DIVERSITIES, FIRST_TOKENS = ("none", "arithmetic"), ("any", "distinct")
PROPERTY_ORDERS, WHITESPACES = ("schema", "any"), ("compact", "one", "free")
SAME_DISTRIBUTION = frozenset({"max_tokens", "stop", "seed"})
"""The settings that a sequence may have of its own if diversity couples the draws of all n."""
CHAT = (
    "messages", "tools", "tool_choice", "parallel_tool_calls", "reasoning_format", "enable_thinking",
    "chat_template_kwargs", "add_generation_prompt", "continue_final_message", "plain_content",
    "thinking_budget_tokens", "thinking_budget_message",
)  # fmt: skip


class CompletionRequest(_Row):
    """One prompt, n sequences."""

    # fmt: off
    prompt: Annotated[PromptValue, BeforeValidator(shapes.prompt)] = _row("", "request",
        meaning="The text to continue, or its token ids, or parts: [{text, special}, …], of which only those "
        "with special: true may have control tokens. With continue: text after that sequence, or none.")
    negative_prompt: Annotated[str, BeforeValidator(shapes.text("negative_prompt"))] = _row("", "request",
        neutral="", title="Not like this",
        meaning="What guidance_scale leads away from: it stands in place of the prompt, and the same text "
        "behind it. If it is empty, the prompt's last token does. With continue it stands in place of the "
        "first request's prompt.")
    story: Annotated[Story | None, BeforeValidator(read_story)] = _row(None, "request",
        meaning="The prompt is a story of any length, of which the newest text is read, behind what stands "
        "here: {memory, lore: [{text, keys, also, always, order, search, budget, name, meaning}, …], "
        "summary, note: {text, depth}, budget, search, separator}. With continue only memory counts.")
    continue_: Annotated[SequenceName | None, BeforeValidator(continued)] = _row(
        None, "request", alias="continue",
        meaning="Continue a sequence of an earlier request from its tokens: {id, index, at, exact}; at: "
        "after this many of them; exact: behind all that were drawn, a stop string and a stop token "
        "included. With messages: these follow that answer, behind its exact tokens.")
    n: int = _row(8, "request", ge=1, aliases="n_cmpl",
        meaning="How many continuations.")
    max_tokens: int = _row(128, "request", ge=-1, le=INT32_MAX,
        aliases="n_predict max_completion_tokens max_length max_new_tokens num_predict",
        meaning="Tokens per sequence; -1 until the end or the context's limit, 0 only scores the prompt. "
        "Beside max_completion_tokens that one counts.")
    min_tokens: int = _row(0, "request", ge=0, le=INT32_MAX, neutral=0, aliases="min_length min_new_tokens",
        meaning="No stop token before this many tokens.")
    stop: Annotated[Texts, BeforeValidator(shapes.texts("stop"))] = _row((), "request", neutral=[],
        aliases="stop_sequence stopping_strings",
        meaning="A sequence ends where one of these texts would begin; they are never streamed.")
    end: Annotated[End | None, BeforeValidator(read_end)] = _row(None, "request", neutral={},
        meaning="A sequence ends behind its first k sentences, {sentences: k}, or paragraphs, "
        "{paragraphs: k}: with the full stop, and the quotes and brackets that close behind it.")
    phrase_bias: Annotated[Phrases, BeforeValidator(read_phrases)] = _row((), "other", neutral=[],
        meaning="Phrases that are made likelier or, below 0, rarer as a whole: [{text, bias, finish, once}, "
        "…]. A bias above 0 is added to each token of the phrase that is next, one below 0 to its last one. "
        "finish: once it has begun, it is written to its end. once: only until it stands in the text.")
    repetition_detection: Annotated[Repetition | None, BeforeValidator(read_repetition)] = _row(
        None, "repetition", neutral={},
        meaning="A sequence ends, with finish_reason repetition, when a passage stands there again and "
        "again: {min_pattern_size, max_pattern_size, min_count}, the tokens of the passage, at least and at "
        "most, and how many times it stands there, one behind the other. Not before min_tokens.")
    loop_detect_window: int = _row(0, "repetition", ge=0, le=MAX_LOOP, neutral=0,
        meaning="The same when the last so many tokens are nothing but one passage, twice or more; the last "
        "time may be cut off. 0 and 1 are off.")
    loops: Annotated[str, BeforeValidator(shapes.one_of("loops", LOOPS))] = _row(LOOPS[0], "repetition",
        neutral=LOOPS[0],
        meaning="end: such a sequence ends. rewind: it goes back to the end of the passage's first time and "
        "on another way, up to 8 times; text is held back while it repeats other text.")
    timeout: float | None = _row(None, "request", ge=0, le=86400, neutral=0,
        meaning="Seconds that the request may take, time in the queue included; then the texts so far stay, "
        "and finish_reason is timeout. 0 is no limit.")
    sampling: Sampling = _row(Sampling(), "request",
        meaning="The sampling fields, which are given in the body itself.")
    sequences: tuple[Override, ...] = _row((), "request", neutral=[],
        meaning="One object per continuation: sampling fields, stop, max_tokens, … of its own.")
    logprobs: int | None = _row(None, "request", ge=0, le=MAX_LOGPROBS, aliases="n_probs",
        meaning="Log-probabilities of each token and of this many alternatives.")
    logprobs_mode: Annotated[LogprobsMode, BeforeValidator(shapes.logprobs_mode)] = _row("raw", "request",
        meaning="raw: log-probabilities before the samplers; processed: after them, as the token was drawn; "
        "both: those of raw, and processed_… beside them.")
    prompt_logprobs: int | None = _row(None, "request", ge=0, le=MAX_LOGPROBS,
        meaning="Log-probabilities of each token of the prompt, with its rank, and of this many "
        "alternatives; 0: only the prompt's own tokens.")
    return_token_ids: bool = _row(False, "request", neutral=False,
        meaning="The ids of the prompt's tokens (prompt_token_ids) and of all tokens that were drawn "
        "(token_ids): also of a token that ends the text, and of a stop string. logprobs then has them all.")
    return_tokens_as_token_ids: bool = _row(False, "request", neutral=False,
        meaning="In logprobs each token is written as token_id:17, in OpenAI's completions and chats.")
    draft: Annotated[int | None, BeforeValidator(shapes.draft)] = _row(None, "request", ge=0,
        le=shapes.MOST_DRAFTED, neutral=0, aliases="speculative_ngram", meaning="Guess at most so many next "
        "tokens of a sequence in a step, from what the prompt, the request's other texts and the same "
        "client's earlier ones have behind the same tokens, and what a grammar allows only; true is 16, "
        "false is none. Guesses that are right save steps, as where a text quotes or is repeated; the draws "
        "are made as without. By default it is 16 where no seed is given, and none with a seed: rows of a "
        "larger step may differ in their last bits, so an equal request might get another text.")
    logits_processor: Annotated[ForProcessor, BeforeValidator(shapes.processor)] = _row(False, "request",
        neutral=False, meaning="Each row of logits goes to the operator's own processor before a token is "
        "drawn from it (--logits-processor): true, or an object with arguments for it. Nothing is guessed "
        "of such texts (draft).")
    return_entropies: bool = _row(False, "request", neutral=False,
        meaning="The entropy of the model's distribution, before samplers, for each token of token_ids.")
    stop_token_ids: Annotated[TokenIds, BeforeValidator(shapes.ids("stop_token_ids", MOST_STOPS))] = _row(
        (), "request", neutral=[],
        meaning="Tokens that end the text as the model's own end does; none is drawn before min_tokens.")
    allowed_token_ids: Annotated[TokenIds, BeforeValidator(shapes.ids("allowed_token_ids"))] = _row(
        (), "request", neutral=[], aliases="allowed_tokens",
        meaning="Only these tokens may be drawn; the model's end, too, only if it is one of them.")
    include_stop_str_in_output: bool = _row(False, "request", neutral=False,
        meaning="The text ends with the stop string, or the token of stop_token_ids, that has ended it.")
    skip_special_tokens: bool = _row(True, "request", neutral=True,
        meaning="false: the text has the names of control tokens that were drawn.")
    echo: bool = _row(False, "request", neutral=False,
        meaning="The text begins with the prompt.")
    token_healing: bool = _row(False, "request", neutral=False,
        meaning="The prompt's last tokens are drawn again if a longer one may begin with them: so texts may "
        "go on within a word, or behind a space at the prompt's end.")
    cache: bool = _row(True, "request", aliases="cache_prompt",
        meaning="Use the prefix cache for the prompt, and keep it there.")
    cache_salt: Annotated[str | None, BeforeValidator(shapes.cache_salt)] = _row(None, "request",
        meaning="Of the prefix cache only what requests with this same text have put there is used, and only "
        "these use what this one puts there. A secret one keeps others from finding out prompts by time.")
    truncate_prompt_tokens: Annotated[int | None, BeforeValidator(shapes.kept_tokens)] = _row(
        None, "request", ge=-1, le=INT32_MAX,
        meaning="A longer prompt, also of a chat, is cut to its last so many tokens; a token that the "
        "tokenizer puts in front stays, and counts. -1: to what fits beside the answer.")
    truncation_side: Annotated[
        str | None, BeforeValidator(shapes.one_of("truncation_side", shapes.SIDES))
    ] = _row(None, "request", neutral="left",
        meaning="Where truncate_prompt_tokens cuts: left, at the beginning, or right, at the end.")
    banned_strings: Annotated[Bans, BeforeValidator(read_banned)] = _row((), "request",
        neutral=[], aliases="bad_words",
        meaning="Phrases that never appear, in any case of ASCII letters: when one is complete, the sequence "
        "rewinds to where it begins. {regex}: nor does what this regular expression matches; its matches "
        "must have an upper bound of length.")
    private_tokens: Annotated[Texts, BeforeValidator(shapes.texts("private_tokens"))] = _row((), "request",
        neutral=[],
        meaning="Texts, as of tokens, that never appear: they are refused in plain parts of the prompt and "
        "in plain_content, and are never generated.")
    lora: Annotated[LoraScales | None, BeforeValidator(shapes.lora_scales)] = _row(None, "request",
        meaning="LoRA adapters by id or name, of those that are loaded: [{id, scale}, {name, scale}, …]; "
        "others are off. If not given: all, at the scales of --lora.")
    grammar: Annotated[str | None, BeforeValidator(shapes.structure_text("grammar"))] = _row(
        None, "structure", aliases="grammar_string guided_grammar ebnf", neutral="",
        meaning="A grammar that each text must match: in GBNF, whose rule root is the whole text, or in "
        "Lark, whose rule start is.")
    json_schema: Annotated[SchemaText | None, BeforeValidator(shapes.schema)] = _row(None, "structure",
        aliases="guided_json", neutral="",
        meaning="Each text is JSON that fits this schema, its properties in the schema's order.")
    regex: Annotated[str | None, BeforeValidator(shapes.structure_text("regex"))] = _row(None, "structure",
        aliases="guided_regex regex_pattern", neutral="",
        meaning="Each text matches this regular expression as a whole.")
    choice: Annotated[Texts | None, BeforeValidator(shapes.choices)] = _row(None, "structure",
        aliases="guided_choice",
        meaning="Each text is one of these.")
    structural_tag: Annotated[TagText | None, BeforeValidator(shapes.structural_tag)] = _row(
        None, "structure", neutral="",
        meaning="Each text fits this structural tag, vLLM's {format} or {structures, triggers}: free text "
        "with parts that obey schemas and grammars, which begin and end again and again.")
    lenient: bool = _row(False, "structure", neutral=False,
        meaning="What of a schema has no exact meaning here is left out and named in warnings, with its "
        "path; otherwise it is refused. So it is for tools anyway, but for those that are strict.")
    json_additional: bool = _row(False, "structure", neutral=False,
        meaning="json_schema as the standard has it: objects may have other properties where "
        "additionalProperties is absent, and a schema without type allows all types.")
    property_order: Annotated[
        str | None, BeforeValidator(shapes.one_of("property_order", PROPERTY_ORDERS))
    ] = _row(None, "structure", neutral="schema",
        meaning="The order of an object's properties under json_schema: as the schema has them (schema), or "
        "any, for objects of up to 8 properties.")
    json_whitespace: Annotated[
        str | None, BeforeValidator(shapes.one_of("json_whitespace", WHITESPACES))
    ] = _row(None, "structure", neutral="one",
        meaning="White space in JSON under json_schema: none (compact), at most one space or line break with "
        "indentation in a row (one), or any (free).")
    then: Annotated[Then | None, BeforeValidator(read_then)] = _row(None, "structure",
        meaning="A second answer: {text, json_schema | grammar | regex | choice | structural_tag, "
        "max_tokens, stop, return_free}. Each text that has ended goes on with text, and then under the "
        "structure. The request's stop and max_tokens end only the free answer. Only the second one is "
        "returned; with return_free both, with text between them (in the event stream: an event then).")
    diversity: Annotated[str | None, BeforeValidator(shapes.one_of("diversity", DIVERSITIES))] = _row(
        None, "diversity", neutral="none",
        meaning="arithmetic spreads the draws of the n sequences, each still an exact sample; none makes "
        "them independent. The event stream's default is arithmetic if the settings allow it.")
    first_token: Annotated[str | None, BeforeValidator(shapes.one_of("first_token", FIRST_TOKENS))] = _row(
        None, "diversity", neutral="any",
        meaning="distinct: the n first tokens are drawn without replacement, before any truncation.")
    best_of: int | None = _row(None, "diversity", ge=0, neutral=0,
        meaning="Generate this many and return the n best of them, by rank_by; 0 or 1 is off.")
    rank_by: Annotated[RankBy | None, BeforeValidator(read_rank_by)] = _row(
        None, "diversity", title="Order by", values=TITLES,
        meaning="Order and scores of the choices: logprob (the mean of its tokens, best first), typical "
        "(nearest to the median first), diversity (near the median and unlike the ones before), medoid (most "
        'like all others first), certainty (of the model, the mean of all tokens), {"vote": {"regex"}} (of '
        "the answer that most texts have; the last match is a text's answer), "
        '{"judge": {"prompt", "answers", "model"}} (of which a loaded model gives the first answer rather '
        'than the second), {"following": {"text"}} (behind which that text is the likeliest), '
        '{"reward": {"model", "query"}} (which answers best by a model that ranks). '
        '{"medoid": {"by": "embeddings", "model"}} compares vectors; so may diversity.')
    finish: Annotated[Finish | None, BeforeValidator(read_finish)] = _row(None, "diversity", neutral={},
        title="Stop when enough are done",
        meaning="When texts that still run end, with finish_reason surplus: {first: k}, when k texts have "
        "ended by themselves; {vote_decided: true}, when no answer can overtake that which leads in "
        "rank_by.vote.")
    prune: Annotated[Prune | None, BeforeValidator(read_prune)] = _row(None, "diversity",
        title="Write on only the best",
        meaning="{at: [32, 96], keep: 8, by}: at these numbers of tokens all but the best of the texts end, "
        "with finish_reason pruned; by: certainty (of the model, the mean of all tokens so far) or logprob.")
    diversity_stats: bool = _row(False, "diversity", neutral=False,
        meaning="How much the texts differ: different beginnings, mean overlap, effective number.")
    dedupe: bool = _row(False, "diversity", neutral=False,
        meaning="A duplicate of another choice is generated again; a stream only marks it.")
    whole: bool = Field(False, exclude=True)  # the answer is one body
    messages: Annotated[MessagesText | None, BeforeValidator(shapes.messages)] = _row(None, "chat",
        meaning="A chat instead of the prompt, [{role, content}, …], formatted by the model's chat template; "
        "the texts are answers of the assistant.")
    tools: Annotated[ToolsText | None, BeforeValidator(shapes.tools)] = _row(None, "chat", neutral=[],
        meaning="Functions that an answer may call: [{type: function, function: {name, description, "
        "parameters}}, …]; parameters is a JSON schema.")
    tool_choice: Annotated[
        ToolChoice | None, BeforeValidator(shapes.one_of("tool_choice", TOOL_CHOICES))
    ] = _row(None, "chat", meaning="auto: the model chooses; required: it must call one; none: it cannot; "
        "{type: function, function: {name}}: it must call this one.")
    parallel_tool_calls: bool | None = _row(None, "chat",
        meaning="Whether an answer may call several tools; by default yes if the template supports it.")
    reasoning_format: Annotated[
        str | None, BeforeValidator(shapes.one_of("reasoning_format", REASONING_FORMATS))
    ] = _row(None, "chat", meaning="auto: the model's reasoning is separate from the text; none: part of it.")
    enable_thinking: bool | None = _row(None, "chat",
        meaning="false: the template asks the model not to think, if the template supports this.")
    thinking_budget_tokens: int | None = _row(None, "chat", ge=-1, le=INT32_MAX, neutral=-1,
        aliases="thinking_token_budget reasoning_budget",
        meaning="Tokens that the thoughts of an answer may have; then they are ended, and the answer "
        "follows. 0: no thoughts; -1: no limit, or that of --reasoning-budget.")
    thinking_budget_message: str | None = _row(None, "chat", aliases="reasoning_budget_message",
        meaning="The last words of thoughts that have used up their tokens.")
    chat_template_kwargs: Annotated[ObjectText | None, BeforeValidator(shapes.kwargs)] = _row(None, "chat",
        aliases="template_vars", neutral={}, meaning="Variables for the template.")
    add_generation_prompt: bool | None = _row(None, "chat",
        meaning="false: the prompt ends after the last message, without the beginning of the assistant's.")
    continue_final_message: bool | None = _row(None, "chat", neutral=False,
        meaning="The texts continue the last message, which must be the assistant's. Default: true if it is "
        "and calls no tool.")
    plain_content: bool | None = _row(None, "chat", neutral=False,
        meaning="true: the names of control tokens in messages are text, not these tokens.")
    assembled: Assembled | None = Field(None, exclude=True)  # the prompt that was made of a story
    continue_fits: ContinueFits | None = Field(None, exclude=True)
    warnings: tuple[str, ...] = Field((), exclude=True)
    locked: Mapping[str, str] = Field({}, exclude=True)  # an extend may not change them: what sets them
    negative_is_plain: bool = Field(False, exclude=True)  # names of control tokens are text in it
    recalled: Mapping[int, tuple[Recalled, ...]] = Field({}, exclude=True)  # by the number of the user's turn
    to_store: tuple[str, str] | None = Field(None, exclude=True)  # a memory, and the text that goes into it
    # fmt: on

    @property
    def candidates(self) -> int:
        """How many sequences are generated."""
        return max(self.n, self.best_of or 0)

    @property
    def prompt_length(self) -> int:
        """Characters of the prompt or of the messages, or tokens."""
        if self.messages is not None:
            return len(self.messages)
        if self.is_of_parts:
            return sum(len(one.text) for one in self.prompt if isinstance(one, Part))
        return len(self.prompt)

    @property
    def is_of_parts(self) -> bool:
        """Whether the prompt is a list of parts. Its first shows it: a list of ids may have a million."""
        return bool(self.prompt) and isinstance(self.prompt[0], Part)

    @property
    def ranked(self) -> bool:
        return self.rank_by is not None or self.candidates > self.n

    @property
    def tells_of_tokens(self) -> bool:
        """Whether an answer has something of each token besides text."""
        return self.logprobs is not None or self.return_token_ids or self.return_entropies

    @property
    def shares_cells(self) -> bool:
        """Whether its prompt uses cells that are there: not if each token of the prompt is scored.

        Those of pins have no salt.
        """
        echoed = self.echo and self.logprobs is not None
        return self.cache and not echoed and self.prompt_logprobs is None and self.cache_salt is None

    def engine_fields(self) -> dict[str, Any]:
        """The arguments of the engine's generate command: only given fields; the engine has the defaults."""
        sequences = [own.given for own in self.sequences]
        optional = {
            "min_tokens": self.min_tokens,
            "stop": list(self.stop),
            "negative_prompt": self._negative_fields(),
            "sampling": self.sampling.given,
            "sequences": sequences if any(sequences) else [],
            "banned_strings": [one if isinstance(one, str) else asdict(one) for one in self.banned_strings],
            "phrase_bias": [asdict(one) for one in self.phrase_bias],
            "repetition_detection": asdict(self.repetition_detection) if self.repetition_detection else None,
            "loop_detect_window": self.loop_detect_window,
            "loops": self.loops if self.loops != LOOPS[0] else "",
            "private_tokens": list(self.private_tokens),
        }
        given: dict[str, Any] = {name: value for name, value in optional.items() if value}
        if self.logprobs is not None:
            given["logprobs"] = self.logprobs
            given |= {"logprobs_mode": self.logprobs_mode} if self.logprobs_mode != "raw" else {}
        given |= {name: value for name in STRUCTURES if (value := getattr(self, name)) is not None}
        given |= cells_fields(self.lora, self.cache_salt)
        given |= {name: value for name in SCHEMA_OPTIONS if (value := getattr(self, name))}
        given |= {"end": self.end.fields()} if self.end else {}
        given |= {"then": self.then.fields()} if self.then else {}
        given |= {"echo": True} if self.echo else {}
        given |= {"token_healing": True} if self.token_healing else {}
        given |= {} if self.cache else {"cache": False}
        given |= self._diversity_fields() | self._token_fields()
        given |= self._limit_fields()
        return {**self._start_fields(), "n": self.candidates, "max_tokens": self.max_tokens, **given}

    def beginning_fields(self) -> dict[str, Any]:
        """The arguments of a command that only computes the prompt, which is no chat."""
        return self.prompt_fields() | cells_fields(self.lora, self.cache_salt) | self._limit_fields()

    def _limit_fields(self) -> dict[str, Any]:
        return shapes.limit_fields(self.truncate_prompt_tokens, self.truncation_side)

    def _negative_fields(self) -> str | list[dict[str, str]]:
        text = self.negative_prompt
        return [{"text": text}] if text and self.negative_is_plain else text

    def _token_fields(self) -> dict[str, Any]:
        """What concerns single tokens: which may be drawn, which end a text, what is told of them."""
        given: dict[str, Any] = {name: list(ids) for name in TOKEN_LISTS if (ids := getattr(self, name))}
        given |= {} if self.prompt_logprobs is None else {"prompt_logprobs": self.prompt_logprobs}
        given |= {"return_token_ids": True} if self.return_token_ids else {}
        given |= {"return_entropies": True} if self.return_entropies else {}
        given |= {"include_stop_str_in_output": True} if self.include_stop_str_in_output else {}
        given |= {} if self.draft is None else {"draft": self.draft}
        given |= {} if self.logits_processor is False else {"logits_processor": self.logits_processor}
        return given | ({} if self.skip_special_tokens else {"skip_special_tokens": False})

    def _diversity_fields(self) -> dict[str, Any]:
        given: dict[str, Any] = {"diversity": "arithmetic"} if self.diversity == "arithmetic" else {}
        given |= {"first_token": "distinct"} if self.first_token == "distinct" else {}
        given |= {"sum_logprobs": True} if self.ranked else {}
        given |= {"certainty": True} if self.rank_by is not None and self.rank_by.name == "certainty" else {}
        given |= {"finish": self.finish.fields()} if self.finish is not None else {}
        given |= {"prune": self.prune.fields()} if self.prune is not None else {}
        return given | ({"dedupe": "again" if self.whole else "mark"} if self.dedupe else {})

    def seed_of(self, index: int, first: int) -> int:
        """A sequence's seed; first: the request's seed, from the start event."""
        own = self.sequences[index].seed if index < len(self.sequences) else -1
        return (first + index) % RANDOM_SEED if own in NO_SEEDS else own

    def prompt_fields(self) -> dict[str, Any]:
        """The prompt as arguments of an engine command."""
        prompt = self.prompt
        if isinstance(prompt, str):
            return {"prompt": prompt}
        if not self.is_of_parts:
            return {"tokens": list(prompt)}
        parts = [{"text": one.text, "special": one.special} for one in prompt if isinstance(one, Part)]
        return {"prompt": parts}

    def _start_fields(self) -> dict[str, Any]:
        if self.messages is not None:
            return self._chat()
        if self.continue_ is None:
            return self.prompt_fields()
        fits = self.continue_fits.fields() if self.continue_fits else {}
        named = {"continue": {**self.continue_.fields(), **fits}}
        return {**named, **(self.prompt_fields() if self.prompt else {})}

    def _chat(self) -> dict[str, Any]:
        given = {name: value for name in CHAT if (value := getattr(self, name)) is not None}
        if self.continue_ is not None:
            given["continue"] = self.continue_.place()
        if "chat_template_kwargs" in given:
            given["chat_template_kwargs"] = orjson.loads(given["chat_template_kwargs"])
        return given


@dataclass(frozen=True, slots=True)
class Extension:
    """Adds sequences to a running request, new ones or forks of one; or sets a new limit for all."""

    add: int = 1
    max_tokens: int | None = None
    fork: SequenceName | None = None
    warnings: tuple[str, ...] = ()

    def engine_fields(self) -> dict[str, Any]:
        """The arguments of the engine's extend command."""
        limit = {} if self.max_tokens is None else {"max_tokens": self.max_tokens}
        return {"add": self.add, **limit, **({"fork": self.fork.fields()} if self.fork else {})}


@dataclass(frozen=True, slots=True)
class Limit:
    """The tokens of prompt and answer together, to which a prompt is truncated; None means the context.

    name: the client's field for it. head: the beginning of the prompt that is kept, at most half of it.
    """

    name: str
    tokens: int | None = None
    head: str = ""


def limit_of(fields: Mapping[str, Any], *names: str, head: str = "") -> Limit:
    """The limit in the first of these fields that is given; 0 means none."""
    name = next((name for name in names if fields.get(name)), names[0])
    value = fields.get(name)
    return Limit(name, None if value is None else whole(name, value, 0, INT32_MAX) or None, head)


@dataclass(frozen=True, slots=True)
class Row:
    """One field as a row of a table; bounds are inclusive."""

    name: str
    type: str
    default: object
    low: float | None
    high: float | None
    aliases: tuple[str, ...]
    title: str
    about: str
    values: Mapping[str, str]
    meaning: str
    group: str
    neutral: object

    @property
    def is_number(self) -> bool:
        return self.type in ("int", "float")

    @property
    def bounds(self) -> str:
        """The bounds in words; empty if there are none."""
        if self.low is None:
            return ""
        if self.high is None:
            return f"at least {self.low}"
        return f"between {self.low} and {self.high}"

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
    float | None: "float",
    str | None: "text",
    LogprobsMode: "raw, processed or both",
    TokenIds: "token ids",
    LoraScales | None: "adapters",
    Texts: "texts",
    Texts | None: "choices",
    SchemaText | None: "JSON schema",
    TagText | None: "structural tag",
    bool | None: "bool",
    MessagesText | None: "messages",
    ToolsText | None: "tools",
    ObjectText | None: "JSON object",
    Then | None: "second answer",
    Story | None: "story",
    ToolChoice | None: "tool choice",
    RankBy | None: "ranker",
    Finish | None: "end of the rest",
    Prune | None: "marks",
    End | None: "passages",
    Repetition | None: "repetition",
    Phrases: "phrases",
    Bans: "bans",
    ForProcessor: "bool or object",
}
_TYPES |= {
    LogitBias: "biases",
    PromptValue: "text or tokens",
    SequenceName | None: "sequence",
    tuple[Override, ...]: "list of objects",
    Sampling: "",  # its own rows stand for it
}


def _bound(info: FieldInfo, kind: type[Ge] | type[Le]) -> float | None:
    bounds = (getattr(bound, kind.__name__.lower()) for bound in info.metadata if isinstance(bound, kind))
    return next(bounds, None)


def _as_row(name: str, info: FieldInfo) -> Row:
    extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    aliases, values = extra.get("aliases", []), extra.get("values", {})
    assert isinstance(aliases, list)
    assert isinstance(values, dict)
    return Row(
        name=name,
        type=_TYPES[info.annotation],
        default=None if name == "prompt" else info.default,
        low=_bound(info, Ge),
        high=_bound(info, Le),
        aliases=tuple(map(str, aliases)),
        title=str(extra.get("shown_as", "")),
        about=str(extra.get("about", "")),
        values={value: str(name) for value, name in values.items()},
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
OVERRIDE_ROWS = SAMPLING_ROWS | {name: ROWS[name] for name in Override.model_fields if name in REQUEST_ROWS}
BY_LIST = frozenset(
    name
    for name, row in OVERRIDE_ROWS.items()
    if row.is_number or name in ("loops", "repetition_detection", "logits_processor")
)
"""Fields that may be a list of n values, one per sequence: those whose own values are no lists."""
CANONICAL = {alias: name for name, row in ROWS.items() for alias in (name, *row.aliases)}


def samplers_table() -> list[dict[str, Any]]:
    """The rows of sampling fields as JSON, for `/v1/samplers`, the documentation and the studio."""
    return [_row_json(row) for row in SAMPLING_ROWS.values()]


def request_table() -> list[dict[str, Any]]:
    """The rows of other request fields as JSON."""
    return [_row_json(row) for row in REQUEST_ROWS.values()]


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "title": row.title,
        "about": row.about,
        "values": row.values,
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
