"""Fields of a request that are right on their own, but not together. Pure."""

from __future__ import annotations

from llama_srb.request.fields import CHAT, MOST_BIASES, STRUCTURES, CompletionRequest, Override
from llama_srb.request.values import RequestError, wrong


def check_together(request: CompletionRequest, max_n: int) -> None:
    """RequestError if fields exclude each other."""
    _check_min_tokens(request)
    _check_biases(request)
    _check_structures(request)
    _check_chat(request)
    _check_then(request)
    _check_best_of(request, max_n)
    _check_finish(request)
    _check_following(request)
    _check_story(request)


def _check_min_tokens(request: CompletionRequest) -> None:
    every: tuple[CompletionRequest | Override, ...] = (request, *request.sequences)
    for limits in every:
        high = limits.max_tokens if "max_tokens" in limits.model_fields_set else request.max_tokens
        low = limits.min_tokens if "min_tokens" in limits.model_fields_set else request.min_tokens
        if low > high >= 0:
            raise RequestError(
                f"min_tokens is {low}; it must be at most max_tokens, {high}", param="min_tokens"
            )


def _check_biases(request: CompletionRequest) -> None:
    count = len(request.sampling.logit_bias) + sum(len(own.logit_bias) for own in request.sequences)
    if count > MOST_BIASES:
        message = f"logit_bias has {count} entries in all sequences; at most {MOST_BIASES}"
        raise RequestError(message, param="logit_bias")


def _check_structures(request: CompletionRequest) -> None:
    given = [name for name in STRUCTURES if getattr(request, name) is not None]
    if len(given) > 1:
        raise RequestError(f"only one of {given[0]} and {given[1]} may be given", param=given[1])


NOT_WITH_THEN = {
    "echo": "the second answer does not follow the prompt",
    "dedupe": "equal second answers may belong to different free answers",
    "tools": "a free answer that calls a tool is not complete",
    "return_token_ids": "the tokens of then.text are not drawn",
    "return_entropies": "the tokens of then.text are not drawn",
}


def _check_then(request: CompletionRequest) -> None:
    if request.then is None:
        return
    for name in [name for name in NOT_WITH_THEN if getattr(request, name)]:
        reason = f"only one of then and {name} may be given: {NOT_WITH_THEN[name]}"
        raise RequestError(reason, param="then")
    if request.then.return_free and request.candidates > request.n:
        message = "only one of best_of and then.return_free may be given: only second answers are compared"
        raise RequestError(message, param="then.return_free")


def _check_best_of(request: CompletionRequest, max_n: int) -> None:
    if request.dedupe and request.rank_by is not None and request.rank_by.name == "vote":
        message = "only one of rank_by.vote and dedupe may be given: each of two equal texts has its vote"
        raise RequestError(message, param="dedupe")
    best_of, n = request.best_of, request.n
    if best_of is not None and best_of > 1 and not n <= best_of <= max_n:
        raise wrong("best_of", best_of, f"0, 1, or between n, {n}, and {max_n}")
    if request.candidates > n and request.sequences:
        message = f"best_of is {best_of}, more than the n, {n}, that have settings of their own"
        raise RequestError(message, param="best_of")


def _check_finish(request: CompletionRequest) -> None:
    finish, prune, n = request.finish, request.prune, request.candidates
    first = None if finish is None else finish.first
    for name, value in (("finish.first", first), ("prune.keep", prune.keep if prune else None)):
        if value is not None and value > n:
            raise RequestError(
                f"{name} is {value}; it must be between 1 and the number of texts, {n}", param=name
            )
    if finish is None or not finish.vote_decided:
        return
    if request.rank_by is None or request.rank_by.name != "vote":
        message = "finish.vote_decided is true, but rank_by is not a vote: give rank_by.vote.regex"
        raise RequestError(message, param="finish.vote_decided")


def _check_following(request: CompletionRequest) -> None:
    if request.rank_by is None or request.rank_by.name != "following":
        return
    if request.messages is not None or request.continue_ is not None or not isinstance(request.prompt, str):
        message = "rank_by is following, which needs a prompt that is one text: no messages, continue, tokens"
        raise RequestError(f"{message} or parts", param="rank_by")


def _check_chat(request: CompletionRequest) -> None:
    given = [name for name in CHAT if getattr(request, name) is not None]
    if request.messages is None and given:
        raise RequestError(f"{given[0]} is given without messages", param=given[0])
    if request.tool_choice == "required" and request.tools is None:
        raise RequestError('tool_choice is "required", but there are no tools', param="tool_choice")
    if request.messages is not None and request.prompt:
        raise RequestError("only one of messages and prompt may be given", param="messages")
    if request.messages is not None and request.continue_ is not None and request.continue_final_message:
        message = "only one of continue and continue_final_message may be given"
        raise RequestError(message, param="continue_final_message")


def _check_story(request: CompletionRequest) -> None:
    if request.story is None:
        return
    if request.messages is not None:
        message = "only one of messages and story may be given: a story is one text, the prompt"
        raise RequestError(message, param="story")
    if not isinstance(request.prompt, str):
        message = "story is given with a prompt of token ids or parts; with story the prompt is a text"
        raise RequestError(message, param="prompt")
