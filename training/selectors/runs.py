"""Reads of training: runs, their curves, groups and verdicts, scoped to the actor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import fmean, median
from typing import Any, Final, TypedDict
from uuid import UUID

from django.db.models import CharField, F, Q, QuerySet, Sum
from django.db.models.functions import Cast
from django.utils import timezone

from agentcore_site.jobs.models import Reason, Status
from agentcore_site.jobs.selectors import as_uuid
from agentcore_site.lib.errors import Missing
from agentcore_site.lib.figures import minus, p_words, signed
from agentcore_site.lib.money import dollars
from agentcore_site.tenancy.actors import Actor
from experiences.models import GroupRecord, TrajectoryRecord
from experiences.trajectories.archive.reading import job_rows
from experiences.trajectories.exports.rows import as_exported, jsonl_line
from training.algorithm.inference import surely_apart
from training.checkpoint_bytes import Damaged, checkpoint_load
from training.models import LARGE, Iteration, PolicyCheckpoint, TrainingRun, with_money

SERIES_METRICS: Final = (
    "success_rate",
    "reward_mean",
    "reward_std",
    "entropy",
    "approx_kl",
    "frac_reward_zero_std",
    "steps_mean",
    "clip_fraction",
    "grad_norm",
    "failed_rollouts",
    "lessons",
    "told_tokens",
)
SERIES_POINTS = 2000
OF_AN_ID: Final = re.compile(r"[0-9a-fA-F-]{1,36}")
_LOADED: Final[set[tuple[UUID, str]]] = set()  # checkpoints that this process has loaded
NEXT_STEP: Final = "Check the expected outcomes and the scorer, or take easier queries."
AVERAGED_VALIDATIONS: Final = 3  # that the moving average of the selection success is taken over
RISING: Final = 0.9  # share of its steps that must go up for a run to count as improving
STOPPED: Final[Mapping[str, str]] = {
    Reason.EARLY_STOPPED: ", stopped early: no further gain",
    Reason.EQUAL_REWARDS: ", stopped early: rewards were equal in each group",
}
PACE = 20  # iterations whose pace is that of the rest


def runs_visible(actor: Actor) -> QuerySet[TrainingRun]:
    rows = with_money(TrainingRun.objects.visible_to(actor))
    # As it always is; said, the newest are found in the index of jobs, and not among all of them.
    rows = rows.filter(job__organization_id=F("organization_id"))
    rows = rows.select_related("job", "job__created_by", "agent", "dataset", "best_checkpoint")
    return rows.defer("best_checkpoint__data")  # up to 10 MB a row


def measured(runs: QuerySet[TrainingRun], *names: str) -> QuerySet[TrainingRun]:
    """Runs whose verdict has these numbers. Runs without a change, or without held-out queries (null), are left out."""
    for name in names:
        runs = runs.filter(**{f"verdict__{name}__isnull": False}).exclude(**{f"verdict__{name}": None})
    return runs


def run_get(actor: Actor, job_id: Any) -> TrainingRun:
    """Raises:
    Missing: there is no such run, or it belongs to another organisation."""
    found = runs_visible(actor).filter(job_id=as_uuid(job_id)).first()
    if found is None:
        raise Missing(f"There is no training job {str(job_id)[:60]}.")
    return found


def called(query: str) -> Q:
    """Rows whose job's title or agent's name holds the text."""
    return Q(job__title__icontains=query) | Q(agent__name__icontains=query) | Q(agent__slug__icontains=query)


def described(query: str) -> Q:
    """Training runs whose note holds the text, or that carry it as a tag."""
    return Q(note__icontains=query) | Q(tags__contains=[query])


def searched(rows: QuerySet[Any], query: str, *, also: Q | None = None) -> QuerySet[Any]:
    """Rows that a person finds by the text: in the job's title, the agent's name, at the end of the job's id, or as
    ``also`` says."""
    meant = called(query) | (also or Q())
    if OF_AN_ID.fullmatch(query):  # to write each row's id as text takes longer than to compare it
        rows = rows.annotate(key=Cast("job_id", CharField()))
        meant |= Q(key__endswith=query.lower())
    return rows.filter(meant)


def checkpoints_visible(actor: Actor) -> QuerySet[PolicyCheckpoint]:
    rows = PolicyCheckpoint.objects.visible_to(actor).select_related("run", "agent")
    return rows.defer("data", *(f"run__{name}" for name in LARGE))


class Series(TypedDict):
    """Curves of a run; a point is a JSON object."""

    iterations: list[dict[str, Any]]
    selection: list[dict[str, Any]]
    iteration: int


class GroupRow(TypedDict):
    """Groups of one query, by iteration."""

    scenario: int
    query: str
    cells: dict[int, GroupRecord]


class Criterion(TypedDict):
    """One acceptance criterion of a job; ``met`` is None while the proof is to come."""

    name: str
    met: bool | None
    detail: str


def run_series(run: TrainingRun, after: int = 0) -> Series:
    """The curves of a run from iteration ``after`` + 1 on, with every x-axis. Long runs are thinned evenly.

    Never the surrogate loss: it is zero by construction on policy, not progress.
    """
    rows = Iteration.objects.filter(run=run, number__gt=after)
    stride = max(1, -(-(run.iteration - after) // SERIES_POINTS))
    if stride > 1:
        rows = rows.extra(where=["number %% %s = 0 OR selection IS NOT NULL"], params=[stride])
    before = Iteration.objects.filter(run=run, number__lte=after)
    total = before.aggregate(n=Sum("trajectories"), cost_micros=Sum("cost_micros"))
    trajectories, cost_micros = total["n"] or 0, total["cost_micros"] or 0
    per_iteration = run.trajectories / run.iteration if run.iteration else 0
    began = run.job.started_at or run.job.created_at
    iterations, selection = [], []
    for row in rows.order_by("number"):
        trajectories = trajectories + row.trajectories if stride == 1 else round(row.number * per_iteration)
        cost_micros = row.metrics.get("spent_micros") or cost_micros + row.cost_micros
        point = {
            "n": row.number,
            "trajectories": trajectories,
            "cost_usd": dollars(cost_micros),
            "seconds": round((row.created_at - began).total_seconds(), 2),
        }
        iterations.append(point | {name: row.metrics.get(name) for name in SERIES_METRICS})
        if row.selection:
            found = row.selection
            selection.append(
                point
                | {name: found[name] for name in ("success_rate", "low", "high")}
                | {"baseline": found["baseline_success_rate"], "n": found.get("iteration", row.number)}
            )
    return {"iterations": iterations, "selection": selection, "iteration": run.iteration}


def group_grid(run: TrainingRun, *, first: int, last: int) -> list[GroupRow]:
    """Rows are queries, cells are (iteration → group): the run's groups between two iterations."""
    rows: dict[int, GroupRow] = {}
    groups = GroupRecord.objects.filter(job_id=run.job_id, iteration__gte=first, iteration__lte=last)
    for group in groups.order_by("scenario", "iteration"):
        row = rows.setdefault(group.scenario, {"scenario": group.scenario, "query": group.query, "cells": {}})
        row["cells"][group.iteration] = group
    return list(rows.values())


