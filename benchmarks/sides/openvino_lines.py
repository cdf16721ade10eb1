"""Answers commands of llama-batched's form by OpenVINO GenAI: openvino_lines.py MODEL THREADS SEQUENCES.

It runs with the Python of an environment of its own (peers.openvino) and imports nothing of ours. Commands
are lines on stdin. Of one it knows the tokens of the prompt, n, max_tokens, and these samplers: temperature,
top_k, top_p, min_p. A step gives each sequence one token. Cells are of 8 bits, which is OpenVINO's default.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import openvino
from openvino_genai import ContinuousBatchingPipeline, GenerationConfig, SchedulerConfig

CACHE = 4  # GB of cells
MOST_TOKENS = 16_384  # of a step: a prompt is computed in one
KNOWN = ("temperature", "top_k", "top_p", "min_p")


def settings(command: dict[str, Any]) -> GenerationConfig:
    config = GenerationConfig()
    config.max_new_tokens = command["max_tokens"]
    config.num_return_sequences = command["n"]
    config.ignore_eos = config.do_sample = True
    for name, value in command["sampling"].items():
        if name in KNOWN:
            setattr(config, name, value)
        elif name != "ignore_eos":
            raise ValueError(f"OpenVINO GenAI has no {name}")
    return config


def answer(pipeline: ContinuousBatchingPipeline, number: int, command: dict[str, Any]) -> None:
    """Writes a line for each sequence and step, and its length at the end."""
    tokens = openvino.Tensor(np.array([command["tokens"]], np.int64))
    handle = pipeline.add_request(number, tokens, settings(command))  # without it the request is dropped
    indices = range(command["n"])
    while pipeline.has_non_finished_requests():
        pipeline.step()
        write(*({"event": "stream", "index": i} for i in indices))
    lengths = [len(output.generated_ids) for output in handle.read_all()]
    write(*({"event": "stop", "index": i, "length": length} for i, length in enumerate(lengths)))


def write(*events: dict[str, Any]) -> None:
    sys.stdout.write("".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events))
    sys.stdout.flush()


def main() -> None:
    model, threads, sequences = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    scheduler = SchedulerConfig()
    scheduler.cache_size = CACHE
    scheduler.enable_prefix_caching = True
    scheduler.max_num_batched_tokens = MOST_TOKENS
    scheduler.max_num_seqs = max(sequences, 16)
    pipeline = ContinuousBatchingPipeline(model, scheduler, "CPU", {"INFERENCE_NUM_THREADS": threads})
    seen: set[tuple[int, ...]] = set()
    for number, line in enumerate(sys.stdin):
        command = json.loads(line)
        prompt = tuple(command["tokens"])
        answer(pipeline, number, command)
        write({"event": "done", "id": command["id"], "cached_tokens": len(prompt) if prompt in seen else 0})
        seen.add(prompt)


if __name__ == "__main__":
    main()
