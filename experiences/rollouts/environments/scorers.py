"""Scorers of the dataset environment: is this answer what the row expects?

Each is built from a row's ``expected_outcome`` once, which finds a faulty row before any rollout, and is then a
function of the answer.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from experiences.privacy import cut_short
from experiences.rollouts.environments.safe_regex import SEARCH_SECONDS, compiled
from experiences.rollouts.types import Outcome

Check = Callable[[str], Outcome]

MAX_ANSWER = 100_000  # characters that are looked at
MAX_RUBRIC = 10_000
MAX_MATCHED = 10_000  # characters that a regular expression is tried on
_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?%?")


SAME_AS_REFERENCE = (
    "10: the answer says the same as the reference, whole and without errors, in whatever words. 5: about half of it."
    " 0: something else, or nothing."
)


@dataclass(frozen=True, slots=True)
class Rubric:
    """Rubric of a judge. ``threshold`` is the score in [0, 1] from which an answer is a success; the median of
    ``calls`` scores counts; ``model`` is "" for the agent's own. ``shows_reference``, for rubrics that are not a row's
    own: whether the judge sees the expected answer."""

    text: str
    reference: str = ""
    threshold: float = 0.7
    calls: int = 1
    model: str = ""
    shows_reference: bool = True


def reference_in(expected: Mapping[str, Any]) -> str:
    """The answer that is expected, as a judge reads it; "" where there is none."""
    answer = expected.get("answer")
    return " | ".join(map(str, answer)) if isinstance(answer, list) else "" if answer is None else str(answer)


def rubric_for(expected: Mapping[str, Any], scorer: str = "auto") -> Rubric | None:
    """The rubric of a row; None where the answer is checked without a judge.

    Raises:
        ValueError: there is neither a rubric nor a reference. The message is for the row's author.
    """
    if scorer != "judge" and not (scorer == "auto" and expected.get("judge") is not None):
        return None
    target = _target(expected, "judge", "answer")
    text = expected.get("judge") or SAME_AS_REFERENCE
    if not isinstance(text, str) or len(text) > MAX_RUBRIC:
        raise ValueError(f"its rubric must be text of at most {MAX_RUBRIC:,} characters; got {str(target)[:60]!r}.")
    return Rubric(text, reference_in(expected))


def check_for(expected: Mapping[str, Any], scorer: str = "auto", *, case_sensitive: bool = False) -> Check:
    """The check that a row asks for. ``scorer`` names one; "auto" goes by the keys of ``expected``:
    "judge", "json_schema", "regex", "contains", else "answer" (numeric if it is a number, exact if it is text).

    Raises:
        ValueError: there is nothing to check against, or it is malformed. The message is for the row's author.
    """
    if expected.get("correct") is False:
        raise ValueError("its answer is marked correct: false; give the right answer.")
    chosen = _by_keys(expected) if scorer == "auto" else scorer
    return SCORERS[chosen](expected, case_sensitive)


def _by_keys(expected: Mapping[str, Any]) -> str:
    for name in ("judge", "json_schema", "regex", "contains"):
        if expected.get(name) is not None:
            return name
    return "numeric" if _is_number(expected.get("answer")) else "exact"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _target(expected: Mapping[str, Any], *names: str) -> Any:
    for name in names:
        value = expected.get(name)
        if value is not None and value != "" and value != []:
            return value
    raise ValueError(f"there is nothing to check against: expected_outcome needs {' or '.join(map(repr, names))}.")


def _evidence(scorer: str, answer: str, expected: Any) -> dict[str, Any]:
    return {"scorer": scorer, "answer": cut_short(answer, MAX_MATCHED), "expected": expected}


def _verdict(success: bool, scorer: str, answer: str, expected: Any) -> Outcome:
    return Outcome(float(success), success, _evidence(scorer, answer, expected))


def _normalized(text: str, case_sensitive: bool) -> str:
    plain = " ".join(unicodedata.normalize("NFKC", text[:MAX_ANSWER]).split())
    return plain if case_sensitive else plain.casefold()


def exact(expected: Mapping[str, Any], case_sensitive: bool) -> Check:
    """The answer is the expected text (or one of several), white space aside."""
    target = _target(expected, "answer")
    texts = [str(one) for one in target] if isinstance(target, list) else [str(target)]
    wanted = {_normalized(text, case_sensitive) for text in texts}
    return lambda answer: _verdict(_normalized(answer, case_sensitive) in wanted, "exact", answer, target)


def numeric(expected: Mapping[str, Any], case_sensitive: bool) -> Check:
    """The answer's last number is the expected one within "tolerance" (absolute, by default a relative 1e-9)."""
    target = number_in(str(_target(expected, "answer")))
    tolerance = expected.get("tolerance", 0.0)
    if target is None:
        raise ValueError(f"its answer {expected['answer']!r} is not a number.")
    if not _is_number(tolerance) or not tolerance >= 0:
        raise ValueError(f"its tolerance {tolerance!r} is not a number from 0.")

    def check(answer: str) -> Outcome:
        number = number_in(answer)
        close = number is not None and math.isclose(number, target, rel_tol=1e-9, abs_tol=tolerance)
        return _verdict(close, "numeric", answer, target)

    return check


