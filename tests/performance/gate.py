"""The gate: how often it lets something through by mistake, and how often it finds what is better.

``python -m tests.performance.gate --rounds 1000``: simulated rounds, looked at after every query. Neither Django nor a
service is needed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from statistics import median
from typing import Final

from agentcore_site.lib.statistics import wilson_interval
from evaluation.serving.gate.verdict import MARGIN
from tests.support.gate_rounds import Round, promoted_after

VARIED: Final = 0.15  # standard deviation of a gain between queries

QUESTIONS: Final = {
    "equal, 1 sample of each query": Round(samples=1),
    "equal, 8 samples": Round(),
    "equal in the mean, varied by query, 8 samples": Round(spread=VARIED),
    "5 points worse, called no worse": Round(-MARGIN, VARIED, -MARGIN),
    "equal, called no worse, 8 samples": Round(0, VARIED, -MARGIN, candidates=1),
    "15 points better, alone, 1 sample": Round(0.15, VARIED, candidates=1, samples=1),
    "15 points better, alone, 2 samples": Round(0.15, VARIED, candidates=1, samples=2),
    "15 points better, alone, 8 samples": Round(0.15, VARIED, candidates=1),
}
OF_TEN: Final = (1, 2, 4, 8)  # samples, of a better candidate among ten


def only_one_better(samples: int, seed: int) -> int | None:
    """The bounds are those of ten candidates, one of which is better: what the others do changes nothing for it."""
    world = Round(0.15, VARIED, samples=samples)
    return promoted_after(world._replace(candidates=1), seed, shared_by=world.candidates)


def line(title: str, candidates: int, found: Sequence[int | None]) -> str:
    through = [one for one in found if one is not None]
    share, (low, high) = len(through) / len(found), wilson_interval(len(through), len(found))
    after = f"{median(through):.0f}" if len(through) > len(found) / 2 else ""
    return f"| {title} | {candidates} | {len(found):,} | {share:.1%} ({low:.1%} to {high:.1%}) | {after} |"


def main(arguments: Sequence[str]) -> int:
    options = argparse.ArgumentParser(prog="tests.performance.gate", description=__doc__)
    options.add_argument("--rounds", type=int, default=1000)
    options.add_argument("--workers", type=int, default=2)
    given = options.parse_args(arguments)
    print("| candidates, 120 queries | of | rounds | let through | after, in the median |\n|---|---|---|---|---|")
    with ProcessPoolExecutor(given.workers) as pool:

        def ask(title: str, candidates: int, play: partial[int | None]) -> None:
            print(line(title, candidates, list(pool.map(play, range(given.rounds), chunksize=10))), flush=True)

        for title, world in QUESTIONS.items():
            ask(title, world.candidates, partial(promoted_after, world))
        for samples in OF_TEN:
            title = f"15 points better, one of ten, {samples} sample{'s' if samples > 1 else ''}"
            ask(title, 10, partial(only_one_better, samples))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
