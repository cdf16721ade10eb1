"""Snapshots of prefixes in host memory, and on disk across processes. A fault of a file is a line in the log
and a miss, never an error of a request.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real.test_laws import check_idle
from tests.real.test_prefix import n_computed, words
from tests.support.disks import small_disk
from tests.support.lines import LIMIT, Answer
from tests.support.models import write_model
from tests.support.paced import Paced
from tests.support.places import BINARY, STORYTELLER

Request = dict[str, Any]

ROOMY = ("-c", "4096", "-np", "8", "-t", "1")
PROMPT = words(1, 200)


def story(prompt: str = PROMPT, **fields: Any) -> Request:
    request = {"prompt": prompt, "n": 2, "max_tokens": 12, "min_tokens": 12, "logprobs": 0}
    return request | {"sampling": {"seed": 7}} | fields


class Shelf:
    """A folder of prefixes, and the engines that use it, one after another or at the same time."""

    def __init__(self, path: Path) -> None:
        self.folder = path / "prefixes"
        self._logs = (path / f"log{i}" for i in range(100))

    def engine(self, *flags: str, **options: Any) -> Paced:
        return Paced(next(self._logs), *ROOMY, "--prefix-cache", str(self.folder), *flags, **options)

    def ask(self, *flags: str, prompt: str = PROMPT, **options: Any) -> tuple[Answer, list[str]]:
        """Sends one request to a new process; returns the answer and the log's lines about prefixes."""
        with self.engine(*flags, **options) as engine:
            answer = engine.generate(**story(prompt))
            assert answer.lengths == [12, 12]
            check_idle(engine)
            log = engine.finish()
        return answer, [line for line in log.splitlines() if "prefix cache" in line]

    @property
    def files(self) -> list[Path]:
        return sorted(self.folder.glob("*.kv*")) if self.folder.is_dir() else []

    @property
    def file(self) -> Path:
        (file,) = self.files
        return file


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def same(first: Answer, second: Answer, bound: float = 0.15) -> bool:
    """Law 3 for two runs: logprobs are close up to the first different token (bundled weights are Q8_0)."""
    for ours, theirs in zip(first.tokens, second.tokens, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            if a["id"] != b["id"]:
                break
            if abs(a["logprob"] - b["logprob"]) > bound:
                return False
    return True


# In host memory


def test_evicted_prefixes_are_restored_from_memory(tmp_path: Path) -> None:
    with Paced(tmp_path / "log", *ROOMY, "--cache-cells", "0") as engine:
        cold = engine.generate(**story())
        engine.wait_for_trim(0)
        warm = engine.generate(**story())
        engine.wait_for_trim(0)
        chosen = engine.generate(**story(PROMPT + cold.texts[1]))
        check_idle(engine)
    assert n_computed(warm) == 0
    assert n_computed(chosen) <= 14  # of two candidates that differ by little only one is kept
    assert same(cold, warm)


def test_in_a_tiny_pool_several_prompts_are_evicted_and_restored(tmp_path: Path) -> None:
    prompts = [words(seed, 180) for seed in range(4)]  # each needs most of the cells
    with Paced(tmp_path / "log", "-c", "256", "-np", "2", "-t", "1") as engine:
        cold, warm = ([engine.generate(**story(prompt)) for prompt in prompts] for _ in range(2))
        assert [n_computed(answer) for answer in warm] == [0] * 4
        assert all(same(a, b) for a, b in zip(cold, warm, strict=True))
        check_idle(engine)


def test_of_a_prompt_and_its_candidates_one_snapshot_is_kept(tmp_path: Path) -> None:
    first, second = (words(seed, 200) for seed in (1, 2))
    room = "3000000"  # bytes for three prompts; a prompt and one candidate take a million
    with Paced(tmp_path / "log", *ROOMY, "--cache-cells", "0", "--cache-ram", room) as engine:
        for prompt in (first, second):
            engine.generate(**story(prompt, n=8))
            engine.wait_for_trim(0)
        warm = [engine.generate(**story(prompt)) for prompt in (first, second)]
    assert [n_computed(answer) for answer in warm] == [0, 0]


def tails(engine: Paced, prompt: str, n: int = 4) -> list[str]:
    """The prompt with each of n continuations, long enough for a snapshot; all of them were evicted."""
    answer = engine.generate(**story(prompt, n=n, max_tokens=90, min_tokens=90))
    engine.wait_for_trim(0)
    engine.wait_for_sleep()
    return [prompt + text for text in answer.texts]


def test_candidates_share_the_snapshot_of_their_prompt(tmp_path: Path) -> None:
    room = "2700000"  # bytes for 650 tokens: one prompt of 200 and four texts of 90, but not two prompts
    with Paced(tmp_path / "log", *ROOMY, "--cache-cells", "0", "--cache-ram", room) as engine:
        for text in tails(engine, PROMPT):
            assert n_computed(engine.generate(**story(text))) <= 3
            engine.wait_for_trim(0)


def test_a_text_that_grew_in_small_steps_is_restored(tmp_path: Path) -> None:
    story_so_far = words(1, 400).split()
    texts = [" ".join(story_so_far[:n]) for n in range(40, 401, 40)]
    with Paced(tmp_path / "log", *ROOMY, "--cache-cells", "450") as engine:
        for text in texts:
            engine.generate(**story(text, n=1))
        engine.generate(**story(words(2, 400)))
        engine.wait_for_trim(450)  # nearly all of it is evicted
        again = engine.generate(**story(texts[-1], n=1))
    assert n_computed(again) <= again.start["prompt_tokens"] // 4


@pytest.mark.parametrize("size", ["0", "1K"])
def test_prefixes_beyond_the_memory_limit_are_computed_again(tmp_path: Path, size: str) -> None:
    with Paced(tmp_path / "log", *ROOMY, "--cache-cells", "0", "--cache-ram", size) as engine:
        for _ in range(2):
            assert engine.generate(**story()).start["cached_tokens"] == 0
            engine.wait_for_trim(0)


def test_the_memory_limit_can_be_changed_while_running(tmp_path: Path) -> None:
    ample = 1 << 32
    with Paced(tmp_path / "log", *ROOMY, "--cache-cells", "0", "--cache-ram", "0") as engine:
        for limit, known in ((0, False), (ample, False), (ample, True), (1 << 10, False), (ample, False)):
            assert engine.ask("limits", cache_ram=limit)["event"] == "result"
            answer = engine.generate(**story())
            assert (answer.start["cached_tokens"] > 0) == known, limit
            engine.wait_for_trim(0)
            engine.wait_for_sleep()


# On disk


@pytest.mark.parametrize("ram", ["4G", "0"])
def test_another_process_finds_the_prompt_on_disk(shelf: Shelf, ram: str) -> None:
    cold, _ = shelf.ask("--cache-ram", ram)
    assert [file.suffix for file in shelf.files] == [".kv"] * len(shelf.files)
    warm, log = shelf.ask("--cache-ram", ram)
    assert (cold.start["cached_tokens"], n_computed(warm)) == (0, 1)
    assert same(cold, warm)
    assert log == []


@pytest.mark.parametrize("ram", ["2M", "0"])  # bytes for some of them, for none
def test_prefixes_beyond_the_memory_limit_are_restored_from_disk(shelf: Shelf, ram: str) -> None:
    with shelf.engine("--cache-cells", "0", "--cache-ram", ram) as engine:
        for text in tails(engine, PROMPT):
            assert n_computed(engine.generate(**story(text))) <= 3
            engine.wait_for_trim(0)
        assert "prefix cache" not in engine.finish()


def test_another_process_finds_each_candidate_on_disk(shelf: Shelf) -> None:
    with shelf.engine("--cache-cells", "0", "--cache-ram", "0") as engine:
        texts = tails(engine, PROMPT)
        engine.finish()
    for text in texts:
        answer, log = shelf.ask(prompt=text)
        assert n_computed(answer) <= 3
        assert log == []


def test_a_process_for_one_request_writes_a_complete_file(shelf: Shelf) -> None:
    """End of file follows the request at once, as in --engine-mode per-request."""
    argv = [BINARY, "-m", STORYTELLER, *ROOMY, "--prefix-cache", shelf.folder]
    line = b'{"op":"generate","id":"1","prompt":"%s","n":4,"max_tokens":3}\n' % PROMPT.encode()
    subprocess.run(argv, input=line, capture_output=True, timeout=LIMIT, check=True)
    assert len(shelf.files) == 1
    answer, log = shelf.ask()
    assert (n_computed(answer), log) == (1, [])


def test_a_prefix_command_fills_the_folder_too(shelf: Shelf) -> None:
    with shelf.engine() as engine:
        engine.ask("prefix", prompt=PROMPT)
        engine.finish()
    assert n_computed(shelf.ask()[0]) == 1


def test_only_their_owner_reads_the_files(shelf: Shelf) -> None:
    shelf.ask()
    modes = [path.stat().st_mode & 0o777 for path in (shelf.folder, *shelf.files)]
    assert [oct(mode) for mode in modes] == ["0o700", "0o600"]


def test_without_cache_nothing_goes_to_disk(shelf: Shelf) -> None:
    with shelf.engine("--cache-cells", "0") as engine:
        engine.generate(**story(cache=False))
        engine.finish()
    assert shelf.files == []


def test_two_processes_share_the_folder(shelf: Shelf) -> None:
    """While both run, each finds the other's files; both may write the same file."""
    with shelf.engine() as one, shelf.engine() as other:
        one.generate(**story())
        wait_for_files(one, shelf, 1)
        assert n_computed(other.generate(**story())) == 1
        both = words(2, 150)
        ids = [engine.begin(**story(both)) for engine in (one, other)]
        for engine, id in zip((one, other), ids, strict=True):
            engine.answers([id])
        logs = [engine.finish() for engine in (one, other)]
    assert not any("prefix cache" in log for log in logs)
    assert n_computed(shelf.ask(prompt=both)[0]) == 1


def wait_for_files(engine: Paced, shelf: Shelf, n: int) -> None:
    engine.wait_for_log(lambda _: len([file for file in shelf.files if file.suffix == ".kv"]) >= n)


# Incomplete prefixes


SLOW = (
    "-c",
    "4096",
    "-np",
    "2",
    "-ub",
    "64",
    "-t",
    "1",
    "--cache-ram",
    "0",
)  # a prompt of 900 tokens takes 15 steps
PARTIAL = words(4, 900)


def begun(engine: Paced) -> None:
    """Waits until a part of a prompt is computed."""
    while engine.ask("status")["step_tokens"] < 64:
        pass


@pytest.mark.parametrize("indices", [[None], [0, 1]], ids=["all", "one by one"])
def test_a_prompt_that_was_cancelled_halfway_is_not_written(shelf: Shelf, indices: list[int | None]) -> None:
    with shelf.engine(*SLOW) as engine:
        id = engine.begin(**story(PARTIAL))
        begun(engine)
        for index in indices:
            engine.send({"op": "cancel", "id": id} | ({} if index is None else {"index": index}))
        (answer,) = engine.answers([id])
        assert answer.lengths == [0, 0]
        assert engine.ask("status")["step_tokens"] < 900, "it was halfway"
        engine.finish()
    assert shelf.files == []


def test_a_prefix_that_was_superseded_halfway_is_not_written(shelf: Shelf) -> None:
    with shelf.engine(*SLOW) as engine:
        ids = engine.send({"op": "prefix", "prompt": PARTIAL})
        begun(engine)
        ids += engine.send({"op": "prefix", "prompt": PROMPT})
        engine.answers(ids)
        assert engine.ask("status")["step_tokens"] < 900 + 200
        engine.finish()
    assert len(shelf.files) == 1
    assert n_computed(shelf.ask(prompt=PROMPT)[0]) == 1


def test_after_a_failed_step_its_cells_are_not_reused(shelf: Shelf) -> None:
    """The contents of its cells are unknown, also of the prompt for which two of four sequences wait."""
    with shelf.engine("-np", "2", LLAMA_BATCHED_FAIL_STEP="20") as engine:
        failed = engine.answers([engine.begin(**story(n=4, max_tokens=50, min_tokens=50))])[0].events[-1]
        assert (failed["event"], failed["code"]) == ("error", "engine_error")
        status = engine.ask("status")
        assert (status["cells_used"], status["requests"], status["sequences"]) == (0, 0, 0)
        again = engine.generate(**story())
        assert again.start["cached_tokens"] == 0
        engine.finish()
    assert len(shelf.files) == 1
    cold = Shelf(shelf.folder.parent / "cold")
    cold.folder.parent.mkdir()
    assert same(again, cold.ask()[0])


@pytest.mark.parametrize("kind", ["llama", "mamba"])
def test_after_a_step_that_found_no_cells_all_requests_finish(tmp_path: Path, kind: str) -> None:
    """Such a step changes no cell: the youngest is preempted, and a prefix is not done before its prefill."""
    write_model(tmp_path / "model.gguf", kind)
    first = words(2, 150)  # a step long enough for the other command to come
    prefix = words(1, 30)  # computed in the second step, with the tokens of the request
    model, fault = tmp_path / "model.gguf", {"LLAMA_BATCHED_FAIL_STEP": "2:1"}
    with Paced(tmp_path / "log", *ROOMY, model=model, **fault) as engine:
        ids = engine.send(
            {"op": "generate"} | story(first, n=1, max_tokens=30, min_tokens=30),
            {"op": "prefix", "prompt": prefix},
        )
        assert [answer.events[-1]["event"] for answer in engine.answers(ids)] == ["done", "done"]
        assert n_computed(engine.generate(**story(prefix))) <= 1
        check_idle(engine)


# Faults of a file

# A file: magic, fingerprint, adapters, tokens, parts, two checksums; the tokens; the tokens and bytes of each
# part; the parts.
HEADER = 8 + 6 * 8


def flip(place: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:place] + bytes([data[place] ^ 1]) + data[place:][1:]


def flip_after_tokens(place: int) -> Callable[[bytes], bytes]:
    return lambda data: flip(HEADER + 4 * int.from_bytes(data[24:32], "little") + place)(data)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "a bit of the state": flip(100_000),
    "a bit of the last bytes": flip(-1),
    "a bit of a token": flip(HEADER + 4 * 100),
    "a high bit of a token": flip(HEADER + 4 * 100 + 3),
    "a bit of the magic": flip(0),
    "a bit of the fingerprint": flip(8),
    "a bit of the number of tokens": flip(24),
    "a high bit of the number of tokens": flip(31),
    "a bit of the number of parts": flip(32),
    "a high bit of the number of parts": flip(39),
    "a bit of the number of a part's tokens": flip_after_tokens(0),
    "a high bit of the number of a part's tokens": flip_after_tokens(7),
    "a bit of the number of a part's bytes": flip_after_tokens(8),
    "a high bit of the number of a part's bytes": flip_after_tokens(15),
    "a bit of the parts' checksum": flip(40),
    "a bit of the head's checksum": flip(48),
    "half of it missing": lambda data: data[: len(data) // 2],
    "the last byte missing": lambda data: data[:-1],
    "one byte too many": lambda data: data + b"x",
    "only half of the header": lambda data: data[:20],
    "nothing": lambda data: b"",
    "rubbish": lambda data: os.urandom(len(data)),
}


@pytest.fixture(scope="module")
def whole_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shelf = Shelf(tmp_path_factory.mktemp("whole"))
    shelf.ask()
    return shelf.file


def test_any_damage_is_a_line_in_the_log_and_a_miss(shelf: Shelf, whole_file: Path) -> None:
    """All kinds of damage in one folder, each in its own file."""
    for name, damage in DAMAGES.items():
        shelf.folder.mkdir(exist_ok=True)
        (shelf.folder / f"{name}.kv").write_bytes(damage(whole_file.read_bytes()))
        answer, log = shelf.ask()
        assert (name, answer.start["cached_tokens"], len(log)) == (name, 0, 1)
        shutil.rmtree(shelf.folder)


def test_a_half_written_file_of_another_process_is_ignored(shelf: Shelf, whole_file: Path) -> None:
    shelf.folder.mkdir()
    (shelf.folder / f"{whole_file.name}.12345").write_bytes(whole_file.read_bytes()[:5000])
    answer, log = shelf.ask()
    assert (answer.start["cached_tokens"], log) == (0, [])


@pytest.fixture(scope="module")
def another_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("another") / "model.gguf"
    write_model(path, "llama")
    return path


FOREIGN: dict[str, tuple[str, ...]] = {
    "kinds of cells": ("-ctk", "f32", "-ctv", "f32", "-fa", "off"),
    "rope": ("--rope-freq-base", "20000"),
}


@pytest.mark.parametrize("flags", FOREIGN.values(), ids=FOREIGN)
def test_a_file_of_other_settings_is_a_miss(shelf: Shelf, flags: tuple[str, ...]) -> None:
    shelf.ask()
    answer, log = shelf.ask(*flags)
    assert (answer.start["cached_tokens"], len(log)) == (0, 1)
    assert [n_computed(shelf.ask(*flags)[0]) for flags in ((), flags)] == [1, 1]  # both are cached now


def test_a_file_of_another_model_is_a_miss(shelf: Shelf, another_model: Path) -> None:
    shelf.ask()
    answer, log = shelf.ask(model=another_model)
    assert (answer.start["cached_tokens"], len(log)) == (0, 1)


# Faults of the folder


@pytest.fixture
def full_folder(shelf: Shelf) -> Iterator[Shelf]:
    """A folder on a file system of 64 KiB."""
    with small_disk(shelf.folder, "64k"):
        yield shelf


def test_a_full_disk_is_a_line_in_the_log(full_folder: Shelf) -> None:
    for _ in range(2):
        answer, log = full_folder.ask()
        assert (answer.start["cached_tokens"], len(log)) == (0, 1)
        assert full_folder.files == []


def test_a_folder_that_cannot_be_made_is_a_line_in_the_log(shelf: Shelf) -> None:
    shelf.folder.write_text("a file, and no folder")
    answer, log = shelf.ask()
    assert answer.start["cached_tokens"] == 0
    assert len(log) >= 1
    assert str(shelf.folder) in log[0]


def test_a_folder_that_is_removed_is_a_miss(shelf: Shelf) -> None:
    shelf.ask()
    with shelf.engine() as engine:
        shutil.rmtree(shelf.folder)
        assert engine.generate(**story()).start["cached_tokens"] == 0
        assert engine.generate(**story()).lengths == [12, 12]


def test_a_full_folder_loses_its_least_recently_used_prefix(shelf: Shelf, whole_file: Path) -> None:
    prompts = [words(seed, 200) for seed in (1, 2, 3, 4)]
    limit = ("--prefix-cache-size", str(whole_file.stat().st_size * 5 // 2), "--cache-ram", "0")
    for i in (0, 1, 0, 2):  # room for two prefixes; the first is used after the second
        shelf.ask(*limit, prompt=prompts[i])
        age(shelf)
    assert sum(file.stat().st_size for file in shelf.files) <= whole_file.stat().st_size * 5 // 2
    assert [n_computed(shelf.ask(*limit, prompt=prompts[i])[0]) for i in (0, 2)] == [1, 1]
    assert shelf.ask(*limit, prompt=prompts[1])[0].start["cached_tokens"] < 10


def age(shelf: Shelf) -> None:
    """Makes the files a minute older."""
    for file in shelf.files:
        stat = file.stat()
        os.utime(file, (stat.st_atime - 60, stat.st_mtime - 60))
