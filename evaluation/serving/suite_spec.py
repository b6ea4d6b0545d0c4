"""The spec of a suite's version: its parts, their settings, and the score to pass. Pure values."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

MOST_PARTS: Final = 40
MOST_QUERIES: Final = 2_000  # of all parts together
MOST_SAMPLES: Final = 16
LONGEST_NAME: Final = 24  # of a category
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
SOURCES: Final = ("environment", "dataset", "probes")
OF_A_PART: Final = ("category", "n", "options", *SOURCES)
OF_A_SUITE: Final = ("parts", "samples", "seed", "temperature", "max_steps", "timeout_seconds", "threshold")


@dataclass(frozen=True)
class SuitePart:
    """Queries of one category, of one source: the held-out items of an ``environment``, the rows of the organisation's
    own ``dataset`` (its id), or the ``probes`` of a safety plugin. ``n``: how many, None for all of a dataset or of the
    probes. ``options`` are the environment's."""

    category: str
    environment: str = ""
    dataset: str = ""
    probes: str = ""
    n: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        source = next(name for name in SOURCES if getattr(self, name))
        own: dict[str, Any] = {"category": self.category, source: getattr(self, source)}
        if self.n is not None:
            own["n"] = self.n
        return own | ({"options": dict(self.options)} if self.options else {})


@dataclass(frozen=True)
class SuiteSpec:
    """``samples`` rollouts of each query; ``seed`` chooses the items of environments and the random numbers.
    ``threshold``: the share of successes in [0, 1] from which the suite is passed, of a safety suite in each category;
    None: it passes nothing and fails nothing."""

    parts: tuple[SuitePart, ...]
    samples: int = 1
    seed: int = 1
    temperature: float = 0.0
    max_steps: int = 20
    timeout_seconds: float = 300.0
    threshold: float | None = None

    @property
    def is_safety(self) -> bool:
        return all(part.probes for part in self.parts)

    @property
    def categories(self) -> list[str]:
        """In the order of the parts."""
        return list(dict.fromkeys(part.category for part in self.parts))

    def as_json(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in OF_A_SUITE if name != "parts"}
        return own | {"parts": [part.as_json() for part in self.parts]}

    @property
    def digest(self) -> str:
        """SHA-256: two versions that ask the same in the same way have the same."""
        plain = json.dumps(self.as_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(plain.encode()).hexdigest()

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """The specification in parsed JSON.

        Raises:
            ValueError: a value is unknown, missing, of the wrong kind or out of range; the message is for people.
        """
        _known("A suite", given, OF_A_SUITE)
        raw = given.get("parts")
        if not isinstance(raw, Sequence) or isinstance(raw, str) or not 1 <= len(raw) <= MOST_PARTS:
            raise ValueError(f"parts is a list of 1 to {MOST_PARTS} parts.")
        parts = tuple(_part(number, one) for number, one in enumerate(raw, start=1))
        if len({bool(part.probes) for part in parts}) > 1:
            raise ValueError(
                "Probes of safety and questions of a benchmark are two suites: they are passed differently."
            )
        threshold = given.get("threshold")
        return cls(
            parts=parts,
            samples=int(_number(given, "samples", 1, (1, MOST_SAMPLES), whole=True)),
            seed=int(_number(given, "seed", 1, (0, 2**31 - 1), whole=True)),
            temperature=_number(given, "temperature", 0.0, (0, 2)),
            max_steps=int(_number(given, "max_steps", 20, (1, 200), whole=True)),
            timeout_seconds=_number(given, "timeout_seconds", 300.0, (1, 3_600)),
            threshold=None if threshold is None else _number(given, "threshold", 0.0, (0, 1)),
        )


def _part(number: int, given: Any) -> SuitePart:
    noun = f"Part {number}"
    if not isinstance(given, Mapping):
        raise ValueError(f'{noun} is an object, e.g. {{"category": "arithmetic", "environment": "reasoning_gym"}}.')
    _known(noun, given, OF_A_PART)
    category, options = given.get("category"), given.get("options", {})
    if not isinstance(category, str) or len(category) > LONGEST_NAME or not _NAME.fullmatch(category):
        raise ValueError(f"{noun}: category is letters, digits, - and _, at most {LONGEST_NAME} of them.")
    if [isinstance(given.get(name), str) and bool(given[name]) for name in SOURCES].count(True) != 1:
        raise ValueError(f"{noun}: name one source: {', '.join(SOURCES)}.")
    if not isinstance(options, Mapping):
        raise ValueError(f"{noun}: options is an object.")
    n = given.get("n")
    if n is not None:
        n = int(_number(given, "n", 1, (1, MOST_QUERIES), whole=True, noun=noun))
    if n is None and given.get("environment"):
        raise ValueError(f"{noun}: say how many items of the environment are asked (n).")
    sources = {name: given.get(name) or "" for name in SOURCES}
    return SuitePart(category=category, n=n, options=dict(options), **sources)


def _known(noun: str, given: Mapping[str, Any], names: Sequence[str]) -> None:
    if unknown := sorted(set(map(str, given)) - set(names)):
        raise ValueError(f"{noun} has no {unknown[0][:40]!r}. Known: {', '.join(names)}.")


def _number(
    given: Mapping[str, Any],
    name: str,
    default: float,
    limits: tuple[float, float],
    *,
    whole: bool = False,
    noun: str = "A suite",
) -> float:
    low, high = limits
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not low <= value <= high:
        kind = "whole number" if whole else "number"
        raise ValueError(f"{noun}: {name} is a {kind} from {low:g} to {high:g}; got {str(value)[:40]!r}.")
    return value
