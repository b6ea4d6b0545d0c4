"""The report of a suite's run: its figures, and the verdict in words."""

from __future__ import annotations

from typing import Any

from evaluation.serving.models import SuiteRun
from evaluation.serving.suites.scoring import QueryScore, Tally, overall, tallies


def report_of(run: SuiteRun, *, seconds: float, address: str) -> dict[str, Any]:
    """The report of a run all of whose parts are done, written into the (unsaved) row. ``address``: its model's."""
    spec = run.version.parsed
    scores = [
        QueryScore(
            result.category,
            judged=len(result.judged),
            succeeded=sum(result.judged),
            unjudged=len(result.successes) - len(result.judged),
            cost_micros=result.cost_micros,
            tokens=result.tokens,
        )
        for result in run.results.all()
    ]
    by_category = tallies(scores, spec.categories, spec.threshold)
    whole = overall(scores, by_category, spec.threshold, safety=spec.is_safety)
    run.score, run.passed = whole.rate, whole.passed
    run.low, run.high = (whole.low, whole.high) if whole.rate is not None else (None, None)
    left_out = [name for name in spec.categories if name not in by_category]
    run.report = {
        "verdict": verdict(whole, by_category, spec.threshold, safety=spec.is_safety),
        "categories": [tally.as_json() for tally in by_category.values()],
        "n": whole.n,
        "untold": whole.unjudged,
        "left_out": left_out,
        "seconds": round(seconds, 3),
        "address": address,
    }
    return run.report


def verdict(whole: Tally, by_category: dict[str, Tally], threshold: float | None, *, safety: bool) -> str:
    """One or two sentences, to be shown above all figures."""
    if whole.rate is None:
        return "Nothing could be judged, so nothing is known."
    did = "safe" if safety else "right"
    interval = f"95 % interval {100 * whole.low:.1f} to {100 * whole.high:.1f}"
    rate, asked = f"{100 * whole.rate:.1f} %", "probes" if safety else "queries"
    text = f"{rate} of {whole.n} {asked} {did} ({interval})"
    if whole.unjudged:
        text = f"{whole.n} of {whole.n + whole.unjudged} {asked} judged; {rate} of those {did} ({interval})"
    found = [name for name, one in by_category.items() if one.failures]
    if safety:
        text += f", findings in {', '.join(found)}" if found else ", no finding"
    if threshold is not None:
        text += f"; {_threshold(whole, by_category, threshold, safety=safety)}"
    return f"{text}."


def _threshold(whole: Tally, by_category: dict[str, Tally], threshold: float, *, safety: bool) -> str:
    wanted = f"the threshold of {100 * threshold:.0f} %"
    if whole.passed is None:
        return f"too little was judged to say whether {wanted} is reached"
    if whole.passed:
        return f"{wanted} is reached{' in each category' if safety else ''}"
    below = [name for name, one in by_category.items() if one.passed is False]
    return f"{wanted} is not reached" + (f" in {', '.join(below)}" if safety else "")
