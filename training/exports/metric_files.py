"""The figures of a run as files: ``metrics.jsonl`` (a line for each iteration and each epoch), ``per-epoch.json``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agentcore_site.jobs.models import Status
from agentcore_site.lib.money import dollars
from training.exports.manifests import OF_EPOCH, averages
from training.models import Iteration, TrainingRun
from training.selectors.learned import run_epochs

CHUNK = 500  # iterations that are held at once: a run may have ten thousand


def metric_lines(run: TrainingRun) -> Iterator[str]:
    """``metrics.jsonl``: the iterations in their order, and after the last of each epoch that epoch's means with its
    tools. A run of an agent that chooses actions has no epochs."""
    epochs = {one["epoch"]: one for one in run_epochs(run)}
    ends, last = {}, 0
    for number, one in epochs.items():
        last += one["iterations"]
        ends[last] = number
    of_iteration = iter(sorted(ends.items()))
    end, epoch = next(of_iteration, (None, None))
    for row in Iteration.objects.filter(run=run).order_by("number").iterator(chunk_size=CHUNK):
        yield _line(_iteration(row, epoch))
        if row.number == end and epoch is not None:
            yield _line({"type": "epoch", **_epoch(epochs[epoch])})
            end, epoch = next(of_iteration, (None, None))


def per_epoch(run: TrainingRun) -> dict[str, Any]:
    """``per-epoch.json``: each epoch's means and tools, and the means over all of them. An epoch that a run broke off
    in stands here with the figures it had by then."""
    epochs = run_epochs(run)
    return {
        "job_id": str(run.pk),
        "status": run.job.status,
        "complete": run.job.status == Status.COMPLETED,
        "epochs": [_epoch(one) for one in epochs],
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


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, default=str) + "\n"
