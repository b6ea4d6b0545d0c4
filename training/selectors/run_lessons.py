"""Reads of the lessons of a run: its epochs in figures, its questions, and the lessons themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypedDict, cast
from uuid import UUID

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Avg, Count, Q, QuerySet, Sum, Value

from agentcore_site.lib.money import dollars
from experiences.learning.lessons.kinds import STAGE, labels_by_name
from experiences.models import Experience, Question
from training.models import Epoch, Iteration, TrainingRun
from training.policies.query_words import hash_of_kind


class ToolFigures(TypedDict):
    """Calls of one tool; the model's own output counts as "model". ``latency_ms`` is the mean."""

    tool: str
    calls: int
    tokens: int
    latency_ms: float | None
    cost_usd: float


class StageFigures(TypedDict):
    """Questions of one stage of reflection. Latencies are means; ``reasons`` counts the unusable answers."""

    stage: str
    asked: int
    refused: int
    repaired: int
    calls: int
    tokens: int
    latency_ms: float | None
    own_ms: float | None
    models: list[str]
    cost_usd: float
    reasons: dict[str, int]


class EpochFigures(TypedDict):
    """One epoch. Means are None without rollouts; ``reflected``, ``changes`` and ``gate`` are as the row has them."""

    epoch: int
    iterations: int
    started_at: datetime
    updated_at: datetime
    rollouts: int
    success_rate: float | None
    reward_mean: float | None
    steps_mean: float | None
    tokens: int
    tokens_mean: float | None
    cost_usd: float
    latency_ms: float | None
    tools: list[ToolFigures]
    reflected: dict[str, Any]
    questions: list[StageFigures]
    taken: int
    refused: int
    refusals: dict[str, int]
    changes: list[dict[str, Any]]
    gate: dict[str, Any] | None


class ContinuedRun(TypedDict):
    """The earlier run that a run goes on from, and what it took over: lessons ``refused`` by its gate, and the effects
    of ``rollouts``, each at ``weight`` since the agent has ``changed``."""

    job_id: str
    refused: int
    rollouts: int
    weight: float
    changed: list[str]


STAGES = (
    "kinds",
    "summary",
    "lessons",
    "operations",
    "merge",
    "rewrite",
)  # of reflection, in the order in which they are asked


def learns_context(run: TrainingRun) -> bool:
    """Whether a run learns a context. Agents that choose actions have none."""
    return run.learns_context


def run_epochs(run: TrainingRun) -> list[EpochFigures]:
    """The epochs of a run as JSON values: means, tools, questions, what became of every proposal, and the gate."""
    asked = _questions(run)
    validations = dict(Iteration.objects.filter(run=run, selection__isnull=False).values_list("number", "selection"))
    rows, kinds = Epoch.objects.filter(run=run).order_by("number"), _kinds(run)
    return [_epoch(row, asked.get(row.number, []), validations, kinds) for row in rows]


def _kinds(run: TrainingRun) -> dict[int, str]:
    """The labels of the run's kinds of queries, by their hashes."""
    answers = Question.objects.filter(job_id=run.pk, stage=STAGE, usable=True).values_list("reply", flat=True)
    return {hash_of_kind(label): label for reply in answers for label in labels_by_name(reply)}


def _with_kinds(gate: dict[str, Any] | None, kinds: Mapping[int, str]) -> dict[str, Any] | None:
    """The gate, with the label of the kind for which a lesson holds."""
    if gate is None or not gate.get("where"):
        return gate
    found = {}
    for handle, one in gate["where"].items():
        label = next((kinds[term] for term in one.get("terms", ()) if term in kinds), "")
        found[handle] = {**one, "kind": label} if label else one
    return {**gate, "where": found}


def lessons_of_run(run: TrainingRun) -> QuerySet[Experience]:
    """The lessons that a run learned, and those that it began with."""
    return Experience.objects.filter(Q(job_id=run.pk) | Q(handle__in=started_with(run)), agent_id=run.agent_id)


def started_with(run: TrainingRun) -> list[str]:
    return [str(entry["lesson"]["handle"]) for entry in run.library]


def goes_on_from(run: TrainingRun) -> ContinuedRun | None:
    """The earlier run of its agent that a run goes on from, as JSON values; None where it began from nothing but what
    is active."""
    if run.continues_id is None:
        return None
    origin = run.origin
    return {
        "job_id": str(run.continues_id),
        "refused": origin["refused"],
        "rollouts": origin["rollouts"],
        "weight": origin["weight"],
        "changed": origin["changed"],
    }


