"""Code quality and user feedback from a trajectory's evidence, as numbers in [0, 1].

Evidence comes from environments, from linters and from people: what has another form than the documented one says
nothing, and never raises.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

CODE_QUALITY: Final = "code_quality"
IMPLICIT: Final[Mapping[str, float]] = {"correction": 0.2, "abandoned": 0.0, "none": 0.5}
NO_FEEDBACK: Final = IMPLICIT["none"]
STARS: Final = 5


def number(value: Any) -> float | None:
    """A finite number; flags, texts and everything else are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def share(value: Any) -> float | None:
    """A number in [0, 1]; one outside says nothing."""
    found = number(value)
    return found if found is not None and 0 <= found <= 1 else None


def count(value: Any) -> float | None:
    found = number(value)
    return found if found is not None and found >= 0 else None


def task_type(evidence: Mapping[str, Any]) -> str:
    """Of what kind the task is: "task_type", else the scorer's name, else ""."""
    for name in ("task_type", "scorer"):
        value = evidence.get(name)
        if isinstance(value, str) and value:
            return value[:100]
    return ""


def code_quality_by_design(evidence: Mapping[str, Any]) -> float | None:
    """The mean of "linter_score" / 10, the share of tests that passed, and 1 - .5 x "critical_issues" (at least 0),
    with "lint" and "security" in the place of what is missing; .5 for code without any score, None without code."""
    given = evidence.get(CODE_QUALITY)
    if not isinstance(given, Mapping):
        return share(given)
    linted, critical = number(given.get("linter_score")), count(given.get("critical_issues"))
    parts = (
        share(given.get("lint")) if linted is None else min(max(linted / 10, 0.0), 1.0),
        _tests(given),
        share(given.get("security")) if critical is None else max(0.0, 1 - 0.5 * critical),
    )
    known = [part for part in parts if part is not None]
    return math.fsum(known) / len(known) if known else 0.5


def code_quality(evidence: Mapping[str, Any]) -> float | None:
    """The mean of what is known under "code_quality"; None where there is no code.

    Linter: "lint" (a score in [0, 1]), else "lint_findings" n as 1 / (1 + n). Tests: "tests" (a share), else
    "tests_passed" of "tests_total". Security: "security" (a score), else "security_findings" n as 1 / (1 + n).
    A number in place of the object is the quality itself.
    """
    given = evidence.get(CODE_QUALITY)
    if not isinstance(given, Mapping):
        return share(given)
    parts = (
        _score_or_findings(given, "lint"),
        _tests(given),
        _score_or_findings(given, "security"),
    )
    known = [part for part in parts if part is not None]
    return math.fsum(known) / len(known) if known else None


def feedback(evidence: Mapping[str, Any], *, one_star: float = 0.0) -> float:
    """Feedback of users, under "feedback": the mean of "thumbs" (up, down, true, false, 1, -1, 0) and "stars" (1 to 5,
    from ``one_star`` to 1), each one value or a list. Where neither was given, "implicit" counts: correction .2,
    abandoned 0, none .5. Without data .5."""
    given = evidence.get("feedback")
    if not isinstance(given, Mapping):
        return NO_FEEDBACK
    read = [_thumbs(one) for one in _each(given.get("thumbs"))] + [
        _stars(one, one_star) for one in _each(given.get("stars"))
    ]
    values = [one for one in read if one is not None]
    if values:
        return math.fsum(values) / len(values)
    implicit = given.get("implicit")
    return IMPLICIT.get(implicit, NO_FEEDBACK) if isinstance(implicit, str) else NO_FEEDBACK


def _each(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given]


def _score_or_findings(given: Mapping[str, Any], name: str) -> float | None:
    score = share(given.get(name))
    if score is not None:
        return score
    findings = count(given.get(f"{name}_findings"))
    return None if findings is None else 1 / (1 + findings)


def _tests(given: Mapping[str, Any]) -> float | None:
    passed, total = count(given.get("tests_passed")), count(given.get("tests_total"))
    if passed is not None and total and passed <= total:
        return passed / total
    return share(given.get("tests"))


def _thumbs(value: Any) -> float | None:
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        return {"up": 1.0, "down": 0.0}.get(value.lower())
    thumbs = number(value)
    return None if thumbs not in (1, 0, -1) else float(thumbs == 1)


def _stars(value: Any, least: float) -> float | None:
    stars = number(value)
    return least + (1 - least) * (stars - 1) / (STARS - 1) if stars is not None and 1 <= stars <= STARS else None
