"""Validation of a release before and during its deployment, as its event says it: a fact, or None without one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from evaluation.serving.feedback.opinions import STARS, THUMBS
from evaluation.serving.models import Deployment, Feedback, FeedbackSource, Release, ReleaseApproval, SuiteKind
from evaluation.serving.releases.bundle_builder import known_of
from evaluation.serving.suites.selectors import SuiteScore, latest_results
from experiences.rollouts.rewards import signals
from training.algorithm.inference import surely_apart

SUITE: Final = "suite "  # beginnings of the gate's checks
COMPARED: Final = "no worse on "
BETTER: Final = "better"
SAFETY: Final = "safety"


@dataclass(frozen=True, slots=True)
class ReleaseValidation:
    """``passed``: its benchmarks, ``safe``: its probes, ``regressed``: whether it was shown to be worse than the
    release before, ``opinion``: the mean of thumbs and stars for its answers, in [0, 1]. ``approved``: by a person."""

    passed: bool | None
    safe: bool | None
    regressed: bool | None
    opinion: float | None
    approved: bool


def validation_of(deployment: Deployment, at: datetime) -> ReleaseValidation:
    """The facts at the time ``at``. What the gate did not ask is answered by runs of suites with exactly this release,
    then by a proof of exactly its bytes."""
    findings = [one for one in deployment.verdict.get("findings", ()) if _is_measured(one)]
    release = deployment.release
    suites = latest_results(release).suites
    passed = _all(one["passed"] for one in findings if one["check"].startswith((SUITE, COMPARED, BETTER)))
    if passed is None:
        passed = _reached(suites, SuiteKind.BENCHMARK)
    if passed is None:
        passed = _proven(known_of(release).get("held_out") or {})
    safe = _all(one["passed"] for one in findings if one["check"] == SAFETY)
    overridden = not deployment.verdict.get("passed", True)
    approvals = ReleaseApproval.objects.filter(release=release, at__lte=at)
    return ReleaseValidation(
        passed=passed,
        safe=_reached(suites, SuiteKind.SAFETY) if safe is None else safe,
        regressed=_regressed(findings),
        opinion=_opinion(release, at),
        approved=overridden or approvals.exists(),
    )


def _is_measured(finding: Mapping[str, Any]) -> bool:
    """A first release has none to be better than."""
    return finding["check"] != BETTER or bool(finding["figures"]) or not finding["passed"]


def _all(answers: Iterable[Any]) -> bool | None:
    """True if all passed, False if one did not, None without an answer."""
    found = [bool(one) for one in answers]
    return all(found) if found else None


def _reached(suites: Iterable[SuiteScore], kind: str) -> bool | None:
    return _all(score.passed for score in suites if score.kind == kind and score.newest and score.passed is not None)


def _proven(held_out: Mapping[str, Any]) -> bool | None:
    """True if held-out queries showed a gain, False if they did not, None if no query was asked."""
    if held_out.get("changed") is False or held_out.get("improvement") is None:
        return None
    apart = surely_apart(held_out["p_value"], held_out["low"], held_out["high"])
    return apart and float(held_out["improvement"]) > 0


def _regressed(findings: Iterable[Mapping[str, Any]]) -> bool | None:
    """True if one comparison showed a loss, False if all excluded one, None if nothing was compared or shown."""
    compared = [one for one in findings if one["check"].startswith(COMPARED)]
    highs = [one["figures"].get("high") for one in compared if not one["passed"]]
    if any(high is not None and high < 0 for high in highs):
        return True
    return None if highs or not compared else False


def _opinion(release: Release, at: datetime) -> float | None:
    given = Feedback.objects.filter(
        trace__release_id=release.pk,
        organization_id=release.organization_id,
        metric__in=(THUMBS, STARS),
        source=FeedbackSource.EXPLICIT,
        created_at__lte=at,
    )
    found: dict[str, list[float]] = {THUMBS: [], STARS: []}
    for metric, value in given.values_list("metric", "value"):
        found[metric].append(value)
    return signals.feedback({"feedback": found}) if any(found.values()) else None
