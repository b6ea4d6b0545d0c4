"""The figures of a run as files: ``metrics.jsonl`` (a line for each iteration and each epoch), ``per-epoch.json``."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Self

from agentcore_site.jobs.models import Status
from agentcore_site.lib.async_db import briefly
from agentcore_site.lib.money import dollars
from agentcore_site.lib.row_streams import streamed
from training.exports.manifests import OF_EPOCH, averages
from training.models import Iteration, TrainingRun
from training.selectors.run_lessons import EpochFigures, run_epochs

CHUNK = 500  # iterations that are held at once: a run may have ten thousand


@dataclass(frozen=True)
class MetricFile:
    """``metrics.jsonl``: the iterations in their order, and after the last of each epoch that epoch's means with its
    tools. A run of an agent that chooses actions has no epochs. ``ends``: the last iteration of each of ``epochs``."""

    run: TrainingRun
    epochs: Sequence[EpochFigures]
    ends: Sequence[int]

    @classmethod
    def of(cls, run: TrainingRun) -> Self:
        epochs = run_epochs(run)
        return cls(run, epochs, [*accumulate(epoch["iterations"] for epoch in epochs)])

    def lines(self, last: int | None) -> tuple[int | None, bytes]:
        """(the last iteration, the next lines) after an iteration; no lines at the end."""
        rows = Iteration.objects.filter(run=self.run).order_by("number")
        found = list((rows if last is None else rows.filter(number__gt=last))[:CHUNK])
        return (found[-1].number if found else last), b"".join(line for row in found for line in self._of(row))

    @briefly
    def batch(self, last: int | None) -> tuple[int | None, bytes]:
        return self.lines(last)

    def _of(self, row: Iteration) -> Iterator[bytes]:
        at = bisect_left(self.ends, row.number)
        epoch = self.epochs[at] if at < len(self.ends) else None
        yield _line(_iteration(row, None if epoch is None else epoch["epoch"]))
        if epoch is not None and row.number == self.ends[at]:
            yield _line({"type": "epoch", **_epoch(epoch)})


def metric_lines(file: MetricFile) -> AsyncIterator[bytes]:
    """The lines, batch by batch."""
    return streamed(file.batch)


def per_epoch(run: TrainingRun) -> dict[str, Any]:
    """``per-epoch.json``: each epoch's means and tools, and the means over all of them. An epoch that a run broke off
    in is here with the figures it had by then."""
    epochs = run_epochs(run)
    return {
        "job_id": str(run.pk),
        "status": run.job.status,
        "complete": run.job.status == Status.COMPLETED,
        "epochs": [_epoch(epoch) for epoch in epochs],
        "averages": averages(epochs),
    }


def _epoch(one: Mapping[str, Any]) -> dict[str, Any]:
    return {name: one[name] for name in OF_EPOCH}


def _iteration(row: Iteration, epoch: int | None) -> dict[str, Any]:
    return {
        "type": "iteration",
        "epoch": epoch,
        "iteration": row.number,
        "at": row.created_at.isoformat(),
        "trajectories": row.trajectories,
        "cost_usd": dollars(row.cost_micros),
        "rollout_ms": row.rollout_ms,
        "update_ms": row.update_ms,
        "metrics": row.metrics,
        "selection": row.selection,
    }


def _line(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, ensure_ascii=False, default=str) + "\n").encode()
