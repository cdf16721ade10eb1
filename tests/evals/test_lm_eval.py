"""lm_eval's local-completions against the server: loglikelihoods, and eight texts of one prompt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lm_eval
import pytest
import yaml
from lm_eval.tasks import TaskManager

from tests.support.serving import Server

OPENING = "Once upon a time, there was a little"
CHOICES = [" girl named Lily.", " zebra of the committee."]


def run(server: Server, folder: Path, task: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    """Runs one task over one document; returns its samples."""
    (folder / "docs.jsonl").write_text(json.dumps({"opening": OPENING}) + "\n")
    given = {
        "task": "local_task",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(folder / "docs.jsonl")}},
        "test_split": "test",
        "doc_to_text": "{{opening}}",
        **task,
    }
    (folder / "local_task.yaml").write_text(yaml.safe_dump(given))
    results = lm_eval.simple_evaluate(
        model="local-completions",
        model_args={
            "base_url": server.url + "/v1/completions",
            "model": "storyteller",
            "tokenizer_backend": "remote",
            "max_length": 512,
        },
        tasks=["local_task"],
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        log_samples=True,
        bootstrap_iters=0,
        **more,
    )
    samples: list[dict[str, Any]] = results["samples"]["local_task"]
    return samples


def ids_of(server: Server, text: str) -> list[int]:
    """As lm_eval has them: without the token that the tokenizer adds at the beginning."""
    ids: list[int] = server.json("POST", "/tokenize", {"prompt": text, "add_special_tokens": False})[1][
        "tokens"
    ]
    return ids


def test_loglikelihoods_are_those_of_score(server: Server, tmp_path: Path) -> None:
    task = {
        "output_type": "multiple_choice",
        "doc_to_choice": CHOICES,
        "doc_to_target": 0,
        "target_delimiter": "",
        "metric_list": [{"metric": "acc"}],
    }
    (sample,) = run(server, tmp_path, task)
    assert sample["acc"] == 1
    prompt, *texts = (ids_of(server, text) for text in (OPENING, *CHOICES))
    body = {"prompt": prompt, "texts": texts}
    expected = [entry["sum"] for entry in server.json("POST", "/v1/score", body)[1]["data"]]
    found = [float(answer[0]) for answer in sample["filtered_resps"]]
    assert found == pytest.approx(expected, abs=0.15)  # the bundled model's weights are Q8_0: law 3


def generated(server: Server, folder: Path, seed: int | None) -> list[str]:
    kwargs: dict[str, Any] = {"do_sample": True, "temperature": 0.8, "max_gen_toks": 24, "until": ["\n\n"]}
    task = {
        "output_type": "generate_until",
        "doc_to_target": "x",
        "repeats": 8,
        "generation_kwargs": kwargs | ({} if seed is None else {"seed": seed}),
        "metric_list": [{"metric": "exact_match"}],
    }
    (sample,) = run(server, folder, task)
    (texts,) = sample["resps"]
    return list(texts)


def cached_tokens(server: Server) -> tuple[int, int]:
    stats = server.json("GET", "/v1/stats")[1]
    return stats["prompt_tokens"], stats["cached_tokens"]


def test_with_seed_minus_one_eight_texts_differ_and_their_prompt_is_computed_once(
    server: Server, tmp_path: Path
) -> None:
    before = cached_tokens(server)
    assert len(set(generated(server, tmp_path, -1))) == 8
    prompt, cached = (b - a for a, b in zip(before, cached_tokens(server), strict=True))
    each = prompt // 8
    assert cached >= 7 * each


def test_with_its_own_seed_the_eight_texts_are_one(server: Server, tmp_path: Path) -> None:
    texts = generated(server, tmp_path, None)
    assert (len(texts), len(set(texts))) == (8, 1)