def eta_seconds(run: TrainingRun) -> float | None:
    """Seconds until the last iteration at the pace of the latest ones; None before there is one.

    The median of what lies between them: a pause lies there too, and is no work.
    """
    if run.job.status not in (Status.RUNNING, Status.QUEUED) or run.iteration == 0 or run.job.started_at is None:
        return None
    latest = Iteration.objects.filter(run=run).order_by("-number").values_list("created_at", flat=True)[: PACE + 1]
    times = [*latest] if run.iteration > PACE else [*latest, run.job.started_at]
    gaps = [(later - earlier).total_seconds() for later, earlier in pairwise(times)]
    return max(0.0, median(gaps)) * (run.total_iterations - run.iteration) if gaps else None


def estimated_completion(run: TrainingRun) -> datetime | None:
    left = eta_seconds(run)
    return None if left is None else timezone.now() + timedelta(seconds=left)


def run_verdict(run: TrainingRun) -> str:
    """Status of a run as a sentence: the proof, else the latest validation."""
    proven = run.verdict.get("verdict")
    if proven:
        return str(proven)
    status = run.job.status
    if status == Status.FAILED:
        return f"Failed: {run.job.error or run.job.get_status_reason_display()}"
    seen = run.selection
    if not seen:
        waiting = {Status.QUEUED: "Waiting for a worker.", Status.CANCELLED: "Cancelled before anything was learned."}
        return waiting.get(Status(status), "Nothing is measured yet.")
    gain = seen["improvement"] * 100
    low, high = seen["improvement_low"] * 100, seen["improvement_high"] * 100
    interval = minus(f"95 % interval {low:.1f} to {high:.1f}")
    if run.learns_context:
        decides = "; the gate decides at the end" if run.job.active else ""
        return f"Tried: {signed(gain)} points against {run.baseline} ({interval}) on the selection queries{decides}."
    if low > 0:
        head = f"Better than {run.baseline} by {gain:.1f} points"
    elif high < 0:
        head = f"Worse than {run.baseline} by {-gain:.1f} points"
    else:
        head = f"No proven difference from {run.baseline} ({signed(gain)} points"
        return f"{head}, {interval}) on the selection queries."
    return f"{head} ({interval}) on the selection queries."


