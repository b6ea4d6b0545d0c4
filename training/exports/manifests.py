"""The manifest of a run that learned a context: all that a check of the run needs.

It is built from rows, at any time. Money is in dollars, rates are from 0 to 1, times are in milliseconds.
"""

from __future__ import annotations

import hashlib
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import django
import numpy as np
from django.utils import timezone

from agentcore_site.lib.money import dollars
from experiences.learning.lessons.guards import words
from experiences.lessons.job_prompt import with_pack
from experiences.lessons.selectors import of_agent
from experiences.lessons.stamps import max_words_of, stamp_faults
from experiences.models import Experience, ExperienceStatus, TrajectoryRecord
from experiences.privacy import redact
from experiences.trajectories.archive.reading import job_rows
from training.models import TrainingRun
from training.selectors.run_lessons import goes_on_from, lessons_of_run, run_epochs
from training.services.pools import run_pools
from training.splits import normalized

VERSION: Final = 1
AVERAGED: Final = ("success_rate", "reward_mean", "steps_mean", "tokens_mean", "latency_ms", "cost_usd", "tokens")
OF_EPOCH: Final = (
    "epoch", "iterations", "rollouts", "success_rate", "reward_mean", "steps_mean", "tokens", "tokens_mean", "cost_usd",
    "latency_ms", "tools", "reflected", "questions", "taken", "refused", "refusals",
)  # fmt: skip


def run_manifest(run: TrainingRun) -> dict[str, Any]:
    """The manifest as JSON values."""
    epochs, texts = run_epochs(run), _texts(run)
    lessons = list(of_agent(run.acting_agent, lessons_of_run(run).order_by("epoch", "created_at", "handle")))
    return {
        "manifest_version": VERSION,
        "made_at": timezone.now().isoformat(),
        "run": _run(run),
        "agent": _agent(run),
        "config": run.configuration.as_dict(),
        "data": _data(run, texts),
        "epochs": [{name: epoch[name] for name in OF_EPOCH} for epoch in epochs],
        "per_epoch_averages": averages(epochs),
        "experiences": [_experience(row) for row in lessons],
        "scores": {"selection": run.selection or None, "held_out": run.verdict or None},
        "gates": [epoch["gate"] for epoch in epochs if epoch["gate"] is not None],
        "guard_rails": _guard_rails(run, epochs, lessons, texts),
        "versions": {"python": platform.python_version(), "django": django.__version__, "numpy": np.__version__},
    }


