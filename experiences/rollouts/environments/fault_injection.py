"""Seeded faults of tools: time-outs and corrupted results. They are what makes verifying worth its price."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from experiences.rollouts.tools.dates import WEEKDAYS

_LAST_INTEGER = re.compile(r"\d+(?!.*\d)", re.DOTALL)
_WHOLE_INTEGER = re.compile(r"-?\d+")
_OFF_BY = (-5, -4, -3, -2, -1, 1, 2, 3, 4, 5)
_YES_NO = {"Yes": "No", "No": "Yes"}
_BLOCK = 48  # random numbers drawn at once: enough for the tool calls of all but the longest episodes


@dataclass(frozen=True, slots=True)
class FaultRates:
    """The share of tool calls that time out, and that return a corrupted result."""

    timeout: float = 0.04
    corrupted: float = 0.06


class Faults:
    """The faults one episode will meet, by the number of the call.

    The first block is drawn before the episode's first step. So two policies that meet the same scenario with
    the same seed meet the same faults, also where they choose differently (common random numbers, for paired
    comparisons).
    """

    __slots__ = ("_draws", "_next", "_rates", "_rng")

    def __init__(self, rates: FaultRates, rng: np.random.Generator) -> None:
        self._rates = rates
        self._rng = rng
        self._draws: list[float] = rng.random(_BLOCK).tolist()
        self._next = 0

    def next(self) -> tuple[Literal["", "timeout", "corrupted"], float]:
        """The next call's fault, and a number in [0, 1) that says how a result is corrupted."""
        if self._next + 2 > len(self._draws):
            self._draws, self._next = self._rng.random(_BLOCK).tolist(), 0
        kind, manner = self._draws[self._next : self._next + 2]
        self._next += 2
        if kind < self._rates.timeout:
            return "timeout", manner
        if kind < self._rates.timeout + self._rates.corrupted:
            return "corrupted", manner
        return "", manner


def corrupted(result: str, manner: float) -> str:
    """A plausible wrong version of ``result``; ``manner`` in [0, 1) picks among several.

    An integer is off by 1 to 5; a list loses an item; in an expression, fraction or decimal the last number is too
    large by 1 to 5; Yes and No are exchanged; a weekday is another one; any other text lacks a character. There are
    several ways, so that two corrupted results seldom agree.
    """
    if _WHOLE_INTEGER.fullmatch(result):
        return str(int(result) + _OFF_BY[int(manner * len(_OFF_BY))])
    if result in _YES_NO:
        return _YES_NO[result]
    if result in WEEKDAYS:
        return WEEKDAYS[(WEEKDAYS.index(result) + 1 + int(manner * 6)) % 7]
    if ", " in result:
        return _without_item(result, manner)
    number = _LAST_INTEGER.search(result)
    if number:
        wrong = int(number.group()) + 1 + int(manner * 5)
        return f"{result[: number.start()]}{wrong}{result[number.end() :]}"
    if len(result) < 2:
        return result * 2 or "?"
    place = int(manner * len(result))
    return result[:place] + result[place + 1 :]


def _without_item(written: str, manner: float) -> str:
    opening, closing = ("[", "]") if written.startswith("[") else ("", "")
    items = written.removeprefix(opening).removesuffix(closing).split(", ")
    del items[int(manner * len(items))]
    return opening + ", ".join(items) + closing
