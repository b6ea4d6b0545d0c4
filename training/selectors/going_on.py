"""The next job of a finished one: whether it can go on, for which amount, and the gain that its figures let expect."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from agentcore_site.jobs.models import Status
from agentcore_site.lib.figures import minus
from agentcore_site.lib.money import MICROS, dollars, micros
from agentcore_site.lib.money_format import money
from training.algorithm.gain_of_more import GainOfMore, gain_of_more
from training.models import Epoch, TrainingRun

CENT: Final = MICROS // 100
LEAST: Final = 0.005  # gain below which nothing speaks for more, in units of reward


@dataclass(frozen=True, slots=True)
class Outlook:
    """Expected gain of going on for an amount. ``lessons`` were still tried at the end of the job; ``rollouts`` is the
    number that the amount pays for at the job's own price. ``gain`` None: the job stored no estimates of lessons, or
    its rollouts cost nothing."""

    amount_usd: float
    lessons: int
    rollouts: int | None
    gain: GainOfMore | None
    text: str


def fault(run: TrainingRun) -> str:
    """The reason for which a run can't go on; "" where it can."""
    if not run.learns_context:
        return "Only a job that learns lessons goes on. Promote a checkpoint of this one and launch the next job."
    if run.job.status != Status.COMPLETED:
        return "This job has not completed. Resume it, or launch another one."
    return ""


def usual_amount_usd(run: TrainingRun) -> float:
    """The amount that the form begins with: the money that the job took, rounded up to a cent, and at least one."""
    return dollars(max(math.ceil(run.spent_micros / CENT), 1) * CENT)


def outlook(run: TrainingRun, amount_usd: float) -> Outlook:
    """The gain that better estimates of the lessons of a finished run let expect."""
    gate = Epoch.objects.filter(run=run, gate__isnull=False).order_by("-number").values_list("gate", flat=True).first()
    lessons = (gate or {}).get("unsure", [])
    paid = run.spent_micros / run.trajectories if run.trajectories else 0.0
    rollouts = round(micros(amount_usd) / paid) if paid else None
    if not lessons or rollouts is None:
        return Outlook(amount_usd, len(lessons), rollouts, None, _unknown(bool(lessons)))
    mean, sd, known = (np.array(values, dtype=np.float64) for values in zip(*lessons, strict=True))
    gain = gain_of_more(mean, sd, known, rollouts)
    return Outlook(amount_usd, len(lessons), rollouts, gain, _words(len(lessons), rollouts, gain, amount_usd))


def _unknown(estimated: bool) -> str:
    if estimated:
        return "Its rollouts cost nothing, so that no amount can be compared with a gain."
    return "This job has no estimates of single lessons, so that the gain of more rollouts can't be computed."


def _words(n: int, rollouts: int, gain: GainOfMore, amount_usd: float) -> str:
    lessons = f"its {n:,} lessons" if n != 1 else "its lesson"
    if gain.expected < LEAST:
        return (
            f"Nothing in this job speaks for more: with {rollouts:,} further rollouts better estimates of {lessons}"
            " would add less than half a point. New lessons that the next job may find are not in this figure."
        )
    low, high = 100 * gain.low, 100 * gain.high
    return (
        f"{money(micros(amount_usd))} pays for about {rollouts:,} further rollouts. Better estimates of {lessons} would"
        f" add at most some {100 * gain.expected:.1f} points"
        + minus(f" (95 % interval {low:.1f} to {high:.1f}). New lessons that the next job may find are not in it.")
    )
