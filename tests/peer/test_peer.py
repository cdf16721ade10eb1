"""llama.cpp's own tests of its server pass here, but for a list of known differences: tests/peer says how."""

from __future__ import annotations

from tests.peer import baseline, suite
from tests.support.places import STORYTELLER


def test_the_baseline_is_of_the_pinned_commit_and_of_the_bundled_model() -> None:
    recorded = baseline.recorded()
    assert recorded["llama.cpp"] == suite.commit()
    assert recorded["model"]["sha256"] == suite.sha256(STORYTELLER)


def test_few_tests_of_the_baseline_are_known_to_fail() -> None:
    known, theirs = baseline.known(), baseline.recorded()["outcomes"]
    missing = known["excluded"] | known["failing"]
    assert len(known["excluded"]) <= baseline.MOST_EXCLUDED
    assert len(missing) <= baseline.MOST_MISSING
    assert not [test for test in missing if theirs.get(test) != "passed"]
    assert not [test for test in known["absent"] if theirs.get(test) == "passed"]
    assert all((missing | known["absent"]).values()), "each has its reason"


def test_the_subset_passes_as_with_llama_server() -> None:
    outcomes = suite.run(suite.OURS, baseline.subset(), workers=2)
    assert not baseline.faults(outcomes)
    assert list(outcomes.values()).count("passed") >= 50
