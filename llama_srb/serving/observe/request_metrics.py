"""The metrics of generations by model, adapter and dialect; times are in seconds. Knows no HTTP.

Labels have only names from the configuration. Each other name is counted as OTHER, so that clients cannot
make series.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram

PREFIX = "llama_srb"
OTHER = "other"
SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
WHOLE = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800)
BETWEEN_TOKENS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
TOKENS = (1, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)

# fmt: off
HISTOGRAMS = {  # name, help text, buckets
    "first_token_seconds": ("From arrival to the first text.", SECONDS),
    "between_tokens_seconds": ("Between texts of a request.", BETWEEN_TOKENS),
    "queue_seconds": ("From arrival to admission, loads of the model included.", SECONDS),
    "request_seconds": ("From arrival to the end of a request that was admitted.", WHOLE),
    "request_prompt_tokens": ("Tokens of a request's prompt.", TOKENS),
    "request_completion_tokens": ("Tokens that a request has generated, in all of its sequences.", TOKENS),
}
# fmt: on


@dataclass(frozen=True, slots=True)
class Labels:
    """What a generation is counted under. adapter: empty if it names none."""

    dialect: str = "none"
    adapter: str = ""


NO_LABELS = Labels()


def adapter_label(lora: Sequence[tuple[int | str, float]] | None, names: Sequence[str]) -> str:
    """The label of a request's adapters. names: those of the configured ones, by id."""
    used = [which for which, scale in lora or () if scale]
    if not used:
        return ""
    (which, *others) = (names[one] if isinstance(one, int) and one < len(names) else one for one in used)
    return which if which in names and not others else OTHER  # type: ignore[return-value]  # names are texts


class RequestFamilies:
    """The metrics of generations. models: the name of the label for models, if there are several."""

    def __init__(self, registry: CollectorRegistry, models: tuple[str, ...]) -> None:
        labels = (*models, "adapter")
        self._histograms = {
            name: Histogram(f"{PREFIX}_{name}", about, labels, buckets=buckets, registry=registry)
            for name, (about, buckets) in HISTOGRAMS.items()
        }
        about = "Sequences of requests that are over."
        labels = (*labels, "dialect", "finish_reason")
        self._finished = Counter(f"{PREFIX}_finished_sequences", about, labels, registry=registry)

    def of(self, model: tuple[str, ...], labels: Labels) -> RequestMetrics:
        """Those with these labels. model: the value of the label for models, if there are several."""
        histograms = {name: one.labels(*model, labels.adapter) for name, one in self._histograms.items()}
        return RequestMetrics(histograms, self._finished, (*model, labels.adapter, labels.dialect))


@dataclass(frozen=True, slots=True)
class RequestMetrics:
    """The metrics of the generations of one model and adapter in one dialect."""

    histograms: dict[str, Histogram]
    _finished: Counter
    _labels: tuple[str, ...]

    def finished(self, counts: Mapping[str, int]) -> None:
        """Counts sequences that have ended, by finish_reason."""
        for reason, count in counts.items():
            self._finished.labels(*self._labels, reason).inc(count)