def number_in(text: str) -> float | None:
    """The last number in a text, thousands separators and a percent sign aside; None if there is none."""
    found = _NUMBER.findall(text[:MAX_ANSWER])
    return float(found[-1].replace(",", "").removesuffix("%")) if found else None


def contains(expected: Mapping[str, Any], case_sensitive: bool) -> Check:
    """Every expected piece of text occurs in the answer."""
    target = _target(expected, "contains", "answer")
    pieces = [_normalized(str(piece), case_sensitive) for piece in (target if isinstance(target, list) else [target])]

    def check(answer: str) -> Outcome:
        text = _normalized(answer, case_sensitive)
        return _verdict(all(piece in text for piece in pieces), "contains", answer, target)

    return check


def regex(expected: Mapping[str, Any], case_sensitive: bool) -> Check:
    """The pattern is found in the answer's first 10,000 characters. A search that takes too long raises."""
    target = str(_target(expected, "regex", "answer"))
    found = compiled(target, case_sensitive=case_sensitive)
    return lambda answer: _verdict(found(answer[:MAX_MATCHED], SEARCH_SECONDS), "regex", answer, target)


def json_schema(expected: Mapping[str, Any], case_sensitive: bool) -> Check:
    """The answer is JSON that the schema accepts. A schema may not refer to another document; a check that takes too
    long raises."""
    from experiences.rollouts.environments.schemas import Schema

    target = _target(expected, "json_schema")
    schema = Schema(target)

    def check(answer: str) -> Outcome:
        try:
            value = json.loads(answer[:MAX_ANSWER])
        except (ValueError, RecursionError):
            return _verdict(False, "json_schema", answer, target)
        return _verdict(schema.accepts(value), "json_schema", answer, target)

    return check


def judge(expected: Mapping[str, Any], case_sensitive: bool) -> Check:
    """A language model's verdict by a rubric. It is asked while the episode goes on (``TextEpisode.say``); what is
    built here answers where there is no model to ask: no verdict, which leaves the trajectory unscored."""
    rubric = rubric_for(expected, "judge")
    assert rubric is not None
    shown, missing = rubric.reference or rubric.text, "no language model was there to judge it"
    return lambda answer: Outcome(0.0, False, _evidence("judge", answer, shown) | {"judge_error": missing})


SCORERS: Mapping[str, Callable[[Mapping[str, Any], bool], Check]] = {
    "exact": exact,
    "numeric": numeric,
    "contains": contains,
    "regex": regex,
    "json_schema": json_schema,
    "judge": judge,
}