def averages(epochs: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Means over epochs of what an epoch reports; None where no epoch measured it."""
    found: dict[str, float | None] = {}
    for name in AVERAGED:
        known = [float(epoch[name]) for epoch in epochs if epoch[name] is not None]
        found[name] = sum(known) / len(known) if known else None
    return found


def _run(run: TrainingRun) -> dict[str, Any]:
    job = run.job
    moments = {"created_at": job.created_at, "started_at": job.started_at, "finished_at": job.finished_at}
    return {
        "job_id": str(run.pk),
        "title": job.title,
        "status": job.status,
        "status_reason": job.status_reason,
        "preset": run.preset,
        "seed": run.seed,
        "continues": goes_on_from(run),
        "iterations": run.iteration,
        "total_iterations": run.total_iterations,
        "trajectories": run.trajectories,
        "tokens": run.tokens,
        "cost_usd": dollars(run.spent_micros),
        "budget_usd": dollars(run.limit_micros),
        **{name: moment.isoformat() if moment else None for name, moment in moments.items()},
    }


def _agent(run: TrainingRun) -> dict[str, Any]:
    agent = run.acting_agent
    return {
        "agent_id": str(agent.pk),
        "slug": agent.slug,
        "name": agent.name,
        "runtime": agent.runtime,
        "philosophy": agent.philosophy,
        "model": agent.model or (agent.endpoint.model if agent.endpoint else ""),
        "objective": agent.objective,
        "learning_objective": agent.learning_objective,
        "prompt_pack": agent.prompt_pack.name if agent.prompt_pack else None,
        "prompt_pack_by_domain": run.prompt_pack is not None,
        "prompt_sha256": None if run.prompt is None else run.prompt["stamp"],
    }


def _experience(row: Experience) -> dict[str, Any]:
    return {
        "handle": row.handle,
        "kind": row.kind,
        "summary": row.summary,
        "stamp": row.stamp,
        "status": row.status,
        "version": row.version,
        "domain": row.domain,
        "reward": {"gt_score": row.ground_truth, "relative_rank": row.relative_rank},
        "tool_stats": row.tool_stats,
        "effect": row.effect,
        "effect_error": row.effect_error,
        "rollouts": row.rollouts,
        "weight": row.weight,
        "tokens": row.tokens,
        "provenance": {
            "job_id": str(row.job_id) if row.job_id else None,
            "epoch": row.epoch,
            "group": row.group,
            "task": row.task,
            "why": row.why,
            "trajectories": [str(one) for one in row.taught_by],
            "merged_from": row.parents,
        },
    }


# -- data --------------------------------------------------------------------------------------------------------------


def _data(run: TrainingRun, texts: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    dataset = run.dataset
    return {
        "environment": run.environment,
        "dataset_id": str(dataset.pk) if dataset else None,
        "name": dataset.name if dataset else run.environment,
        "sha256": dataset.sha256 if dataset else None,
        "n_train": run.n_train,
        "n_selection": run.n_selection,
        "n_held_out": run.n_held_out,
        "fingerprints": {name: _fingerprint(of_side) for name, of_side in texts.items()},
    }


def _texts(run: TrainingRun) -> dict[str, list[str]]:
    """The texts of each side of a dataset's split. An environment that makes its own items is not asked for them here:
    it may be another machine."""
    if run.dataset is None:
        return {}
    pools = run_pools(run)
    sides = {"train": pools.train, "selection": pools.selection, "held_out": pools.held_out}
    return {name: sorted(normalized(scenario.query) for scenario in scenarios) for name, scenarios in sides.items()}


def _fingerprint(texts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


# -- evidence of the guard-rails ---------------------------------------------------------------------------------------


def _guard_rails(
    run: TrainingRun,
    epochs: Sequence[Mapping[str, Any]],
    lessons: Sequence[Experience],
    texts: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    """Guard rails of the run, each with the figures that show it. ``held`` is null where nothing can be shown."""
    unread = sum(int(epoch["reflected"].get("unread", 0)) for epoch in epochs)
    refused: Counter[str] = Counter()
    for epoch in epochs:
        refused.update(epoch["refusals"])
    group = run.configuration.n_trajectories_per_query
    return {
        "stamps": _stamps(run, lessons),
        "word_limit": _word_limit(run, lessons),
        "group_size": {"group_size": group, "least": 2, "held": group >= 2},
        "held_out": _held_out(run, texts),
        "operations_refused": dict(refused.most_common()),
        "questions_refused": _questions_refused(epochs),
        "groups_unread": unread,
        "quarantined": [row.handle for row in lessons if row.status == ExperienceStatus.QUARANTINED],
    }


def _stamps(run: TrainingRun, lessons: Sequence[Experience]) -> dict[str, Any]:
    """A lesson fits under the prompt of the run; one that was since stamped for the prompt of now fits too."""
    misfits = stamp_faults(of_agent(run.acting_agent, lessons))
    rest = [row for row in lessons if row.pk in misfits]
    faults = stamp_faults(of_agent(with_pack(run.agent, run.prompt_pack), rest))
    named = {row.handle: faults[row.pk] for row in lessons if row.pk in faults}
    return {"verified": len(lessons) - len(named), "faults": named, "held": not named}


def _word_limit(run: TrainingRun, lessons: Sequence[Experience]) -> dict[str, Any]:
    limit = max_words_of(run.acting_agent, run.configuration.context.max_words)
    longest = max((len(words(row.summary)) for row in lessons), default=0)
    return {"limit": limit, "longest": longest, "held": longest <= limit}


def _held_out(run: TrainingRun, texts: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """That nothing was learned from what the proof is made with: the sides share no text, and no rollout of training
    met a held-out query."""
    if not texts:
        return {"shared_with_training": None, "met_in_training": None, "held": None}
    held_out = set(texts["held_out"])
    shared = held_out & {*texts["train"], *texts["selection"]}
    played = TrajectoryRecord.objects.filter(job_id=run.pk, purpose="training").order_by()
    with job_rows(None, run.pk):
        met = {normalized(query) for query in played.values_list("query", flat=True).distinct()}
    crossed = {normalized(redact(text)) for text in held_out} & met
    return {"shared_with_training": len(shared), "met_in_training": len(crossed), "held": not shared and not crossed}


def _questions_refused(epochs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """By stage, why answers could not be used."""
    found: dict[str, Counter[str]] = {}
    for epoch in epochs:
        for stage in epoch["questions"]:
            if stage["reasons"]:
                found.setdefault(stage["stage"], Counter()).update(stage["reasons"])
    return {stage: dict(counted.most_common()) for stage, counted in found.items()}
