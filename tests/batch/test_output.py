"""The output of a batch: each line once, after any end of its process."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llama_srb.batch.output import Output, OutputError
from tests.support.batches import ids, read
from tests.support.places import ROOT
from tests.support.rows import each_row


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


def write(out: Path, *custom_ids: str, failed: str = "", fingerprint: str = "f") -> None:
    with Output(out) as output:
        output.read()
        output.begin(fingerprint)
        for one in custom_ids:
            output.write(one, response={"status_code": 200}, failed=one in failed)
        output.sync()


def errors_of(out: Path) -> Path:
    return out.with_name(out.name + ".errors.jsonl")


def test_lines_that_failed_are_in_another_file(out: Path) -> None:
    write(out, "a", "b", "c", failed="b")
    assert (ids(read(out)), ids(read(errors_of(out)))) == (["a", "c"], ["b"])
    assert read(out)[0].keys() == {"id", "custom_id", "response", "error"}
    assert len({one["id"] for one in read(out)}) == 2


def test_a_batch_without_failed_lines_leaves_no_file_of_them(out: Path) -> None:
    write(out, "a")
    assert not errors_of(out).exists()


def test_a_later_run_adds_what_is_not_there(out: Path) -> None:
    write(out, "a", "b", failed="b")
    write(out, "b", "a", "c", "b")
    assert (ids(read(out)), ids(read(errors_of(out)))) == (["a", "c"], ["b"])


@each_row("keep", range(0, 200, 7))
def test_a_torn_last_line_is_cut(tmp_path: Path, keep: int) -> None:
    out = tmp_path / "out.jsonl"
    write(out, "a", "b")
    whole = out.read_bytes()
    second = whole.index(b"\n") + 1
    out.write_bytes(whole[: min(second + keep, len(whole) - 1)])
    with Output(out) as output:
        output.read()
        assert len(output.done) == 1
        output.begin("f")
        assert out.read_bytes() == whole[:second]
        output.write("b", failed=False)
    assert ids(read(out)) == ["a", "b"]


def test_a_line_that_is_torn_and_longer_than_a_read_is_cut(out: Path) -> None:
    write(out, "a")
    whole = out.read_bytes()
    out.write_bytes(whole + b"x" * 300_000)
    write(out)
    assert out.read_bytes() == whole


def test_another_input_is_refused_and_nothing_changes(out: Path) -> None:
    write(out, "a")
    with out.open("ab") as file:
        file.write(b"torn")
    before = out.read_bytes()
    with pytest.raises(
        OutputError, match=r"the input has changed .* or delete out\.jsonl, out\.jsonl\.errors"
    ):
        write(out, "b", fingerprint="other")
    assert out.read_bytes() == before


def test_a_file_of_somebody_else_is_not_written(out: Path) -> None:
    out.write_text("my notes")
    with pytest.raises(OutputError, match="no batch has begun it; name another output"):
        write(out, "a")
    assert out.read_text() == "my notes"


@pytest.mark.parametrize("state", ["{", "[]", '{"format": 2, "input": "f"}', "{}"])
def test_a_state_that_is_none_is_refused(out: Path, state: str) -> None:
    out.with_name("out.jsonl.state").write_text(state)
    with pytest.raises(OutputError, match="is not the state of a batch"):
        write(out, "a")


def test_a_line_that_is_none_is_refused_by_its_number(out: Path) -> None:
    write(out, "a")
    with out.open("a") as file:
        file.write('{"custom_id": "b"}\nwhat\n')
    with pytest.raises(OutputError, match=r"line 3 of .*out\.jsonl is no line of a batch"):
        write(out, "c")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot write .*out\.state: No such file"):
        write(tmp_path / "none" / "out", "a")


def test_failed_lines_may_be_sent_again(out: Path) -> None:
    write(out, "a", "b", failed="b")
    with Output(out, retry_failed=True) as output:
        output.read()
        assert (len(output.done), output.failed) == (1, 0)
        output.begin("f")
        output.write("b", failed=False)
        output.sync()
    assert (ids(read(out)), errors_of(out).exists()) == (["a", "b"], False)


def test_the_failed_lines_stay_if_the_input_is_another(out: Path) -> None:
    write(out, "b", failed="b")
    with Output(out, retry_failed=True) as output, pytest.raises(OutputError):
        output.begin("other")
    assert ids(read(errors_of(out))) == ["b"]


HOLDER = """
import sys
from pathlib import Path
from llama_srb.batch.output import Output
with Output(Path(sys.argv[1])) as output:
    output.begin("f")
    print("begun", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(out: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that writes the same output."""
    command = [sys.executable, "-c", HOLDER, str(out)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:  # type: ignore[call-overload]
        yield process
        process.kill()


def test_two_processes_cannot_write_one_output(out: Path, holder: subprocess.Popen[str]) -> None:
    assert holder.stdout
    assert holder.stdout.readline() == "begun\n"
    with pytest.raises(OutputError, match="another process writes"):
        write(out, "a")
    holder.kill()
    holder.wait()
    write(out, "a")
    assert ids(read(out)) == ["a"]


def test_a_line_that_does_not_fit_on_the_disk_is_not_half_there(out: Path) -> None:
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Output(out) as output:
        output.begin("f")
        output.write("a", failed=False)
        resource.setrlimit(resource.RLIMIT_FSIZE, (out.stat().st_size + 300, old[1]))
        try:
            with pytest.raises(OSError, match="File too large"):
                output.write("b", response="x" * 1000, failed=False)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)
        output.write("c", failed=False)
        output.write("b", failed=False)
    assert ids(read(out)) == ["a", "c", "b"]


def test_a_late_write_after_the_end_is_not_done(out: Path) -> None:
    with Output(out) as output:
        output.begin("f")
    output.write("late", failed=False)
    assert read(out) == []
