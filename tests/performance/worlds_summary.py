"""Summary of many worlds: the share that ships a lesson, and the part of the possible gain that is delivered."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, Final

RESAMPLES: Final = 2_000
CONFIDENCE: Final = 0.95

One = Mapping[str, Any]


def summary(found: Sequence[One]) -> str:
    """The table: by size, by how few queries a lesson touches, by wording; null worlds apart."""
    known = [one for one in found if "error" not in one]
    lines = [f"{len(found) - len(known)} of {len(found)} worlds failed."] if len(known) < len(found) else []
    null, real = [one for one in known if one["null"]], [one for one in known if not one["null"]]
    if real:
        lines += [_HEAD, *_rows(real, "all", lambda _: "")]
        for name in ("queries", "one_in", "wording", "repeating"):
            lines += _rows(real, name, lambda one, name=name: one[name])
    if null:
        lines += ["Worlds in which no advice has any effect:"]
        for size, some in _groups(null, lambda one: one["queries"]):
            lines.append(f"  {size} queries: shipped in {_share(some)}")
        lines.append(f"  all together: shipped in {_share(null)}")
    return "\n".join(lines)


_HEAD: Final = (
    f"{'':<22}{'worlds':>7}  {'shipped (95 %)':<28}{'attainable':>10}{'fixed':>8}{'delivered':>11}  share (95 %)"
)


def _rows(found: Sequence[One], name: str, key: Callable[[One], Any]) -> list[str]:
    return [f"{f'{name} {value}':<22}{_row(some)}" for value, some in _groups(found, key)]


def _row(some: Sequence[One]) -> str:
    attainable, fixed, delivered = (
        100 * fmean(one[name] for one in some) for name in ("attainable", "fixed", "delivered")
    )
    low, high = _ratio_interval(some)
    return (
        f"{len(some):>7}  {_share(some):<28}{attainable:>10.1f}{fixed:>8.1f}{delivered:>+11.1f}"
        f"  {delivered / attainable:.2f} ({low:.2f} to {high:.2f})"
    )


def _share(some: Sequence[One]) -> str:
    shipped = sum(one["shipped"] for one in some)
    low, high = clopper_pearson(shipped, len(some))
    return f"{shipped}/{len(some)} ({100 * low:.1f} to {100 * high:.1f} %)"


def _groups(found: Iterable[One], key: Callable[[One], Any]) -> list[tuple[Any, list[One]]]:
    groups: dict[Any, list[One]] = {}
    for one in found:
        groups.setdefault(key(one), []).append(one)
    return sorted(groups.items(), key=lambda pair: pair[0])


def _ratio_interval(some: Sequence[One]) -> tuple[float, float]:
    """Of delivered to attainable gain, worlds being drawn again with replacement."""
    rng = random.Random(0)
    drawn = [rng.choices(some, k=len(some)) for _ in range(RESAMPLES)]
    ratios = sorted(sum(one["delivered"] for one in d) / max(sum(one["attainable"] for one in d), 1e-9) for d in drawn)
    cut = int(RESAMPLES * (1 - CONFIDENCE) / 2)
    return ratios[cut], ratios[-cut - 1]


def clopper_pearson(x: int, n: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The exact interval of a share of x in n."""
    tail = (1 - confidence) / 2
    low = 0.0 if x == 0 else _solved(lambda p: 1 - _up_to(x - 1, n, p) - tail)
    high = 1.0 if x == n else _solved(lambda p: tail - _up_to(x, n, p))
    return low, high


def _up_to(x: int, n: int, p: float) -> float:
    return math.fsum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(x + 1))


def _solved(rises: Callable[[float], float]) -> float:
    """The root of a function that rises, between 0 and 1, by halving."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if rises(middle) < 0 else (low, middle)
    return (low + high) / 2
