"""Checks of a release before it may go out, and their findings: a pure function of the measurements.

Each check is one finding with a sentence; the verdict is one sentence. What was not measured does not pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from agentcore_site.lib.figures import counted, signed
from agentcore_site.lib.money_format import usd
from agentcore_site.lib.statistics import finite_or_none
from evaluation.serving.gate.statistics import ALPHA, Bounds, InterimAnalyses
from training.algorithm.inference import per_query

MARGIN: Final = 0.05
SIDES: Final = ("candidate", "current")


@dataclass(frozen=True, slots=True)
class GateRule:
    """Requirements of an agent for its releases. Scores and shares lie between 0 and 1; None: not required.

    ``suites`` gives the least mean score by suite, and names the suites that a release needs. On none of them may it be
    worse than the current release by more than ``margin``. ``gain`` is by how much it has to be shown to be better over
    the queries of all of them (0: better at all). ``most_unsafe`` is the share of the probes of a category that it may
    fail. Cost is in dollars, latency in seconds, each the mean of a query. ``approval`` asks for a second person.

    Raises:
        ValueError: a value is out of its range.
    """

    suites: Mapping[str, float] = field(default_factory=dict)
    safety: bool = True
    most_unsafe: float = 0.0
    margin: float = MARGIN
    gain: float | None = None
    most_cost: float | None = None
    most_latency: float | None = None
    approval: bool = False
    alpha: float = ALPHA

    def __post_init__(self) -> None:
        shares = {f"The score of {name}": least for name, least in self.suites.items()}
        shares |= {"most_unsafe": self.most_unsafe, "margin": self.margin, "gain": self.gain or 0.0}
        for name, value in shares.items():
            if not 0 <= value <= 1:
                raise ValueError(f"{name} lies between 0 and 1; got {value}.")
        if not 0 < self.alpha < 0.5:
            raise ValueError(f"alpha lies between 0 and 0.5; got {self.alpha}.")
        for name, limit in (("most_cost", self.most_cost), ("most_latency", self.most_latency)):
            if limit is not None and not 0 < limit < math.inf:
                raise ValueError(f"{name} is more than 0; got {limit}.")


@dataclass(frozen=True, slots=True)
class SuiteScores:
    """Scores in [0, 1] of a release in one version of a suite, (n,) or (n, k) with k samples of each query.
    ``current`` are those of the current release for the same queries, None without any. NaN: not answered."""

    candidate: ArrayLike
    current: ArrayLike | None = None


@dataclass(frozen=True, slots=True)
class SafetyScore:
    """The number of failed ``probes`` of one category, among them the ``unjudged``: they are not known to be safe."""

    failed: int
    probes: int
    unjudged: int = 0


@dataclass(frozen=True, slots=True)
class GateInputs:
    """Measurements of a release. ``safety`` by category is None where its probes were not run; ``cost`` (dollars) and
    ``latency`` (seconds) are means of a query.

    ``current`` names the release that it would replace, "" where there is none. ``candidates`` counts what was compared
    with that one on these suites: releases, and further runs of the same one, this included. ``made_by`` and
    ``approved_by`` name people.
    """

    suites: Mapping[str, SuiteScores] = field(default_factory=dict)
    safety: Mapping[str, SafetyScore] | None = None
    cost: float | None = None
    latency: float | None = None
    current: str = ""
    candidates: int = 1
    made_by: str = ""
    approved_by: str = ""


@dataclass(frozen=True, slots=True)
class GateFinding:
    """One check, in a sentence that begins in the middle; ``figures`` are what it says, for programs."""

    check: str
    passed: bool
    sentence: str
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """All findings, in the order in which they were asked."""

    findings: tuple[GateFinding, ...]

    @property
    def passed(self) -> bool:
        return all(finding.passed for finding in self.findings)

    @property
    def sentence(self) -> str:
        """Why the release may be deployed, or why it may not."""
        failed = [finding for finding in self.findings if not finding.passed]
        if not self.findings:
            return "The release may be deployed: the agent's gate has no checks."
        if not failed:
            return f"The release may be deployed: it passed {counted(len(self.findings), 'check')}."
        further = f"; {len(failed) - 1} more of {len(self.findings)} checks failed" if len(failed) > 1 else ""
        return f"The release may not be deployed: {failed[0].sentence}{further}."

    def as_json(self) -> dict[str, Any]:
        return {"passed": self.passed, "sentence": self.sentence, "findings": [asdict(one) for one in self.findings]}


def decide(rule: GateRule, measured: GateInputs) -> GateVerdict:
    """The gate's verdict on a release. It may be asked for at any time, also while suites are still running.

    Raises:
        ValueError: the scores of the two releases are of different queries, or ``candidates`` is less than 1.
    """
    found: list[GateFinding] = []
    for name, least in rule.suites.items():
        scores = measured.suites.get(name)
        found.append(_score(name, least, scores))
        if measured.current and scores is not None:
            found.append(_no_worse(name, rule, measured, scores))
    if rule.safety:
        found.append(_safe(rule, measured.safety))
    if rule.gain is not None:
        found.append(_better(rule, rule.gain, measured))
    limits = (
        ("cost", rule.most_cost, measured.cost, usd),
        ("latency", rule.most_latency, measured.latency, "{:.2f} s".format),
    )
    found += [_limit(name, most, value, shown) for name, most, value, shown in limits if most is not None]
    if rule.approval:
        found.append(_approved(measured))
    return GateVerdict(tuple(found))


def _score(name: str, least: float, scores: SuiteScores | None) -> GateFinding:
    check = f"suite {name}"
    if scores is None:
        return GateFinding(check, False, f"suite {name} was not run with it")
    each = per_query(scores.candidate)
    known = each[np.isfinite(each)]
    score = float(known.mean()) if len(known) else math.nan
    figures = {"score": finite_or_none(score), "least": least, "queries": len(known), "planned": len(each)}
    if len(known) < len(each):
        return GateFinding(check, False, f"suite {name} has {len(known):,} of {len(each):,} answers", figures)
    if score < least:
        return GateFinding(check, False, f"suite {name} is at {score:.1%}, and {least:.1%} are needed", figures)
    return GateFinding(check, True, f"suite {name} is at {score:.1%}, of {least:.1%} needed", figures)


def _no_worse(name: str, rule: GateRule, measured: GateInputs, scores: SuiteScores) -> GateFinding:
    """Non-inferiority: the lower bound of the difference lies above the margin. That no difference was found would be
    no evidence; a suite of few queries never finds one."""
    check, margin = f"no worse on {name}", f"{rule.margin * 100:g} points"
    found = _bounds(rule, measured, scores)
    if found is None:
        return GateFinding(check, False, f"{measured.current} has no answers in suite {name} to compare it with")
    if found.low > -rule.margin:
        sentence = f"on {name} it is no worse than {measured.current} by {margin}"
    elif found.high < -rule.margin:
        sentence = f"on {name} it is worse than {measured.current} by more than {margin}"
    else:
        sentence = f"on {name} it is not shown to be no worse than {measured.current} by {margin}"
    return GateFinding(check, found.low > -rule.margin, f"{sentence} ({_interval(found)})", _figures(found, measured))


def _better(rule: GateRule, gain: float, measured: GateInputs) -> GateFinding:
    if not measured.current:
        return GateFinding("better", True, "there is no release to be better than")
    each = [one for name in rule.suites if (one := measured.suites.get(name)) and one.current is not None]
    together = [np.concatenate([per_query(getattr(one, side)) for one in each]) for side in SIDES] if each else []
    found = _bounds(rule, measured, SuiteScores(*together)) if together else None
    if found is None:
        return GateFinding("better", False, f"nothing compares it with {measured.current}")
    by = f" by {gain * 100:g} points" if gain else ""
    shown = "it is better" if found.low > gain else "it is not shown to be better"
    sentence = f"{shown} than {measured.current}{by} ({_interval(found)})"
    return GateFinding("better", found.low > gain, sentence, _figures(found, measured))


def _bounds(rule: GateRule, measured: GateInputs, scores: SuiteScores) -> Bounds | None:
    """None where no query was answered by both."""
    if scores.current is None:
        return None
    sides = [per_query(one) for one in (scores.candidate, scores.current)]
    if len(sides[0]) == len(sides[1]) and not np.isfinite(sides[0] - sides[1]).any():
        return None
    return InterimAnalyses(len(sides[0]), measured.candidates, rule.alpha).bounds(*sides)


def _interval(found: Bounds) -> str:
    spread = "too few queries" if math.isinf(found.low) else f"{signed(found.low * 100)} to {signed(found.high * 100)}"
    return f"{signed(found.difference * 100)} points, {spread}, over {counted(found.n, 'query', 'queries')}"


def _figures(found: Bounds, measured: GateInputs) -> dict[str, Any]:
    figures = {name: finite_or_none(value) for name, value in found._asdict().items()}
    return figures | {"n": found.n, "candidates": measured.candidates}


def _safe(rule: GateRule, safety: Mapping[str, SafetyScore] | None) -> GateFinding:
    asked = {name: one for name, one in (safety or {}).items() if one.probes}
    if not asked:
        return GateFinding("safety", False, "its safety was not probed")
    figures = {
        name: {"failed": one.failed, "probes": one.probes} | ({"unjudged": one.unjudged} if one.unjudged else {})
        for name, one in asked.items()
    }
    unsafe = {name: one for name, one in asked.items() if one.failed > rule.most_unsafe * one.probes}
    if unsafe:
        worst = max(unsafe, key=lambda name: unsafe[name].failed / unsafe[name].probes)
        one = unsafe[worst]
        sentence = f"it failed {one.failed:,} of {counted(one.probes, 'safety probe')} of {worst}"
        if one.unjudged:
            sentence += f", of which {one.unjudged:,} could not be judged"
        return GateFinding("safety", False, sentence, figures)
    total = sum(score.probes for score in asked.values())
    unjudged = sum(score.unjudged for score in asked.values())
    passed = f"it passed {counted(total, 'safety probe')}"
    if unjudged:
        passed = f"{total - unjudged:,} of {counted(total, 'safety probe')} were judged, and few enough failed"
    return GateFinding("safety", True, passed, figures)


def _limit(name: str, most: float, value: float | None, shown: Callable[[float], str]) -> GateFinding:
    if value is None or not math.isfinite(value):
        return GateFinding(name, False, f"its {name} was not measured")
    passed = value <= most
    sentence = f"its {name} is {shown(value)} a query, {'within' if passed else 'above'} {shown(most)}"
    return GateFinding(name, passed, sentence, {"value": value, "most": most})


def _approved(measured: GateInputs) -> GateFinding:
    by = measured.approved_by
    if not by:
        return GateFinding("approval", False, "no person has approved it")
    if by == measured.made_by:
        return GateFinding("approval", False, f"{by} made it, and another person has to approve it")
    return GateFinding("approval", True, f"{by} approved it", {"by": by})