def never_solved(run: TrainingRun) -> str:
    """Message for a run without a single solved query in any validation; "" otherwise."""
    seen = run.selection
    if not seen or seen["success_rate"] or seen["baseline_success_rate"]:
        return ""
    if Iteration.objects.filter(run=run, selection__success_rate__gt=0).exists():
        return ""
    return f"No query was ever solved in validation: 0 of {seen['n_queries']}. Nothing can be shown. {NEXT_STEP}"


def best_label(run: TrainingRun) -> str | None:
    return run.best_checkpoint.label if run.best_checkpoint else None


def done_criteria(run: TrainingRun) -> list[Criterion]:
    """The acceptance criteria of a job, each met by the run or not."""
    rising = _rising(run)
    best = run.best_checkpoint
    damage = "" if best is None else _damage(best.id, best.sha256)
    gain, p_value = run.verdict.get("improvement"), run.verdict.get("p_value")
    ended = run.job.status == Status.COMPLETED
    return [
        {
            "name": "All iterations ran",
            "met": ended and run.iteration >= run.total_iterations,
            "detail": f"{run.iteration:,} of {run.total_iterations:,}" + STOPPED.get(run.job.status_reason, ""),
        },
        {
            "name": "Validation rose",
            "met": bool(rising) and sum(rising) >= RISING * len(rising),
            "detail": f"in {sum(rising)} of {len(rising)} steps of its moving average"
            if rising
            else "no two validations yet",
        },
        {
            "name": "Best checkpoint loads",
            "met": best is not None and not damage,
            "detail": damage or best_label(run) or "none",
        },
        {
            "name": "Gain of at least 5 points",
            "met": _gained(run),
            "detail": "nothing was changed"
            if run.verdict.get("changed") is False
            else "not evaluated yet"
            if gain is None
            else f"{signed(gain * 100)} points, {p_words(p_value)}",
        },
        {
            "name": "Cost within budget",
            "met": run.spent_micros <= run.limit_micros,
            "detail": f"${dollars(run.spent_micros):.2f} of ${dollars(run.limit_micros):.2f}",
        },
        {"name": "Trajectories can be exported", "met": _exports(run), "detail": f"{run.trajectories:,}"},
    ]


def _gained(run: TrainingRun) -> bool | None:
    """Whether at least 5 points are proven; None while the proof is to come."""
    if run.verdict.get("changed") is False:
        return False
    gain, p_value, low, high = (run.verdict.get(name) for name in ("improvement", "p_value", "low", "high"))
    if gain is None:
        return None
    return bool(gain >= 0.05 and p_value is not None and surely_apart(p_value, low, high))


def _damage(checkpoint_id: UUID, sha256: str) -> str:
    """Why a checkpoint can't be loaded; "" where it can. It is tried, and once that went well not again: some are
    large, and lie in another service."""
    if (checkpoint_id, sha256) in _LOADED:
        return ""
    try:
        checkpoint_load(PolicyCheckpoint.objects.get(id=checkpoint_id))
    except Damaged as error:
        return error.message
    _LOADED.add((checkpoint_id, sha256))
    return ""


def _exports(run: TrainingRun) -> bool:
    """True if the run has trajectories of its training, and the first can be written as a line of JSONL."""
    with job_rows(None, run.job_id):
        rows = TrajectoryRecord.objects.filter(job_id=run.job_id, purpose="training")
        first = list(rows.order_by("iteration", "scenario", "rollout")[:1])  # as the index has them
    return any(jsonl_line(row) for row in as_exported(first))


def _rising(run: TrainingRun) -> list[bool]:
    """For each validation after the first, whether the mean success of the latest ones rose; a constant is no rise."""
    validations = Iteration.objects.filter(run=run, selection__isnull=False).order_by("number")
    scores = [row["success_rate"] for row in validations.values_list("selection", flat=True)]
    averages = [fmean(scores[max(0, n - AVERAGED_VALIDATIONS + 1) : n + 1]) for n in range(len(scores))]
    return [b > a for a, b in pairwise(averages)]