def costs_of_finding(run: TrainingRun, rows: Iterable[Experience]) -> dict[UUID, int]:
    """Cost of the questions that led to each lesson of this run, in micro-dollars, by its id: those about its group,
    shared by the lessons of the group. Rollouts measure all lessons at once and are not counted."""
    asked: Counter[str] = Counter()
    for key, cost in Question.objects.filter(job_id=run.pk).values_list("key", "cost_micros"):
        asked[_group_of(key)] += cost
    mine = [row for row in rows if row.job_id == run.pk and row.group]
    taught = Counter(row.group for row in mine)
    return {row.pk: round(asked[row.group] / taught[row.group]) for row in mine if row.group in asked}


def _group_of(key: str) -> str:
    """ "iteration/query" of a question about a group; that of another question belongs to none."""
    _, _, place = key.partition("/")
    return place.partition(".")[0]


# -- one epoch ---------------------------------------------------------------------------------------------------------


def _epoch(
    row: Epoch,
    asked: list[StageFigures],
    validations: Mapping[int, Mapping[str, Any]],
    kinds: Mapping[int, str],
) -> EpochFigures:
    sums: Mapping[str, Any] = row.metrics
    rollouts = int(sums.get("rollouts", 0))
    taken = [change for change in row.changes if change["taken"]]
    refused = [change for change in row.changes if not change["taken"] and change["op"] != "NONE"]
    gate = _with_kinds(row.gate, kinds)
    return {
        "epoch": row.number,
        "iterations": row.iterations,
        "started_at": row.started_at,
        "updated_at": row.updated_at,
        "rollouts": rollouts,
        "success_rate": _mean(sums, "successes", rollouts),
        "reward_mean": _mean(sums, "reward_sum", int(sums.get("scored", 0))),
        "steps_mean": _mean(sums, "steps", rollouts),
        "tokens": int(sums.get("tokens", 0)),
        "tokens_mean": _mean(sums, "tokens", rollouts),
        "cost_usd": dollars(int(sums.get("cost_micros", 0))),
        "latency_ms": _mean(sums, "latency_ms", rollouts),
        "tools": _tools(sums.get("tools") or {}),
        "reflected": dict(sums.get("reflected") or {}),
        "questions": asked,
        "taken": len(taken),
        "refused": len(refused),
        "refusals": reasons(refused),
        "changes": list(row.changes),
        "gate": None if gate is None else {"tokens": 0} | gate | {"seen": dict(validations.get(gate["iteration"], {}))},
    }


def reasons(receipts: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Why operations were refused, the most frequent reason first."""
    return dict(Counter(str(receipt["why"]) for receipt in receipts).most_common())


def _mean(sums: Mapping[str, Any], name: str, n: int) -> float | None:
    return float(sums.get(name, 0)) / n if n else None


def _tools(sums: Mapping[str, Mapping[str, Any]]) -> list[ToolFigures]:
    """Calls by tool, the most expensive first."""
    found: list[ToolFigures] = [
        {
            "tool": name,
            "calls": int(one["calls"]),
            "tokens": int(one["tokens"]),
            "latency_ms": one["latency_ms"] / one["calls"] if one["calls"] else None,
            "cost_usd": dollars(int(one["cost_micros"])),
        }
        for name, one in sums.items()
    ]
    return sorted(found, key=lambda one: (-one["cost_usd"], one["tool"]))


# -- what is in other rows -----------------------------------------------------------------------------------------


def _questions(run: TrainingRun) -> dict[int, list[StageFigures]]:
    """Questions of reflection, by epoch and stage. Two queries."""
    rows = Question.objects.filter(job_id=run.pk).order_by()
    sums = rows.values("epoch", "stage").annotate(
        asked=Count("id"),
        refused=Count("id", filter=Q(usable=False)),
        repaired=Count("id", filter=Q(repaired=True)),
        calls=Sum("calls"),
        tokens=Sum("tokens"),
        cost_micros=Sum("cost_micros"),
        latency_ms=Avg("latency_ms"),
        own_ms=Avg("own_ms"),
        models=ArrayAgg("model", distinct=True, filter=~Q(model=""), default=Value([])),
    )
    why: dict[tuple[int, str], dict[str, int]] = {}
    for epoch, stage, reason, n in (
        rows.filter(usable=False).values_list("epoch", "stage", "reason").annotate(n=Count("id")).order_by("-n")
    ):
        why.setdefault((epoch, stage), {})[reason] = n
    found: dict[int, list[StageFigures]] = {}
    for row in sorted(sums, key=lambda row: (row["epoch"], _stage_order(row["stage"]))):
        epoch, cost_micros = row.pop("epoch"), row.pop("cost_micros")
        figures = row | {"cost_usd": dollars(cost_micros or 0), "reasons": why.get((epoch, row["stage"]), {})}
        found.setdefault(epoch, []).append(cast(StageFigures, figures))
    return found


def _stage_order(stage: str) -> int:
    return STAGES.index(stage) if stage in STAGES else len(STAGES)
