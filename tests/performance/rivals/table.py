"""The table of ``make bench ARGS=rivals``: success, wins, calls and tokens of each method, by wording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Final

OURS: Final = "AgentCore"
SHARES: Final = {"all calls": 1.0, "half": 0.5}

One = Mapping[str, Any]
_HEAD: Final = f"{'':<38}{'success':>8}{'ours more by':>14}{'ours above':>12}{'calls':>8}{'k tokens':>10}  told: + 0 -"


def table(found: Sequence[One]) -> str:
    """Only worlds in which every method came to its end are compared; the others are named."""
    failed = {one["seed"]: _errors(one) for one in found}
    known = [one for one in found if not failed[one["seed"]]]
    lines = [f"seed {seed} is left out: {errors}" for seed, errors in failed.items() if errors]
    for wording in ("", *sorted({one["wording"] for one in known})):
        some = [one for one in known if wording in ("", one["wording"])]
        lines += _part(wording or "all worlds", some) if some else []
    return "\n".join(lines)


def _errors(one: One) -> str:
    if "error" in one:
        return str(one["error"])
    return "; ".join(f"{name}: {result['error']}" for name, result in one["methods"].items() if "error" in result)


def _part(title: str, some: Sequence[One]) -> list[str]:
    base = fmean(one["base"] for one in some)
    return [
        f"{title}: {len(some)}; success {base:.3f} with an empty context",
        _HEAD,
        *(_row(some, method) for method in some[0]["methods"]),
        *(_best(some, name) for name in SHARES),
    ]


def _row(some: Sequence[One], method: str) -> str:
    """Compared with our run of the same share of calls."""
    rows, ours = [one["methods"][method] for one in some], f"{OURS}, {method.rpartition(', ')[2]}"
    over = [one["methods"][ours]["success"] - row["success"] for one, row in zip(some, rows, strict=True)]
    mean = {name: fmean(row[name] for row in rows) for name in rows[0]}
    against = "" if method == ours else f"{100 * fmean(over):+.1f}"
    wins = "" if method == ours else f"{sum(one > 0 for one in over)}/{len(over)}"
    return (
        f"  {method:<36}{mean['success']:>8.3f}{against:>14}{wins:>12}{mean['calls']:>8.0f}{mean['ktokens']:>10.0f}"
        f"  {mean['helpful']:.1f} {mean['useless']:.1f} {mean['harmful']:.1f}"
    )


def _best(some: Sequence[One], share: str) -> str:
    """Our run with a share of the calls beside the best of the others with all of them."""
    others = [name for name in some[0]["methods"] if not name.startswith(OURS) and name.endswith("all calls")]
    if not others:
        return ""
    best = max(others, key=lambda name: fmean(one["methods"][name]["success"] for one in some))
    over = [one["methods"][f"{OURS}, {share}"]["success"] - one["methods"][best]["success"] for one in some]
    above = sum(one > 0 for one in over)
    return f"  {OURS} with {share} beside {best}: {100 * fmean(over):+.1f} points, above in {above}/{len(over)}"
