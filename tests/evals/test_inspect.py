"""inspect_ai against the server: a task of its own, with epochs, scores and logprobs."""

from __future__ import annotations

from pathlib import Path

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig, get_model
from inspect_ai.scorer import includes, match
from inspect_ai.solver import generate, user_message

from tests.support.serving import Server

NAMES = ["Lily", "Tim"]


def test_a_task_runs_over_epochs(server: Server, tmp_path: Path) -> None:
    model = get_model("openai-api/local/storyteller", base_url=server.url + "/v1", api_key="none")
    task = Task(
        dataset=[Sample(input=f"Tell me of {name}!", target="[a-z]") for name in NAMES],
        solver=[generate(), user_message("And then?"), generate()],
        scorer=[includes(), match()],
        config=GenerateConfig(temperature=0.8, max_tokens=24, logprobs=True, top_logprobs=2),
    )
    (log,) = eval(task, model=model, epochs=4, display="none", log_dir=str(tmp_path))
    assert log.status == "success", log.error
    assert log.samples is not None
    assert len(log.samples) == 4 * len(NAMES)
    assert {sample.input for sample in log.samples} == {f"Tell me of {name}!" for name in NAMES}
    for sample in log.samples:
        roles = [message.role for message in sample.messages]
        assert roles == ["user", "assistant", "user", "assistant"]
        (choice,) = sample.output.choices
        assert choice.logprobs is not None
        assert "".join(token.token for token in choice.logprobs.content).startswith(choice.message.text[:1])
    texts = [sample.output.completion for sample in log.samples]
    assert len(set(texts)) > len(NAMES), "without a seed the epochs differ"


def test_a_fixed_seed_makes_the_epochs_one(server: Server, tmp_path: Path) -> None:
    model = get_model("openai-api/local/storyteller", base_url=server.url + "/v1", api_key="none")
    task = Task(
        dataset=[Sample(input="Tell me a story!", target="x")],
        solver=generate(),
        scorer=includes(),
        config=GenerateConfig(temperature=0.8, max_tokens=16, seed=7),
    )
    (log,) = eval(task, model=model, epochs=3, display="none", log_dir=str(tmp_path))
    assert log.samples is not None
    assert len({sample.output.completion for sample in log.samples}) == 1
