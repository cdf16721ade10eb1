"""verifiers' environments against the server: rollouts have the exact ids, and logprobs that the ids have."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import verifiers as vf
from datasets import Dataset
from verifiers.types import ClientConfig

from tests.support.serving import Server

QUESTIONS = [{"question": f"Tell me of {name}!", "answer": name} for name in ("Lily", "Tim")]
SAMPLING: dict[str, Any] = {
    "temperature": 1.0, "max_tokens": 16, "logprobs": True,
    "extra_body": {"return_token_ids": True, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
}  # fmt: skip
BOUND = 0.15  # |Δlogprob| of law 3 with the bundled model's Q8_0 weights


def says_something(completion: Any, **_: Any) -> float:
    return float(len(completion[-1]["content"]) > 0)


class TwoTurns(vf.MultiTurnEnv):
    async def env_response(self, messages: Any, state: Any, **_: Any) -> Any:
        return [{"role": "user", "content": "And then?"}]


def rollouts(server: Server, environment: vf.Environment, n: int) -> list[Any]:
    os.environ["LOCAL_KEY"] = "none"
    client = ClientConfig(api_key_var="LOCAL_KEY", api_base_url=server.url + "/v1")
    made = environment.evaluate_sync(
        client, "storyteller", SAMPLING, rollouts_per_example=n, state_columns=["trajectory"]
    )
    return list(made["outputs"])


def steps_of(outputs: list[Any]) -> list[dict[str, Any]]:
    return [step for output in outputs for step in output["trajectory"]]


def check(server: Server, steps: list[dict[str, Any]]) -> None:
    for step in steps:
        tokens = step["tokens"]
        assert len(tokens["completion_ids"]) == len(tokens["completion_logprobs"]) > 0
        body = {"prompt": tokens["prompt_ids"], "texts": [tokens["completion_ids"]]}
        (scored,) = server.json("POST", "/v1/score", body)[1]["data"]
        found = [token["logprob"] for token in scored["tokens"]]
        assert np.abs(np.subtract(found, tokens["completion_logprobs"])).max() <= BOUND


@pytest.mark.parametrize("turns", [1, 2])
def test_each_turn_has_its_ids_with_their_logprobs(server: Server, turns: int) -> None:
    rubric = vf.Rubric(funcs=[says_something])
    data = Dataset.from_list(QUESTIONS)
    kind = vf.SingleTurnEnv if turns == 1 else TwoTurns
    more = {} if turns == 1 else {"max_turns": turns}
    outputs = rollouts(server, kind(eval_dataset=data, rubric=rubric, **more), 4)
    steps = steps_of(outputs)
    assert len(steps) == 8 * turns
    check(server, steps)
    assert all(0 <= output["reward"] <= 1 for output in outputs)
