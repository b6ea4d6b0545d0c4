"""Simulated canaries: sessions of two arms, taken in one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from evaluation.serving.monitoring.guardrails import CanarySession, Monitor
from evaluation.serving.monitoring.non_inferiority import NoWorse

RAMP: Final = ((0.1, 500), (0.25, 1000), (0.5, 1000))  # (share of the new arm, sessions)


class Arm(NamedTuple):
    """``failures`` is a rate; ``success`` the mean of a reward of 0 or 1; cost and latency are factors."""

    failures: float = 0.05
    success: float = 0.7
    cost: float = 1.0
    latency: float = 1.0


class Stopped(NamedTuple):
    """A ramp that was rolled back: after so many sessions, of which the new arm had so many, and the reason."""

    sessions: int
    of_new: int
    guardrail: str


def ramp(
    rng: np.random.Generator,
    old: Arm,
    new: Arm,
    *,
    steps: Sequence[tuple[float, int]] = RAMP,
    drift: float = 0.0,
    at_once: float = 0.0,
) -> Stopped | None:
    """One ramp, looked at after every session; None where it went through. ``drift`` moves both arms' failures up and
    down by this part of their rate, as hours of a day do. Sessions are taken in as they end: while one takes its usual
    time, ``at_once`` others begin, so that of a slower arm fewer have ended than have begun."""
    monitor, seen, of_new = Monitor(), 0, 0
    for share, n in steps:
        is_new = rng.random(n) < share
        day = 1 + drift * np.sin(np.arange(seen, seen + n) / 200)
        failures = rng.random(n) < day * np.where(is_new, new.failures, old.failures)
        reward = (rng.random(n) < np.where(is_new, new.success, old.success)).astype(float)
        cost = rng.lognormal(-6, 1, n) * np.where(is_new, new.cost, old.cost)
        latency = rng.lognormal(0, 0.8, n) * np.where(is_new, new.latency, old.latency)
        ended = np.argsort(np.arange(n) + at_once * latency, kind="stable")
        columns: Any = zip(*(one[ended] for one in (is_new, failures, reward, cost, latency)), strict=True)
        for arm, failed, paid, dollars, seconds in columns:
            first = CanarySession(bool(arm), share, 1, int(failed), 0, float(paid), float(dollars), float(seconds))
            monitor.add(first._replace(session_failures=int(failed), session_reward=float(paid)))
            seen, of_new = seen + 1, of_new + bool(arm)
            if alarm := monitor.alarm():
                return Stopped(seen, of_new, alarm.guardrail)
    return None


class Promoted(NamedTuple):
    """The progress of a ramp by evidence: stages that it left, and the sessions until it left the last (0: none)."""

    stages: int
    sessions: int


def promotion(
    rng: np.random.Generator,
    old: Arm,
    new: Arm,
    *,
    margin: float = 0.05,
    shares: Sequence[float] = (0.1, 0.25, 0.5),
    most: int = 20_000,
    least: int = 50,
    scored: bool = True,
) -> Promoted:
    """One ramp whose stages end when ``least`` sessions of the new arm were seen and it is shown to be no worse, looked
    at after every session; at most ``most`` sessions, and none is taken back. Failures alone where answers are not
    ``scored``."""
    no_worse, seen, left = NoWorse(margin), 0, 0
    for stage, share in enumerate(shares):
        of_new = 0
        while not (of_new >= least and not no_worse.unshown):
            if seen >= most:
                return Promoted(stage, left)
            is_new = bool(rng.random() < share)
            arm = new if is_new else old
            failed, paid = rng.random() < arm.failures, float(rng.random() < arm.success)
            no_worse.add(new=is_new, share=share, failures=float(failed), score=paid if scored else None)
            seen, of_new = seen + 1, of_new + is_new
        left = seen
    return Promoted(len(shares), left)
