"""Opinions on an answer, metric by metric, and their meaning for the reward. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from experiences.rollouts.rewards.signals import STARS as MOST_STARS
from experiences.rollouts.rewards.signals import number

THUMBS: Final = "thumbs"
STARS: Final = "stars"
CORRECTION: Final = "correction"
COMMENT: Final = "comment"
SUCCESS: Final = "success"  # whether the task was done, from 0 to 1: the reward's completion
RETRIED: Final = "retried"
ABANDONED: Final = "abandoned"
TEXTS: Final = (CORRECTION, COMMENT)
IMPLICIT: Final = (RETRIED, ABANDONED)
MOST_TEXT: Final = 10_000
LARGEST: Final = 1e9
METRIC: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
_THUMBS: Final[Mapping[Any, float]] = {"up": 1.0, "down": 0.0, 1: 1.0, 0: 0.0, -1: 0.0}  # True and False are 1 and 0


class Opinion(NamedTuple):
    """``value``: thumbs 0 or 1, stars 1 to 5, any number of a named metric; None where there is only a text."""

    metric: str
    value: float | None
    text: str = ""


class Refused(ValueError):
    """The opinion is invalid. ``field``: metric, value or text."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def opinion(metric: str, value: Any = None, text: str = "") -> Opinion:
    """Parses an opinion by its metric.

    Raises:
        Refused: the message explains the valid form.
    """
    text = text.strip()
    if not METRIC.fullmatch(metric):
        raise Refused("metric", "A metric is named by 1 to 40 of a to z, 0 to 9 and _, and begins with a letter.")
    if metric in IMPLICIT:
        raise Refused("metric", f"{metric} is seen by a rule, and not given.")
    if len(text) > MOST_TEXT:
        raise Refused("text", f"A text has at most {MOST_TEXT:,} characters; this one has {len(text):,}.")
    if metric in TEXTS:
        if not text:
            raise Refused("text", f"A {metric} is a text.")
        if value is not None:
            raise Refused("value", f"A {metric} has no value.")
        return Opinion(metric, None, text)
    return Opinion(metric, _value(metric, value), text)


def _value(metric: str, value: Any) -> float:
    if metric == THUMBS:
        found = _THUMBS.get(value.lower() if isinstance(value, str) else value) if _is_key(value) else None
        if found is None:
            raise Refused("value", "Thumbs are up or down (true or false, 1 or 0).")
        return found
    given = float(value) if isinstance(value, bool) else number(value)
    if given is None or abs(given) > LARGEST:
        raise Refused("value", f"{metric} needs a number.")
    if metric == STARS and given not in range(1, MOST_STARS + 1):
        raise Refused("value", f"Stars are a whole number from 1 to {MOST_STARS}.")
    if metric == SUCCESS and not 0 <= given <= 1:
        raise Refused("value", "Success is from 0 to 1 (false or true).")
    return given


def _is_key(value: Any) -> bool:
    return isinstance(value, str | bool | int | float)


def evidence(opinions: Iterable[Opinion]) -> dict[str, Any]:
    """All opinions of one answer as ``signals.feedback`` reads them; {} where there are none that count.

    Thumbs and stars come before a correction, which comes before what a rule saw.
    """
    given = list(opinions)
    found: dict[str, Any] = {
        name: values for name in (THUMBS, STARS) if (values := [one.value for one in given if one.metric == name])
    }
    metrics = {one.metric for one in given}
    if metrics & {CORRECTION, RETRIED}:  # who asks nearly the same again asks for another answer
        found["implicit"] = "correction"
    elif ABANDONED in metrics:
        found["implicit"] = "abandoned"
    return found


def success(opinions: Iterable[Opinion]) -> float | None:
    """The mean of the opinions on the task's success; None without any."""
    values = [opinion.value for opinion in opinions if opinion.metric == SUCCESS and opinion.value is not None]
    return sum(values) / len(values) if values else None
