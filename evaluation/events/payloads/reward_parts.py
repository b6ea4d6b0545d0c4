"""Components of a reward as its event names them: score, weight, source and reasoning. Pure.

The composite has the four components of the feedback loop's design. All other rewards have names and weights of their
own. A component adds ``score`` x ``weight`` to the reward, or ``normalized`` x ``weight`` where it is a z-score.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

AUTOMATED: Final = "automated"
HUMAN: Final = "human"
LINTER: Final = "linter"
RULE: Final = "rule"
JUDGE: Final = "judge"
NAMES: Final = {
    "completion": "task_completion",
    "efficiency": "efficiency",
    "code_quality": "code_quality",
    "feedback": "user_feedback",
}  # the design's names by the composite's
IMPLICIT: Final = {
    "correction": "the user asked for a correction",
    "abandoned": "the user gave up",
    "none": "no feedback: neutral",
}
MOST_REASONING: Final = 4_000


@dataclass(frozen=True, slots=True)
class RewardComponent:
    """A component. ``weight`` None: the reward says none, and its scores add up to the reward. ``normalized``: its
    z-score, None where it is not normalised."""

    name: str
    score: float
    weight: float | None
    source: str = AUTOMATED
    reasoning: str = ""
    normalized: float | None = None

    def payload(self) -> dict[str, Any]:
        found = {
            "score": self.score,
            "weight": self.weight,
            "source": self.source,
            "reasoning": self.reasoning[:MOST_REASONING],
        }
        return found if self.normalized is None else found | {"normalized": self.normalized}


@dataclass(frozen=True, slots=True)
class RewardAccount:
    """``confidence``: the share of the composite's weights that was measured, or the agreement of a judge's verdicts;
    None of other rewards. ``trailing``: parts are z-scores."""

    parts: tuple[RewardComponent, ...]
    confidence: float | None = None
    trailing: bool = False


def account_of(
    components: Mapping[str, Any], evidence: Mapping[str, Any], weights: Mapping[str, float]
) -> RewardAccount:
    """The account of a rollout's reward. ``components`` and ``evidence`` as they are stored with it; ``weights`` of
    its parts by the configured reward, {} if it declares none."""
    how = evidence.get("reward")
    how = how if isinstance(how, Mapping) else {}
    paid = {name: float(value) for name, value in components.items() if _is_number(value)}
    if isinstance(how.get("raw"), Mapping) and how.get("name") == "composite":
        return composite_account(how, evidence)
    if list(paid) == ["judge"]:
        return _judged(paid["judge"], how, evidence)
    return RewardAccount(tuple(_part(name, value, weights, len(paid)) for name, value in paid.items()))


def composite_account(how: Mapping[str, Any], evidence: Mapping[str, Any], *, completion: str = "") -> RewardAccount:
    """The account of a composite: ``how`` is the evidence that it left, ``evidence`` all that was measured.
    ``completion``: reasoning of the first component, else that of an environment's score."""
    raw, weights, scaled = how["raw"], how.get("weights") or {}, how.get("normalised") or {}
    measured = how.get("measured") or {}
    source, why = _opinion(evidence.get("feedback"))
    about = {
        "completion": (JUDGE if evidence.get("judge") else AUTOMATED, completion or _completion(raw, evidence)),
        "efficiency": (AUTOMATED, _efficiency(how)),
        "code_quality": (LINTER, _code(evidence.get("code_quality"))),
        "feedback": (source, why),
    }
    parts = tuple(
        RewardComponent(NAMES[name], float(raw[name]), float(weights.get(name, 0.0)), *about[name], scaled.get(name))
        for name in NAMES
        if _is_number(raw.get(name))
    )
    whole = math.fsum(weights.values())
    known = math.fsum(weight for name, weight in weights.items() if measured.get(name))
    return RewardAccount(parts, round(known / whole, 4) if whole > 0 else None, trailing=True)


def _judged(amount: float, how: Mapping[str, Any], evidence: Mapping[str, Any]) -> RewardAccount:
    """Several verdicts that agree are more certain than ones apart; of one alone nothing is known."""
    verdict = evidence.get("verdict")
    judge = verdict.get("judge") if isinstance(verdict, Mapping) else None
    reason = str(judge.get("reason") or "") if isinstance(judge, Mapping) else ""
    scores = [float(one) for one in how.get("scores") or () if _is_number(one)]
    confidence = round(max(0.0, 1 - (max(scores) - min(scores))), 4) if len(scores) > 1 else None
    return RewardAccount((RewardComponent("judge", amount, 1.0, JUDGE, reason),), confidence)


def _part(name: str, value: float, weights: Mapping[str, float], n: int) -> RewardComponent:
    """A single part is the whole reward. A part with a declared weight is ``value / weight`` times that."""
    if n == 1 and name not in weights:
        return RewardComponent(name, value, 1.0, reasoning="the whole reward")
    weight = weights.get(name)
    if weight is None:
        return RewardComponent(name, value, None, reasoning="its share of the sum")
    score = round(value / weight, 9) if weight else 0.0
    return RewardComponent(name, score, weight, reasoning=f"{score:g} at {weight:g} each" if weight != 1 else "")


def _completion(raw: Mapping[str, Any], evidence: Mapping[str, Any]) -> str:
    by = f" ({evidence['scorer']})" if isinstance(evidence.get("scorer"), str) else ""
    return f"the environment's score is {raw['completion']:g}{by}"


def _efficiency(how: Mapping[str, Any]) -> str:
    took = how.get("efforts") or how
    usual = how.get("usual") or {}
    units = {"turns": "turns", "seconds": "seconds", "tokens": "tokens", "redundant_calls": "redundant calls"}
    found = []
    for name, unit in units.items():
        if _is_number(took.get(name)):
            average = f" (average {usual[name]:.4g})" if _is_number(usual.get(name)) else ""
            found.append(f"{took[name]:.4g} {unit}{average}")
    return ", ".join(found) + ("" if usual else "; nothing to compare with yet" if found else "")


def _code(given: Any) -> str:
    if not isinstance(given, Mapping):
        return ""
    return ", ".join(_findings(given))


def _findings(given: Mapping[str, Any]) -> Iterator[str]:
    for name in ("lint", "security", "tests"):
        if _is_number(given.get(name)):
            yield f"{name} {given[name]:.4g}"
    if _is_number(given.get("linter_score")):
        yield f"linter score {given['linter_score']:g}/10"
    if _is_number(given.get("tests_passed")) and _is_number(given.get("tests_total")):
        yield f"{given['tests_passed']:g} of {given['tests_total']:g} tests passed"
    for name in ("lint_findings", "security_findings", "critical_issues"):
        if _is_number(given.get(name)):
            yield f"{given[name]:g} {name.replace('_', ' ')}"


def _opinion(given: Any) -> tuple[str, str]:
    """Source and reasoning of user feedback."""
    if not isinstance(given, Mapping):
        return AUTOMATED, IMPLICIT["none"]
    said = [
        f"{name} {_said(name, value)}" for name in ("thumbs", "stars") if (value := given.get(name)) not in (None, [])
    ]
    if said:
        return HUMAN, "; ".join(said)
    implicit = given.get("implicit")
    known = implicit if isinstance(implicit, str) and implicit in IMPLICIT else "none"
    return AUTOMATED if known == "none" else RULE, IMPLICIT[known]


def _said(name: str, value: Any) -> str:
    values = value if isinstance(value, list) else [value]
    if name == "thumbs":
        return ", ".join("up" if one in (True, "up") else "down" for one in values)  # 1 is True
    return ", ".join(f"{one:g}" if _is_number(one) else str(one) for one in values)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
