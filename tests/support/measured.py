"""The samples of /metrics, summed by their labels."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families

from tests.support.served import Served
from tests.support.waiting import PATIENCE


class Measured:
    """The samples of one answer."""

    def __init__(self, text: str) -> None:
        self.samples = [one for family in text_string_to_metric_families(text) for one in family.samples]

    def sum(self, name: str, **labels: str) -> float:
        """The sum of the samples of this name with these labels; KeyError if there is none."""
        found = [
            one.value for one in self.samples if one.name == name and labels.items() <= one.labels.items()
        ]
        if not found:
            raise KeyError(name, labels)
        return sum(found)

    def by(self, label: str, name: str, **labels: str) -> dict[str, float]:
        """The sums by the values of a label, without zeros."""
        sums: defaultdict[str, float] = defaultdict(float)
        for one in self.samples:
            if one.name == name and labels.items() <= one.labels.items() and one.value:
                sums[one.labels[label]] += one.value
        return dict(sums)


async def measured(served: Served, **headers: str) -> Measured:
    async with served.http.get(served.url + "/metrics", headers=headers) as response:
        assert response.status == 200
        return Measured(await response.text())


async def measured_when(served: Served, holds: Callable[[Measured], bool]) -> Measured:
    """Scrapes until the condition holds of the samples."""
    async with asyncio.timeout(PATIENCE):
        while not holds(found := await measured(served)):  # noqa: ASYNC110 (they are what is polled)
            await asyncio.sleep(0.01)
    return found
