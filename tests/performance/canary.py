"""Canaries: how often equal arms are taken back by mistake, after how many sessions a worse one is; and how many it
takes to show that one is no worse by five points.

``python -m tests.performance.canary --ramps 1000``: simulated ramps, looked at after every session, with all
guardrails. Neither Django nor a service is needed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from statistics import median
from typing import Final, NamedTuple

import numpy as np

from agentcore_site.lib.statistics import wilson_interval
from tests.support.ramps import RAMP, Arm, Promoted, Stopped, promotion, ramp

QUARTER: Final = ((0.25, 6000),)
HALF: Final = ((0.5, 6000),)


class Question(NamedTuple):
    """One line of the table; ``part`` of the ramps are played."""

    title: str
    old: Arm
    new: Arm
    steps: Sequence[tuple[float, int]] = QUARTER
    drift: float = 0.0
    at_once: float = 0.0
    part: float = 1.0


QUESTIONS: Final = (
    Question("equal arms, 5 % failures, ramp 10 25 50 %", Arm(), Arm(), RAMP),
    Question("equal arms, 25 % failures, ramp", Arm(0.25), Arm(0.25), RAMP),
    Question("equal arms, failures move by 80 % over the day, ramp", Arm(), Arm(), RAMP, 0.8),
    Question("equal arms, the new one four times slower, 20 at once, ramp", Arm(), Arm(latency=4), RAMP, at_once=20),
    Question("equal arms, the new one four times faster, 20 at once, ramp", Arm(), Arm(latency=0.25), RAMP, at_once=20),
    Question("failures 5 -> 10 %, a quarter of the traffic", Arm(), Arm(0.10)),
    Question("failures 5 -> 10 %, half of it", Arm(), Arm(0.10), HALF),
    Question("failures 5 -> 15 %, a quarter", Arm(), Arm(0.15)),
    Question("failures 10 -> 20 %, a quarter", Arm(0.1), Arm(0.2)),
    Question("an arm that always fails, a quarter", Arm(), Arm(1.0)),
    Question("success 70 -> 60 %, a quarter", Arm(), Arm(success=0.6), part=0.2),
    Question("cost and time doubled, a quarter", Arm(), Arm(cost=2.0, latency=2.0), part=0.2),
    Question("a better arm, ramp", Arm(), Arm(0.03, 0.8), RAMP, part=0.2),
)


def played(question: Question, seed: int) -> Stopped | None:
    rng = np.random.default_rng((31, seed))
    return ramp(rng, question.old, question.new, steps=question.steps, drift=question.drift, at_once=question.at_once)


def line(question: Question, found: Sequence[Stopped | None]) -> str:
    stopped = [one for one in found if one is not None]
    share, (low, high) = len(stopped) / len(found), wilson_interval(len(stopped), len(found))
    after = ""
    if len(stopped) > len(found) / 2:
        of_new, sessions = median(one.of_new for one in stopped), median(one.sessions for one in stopped)
        after = f"{of_new:,.0f} of the new arm ({sessions:,.0f} in all)"
    return f"| {question.title} | {len(found):,} | {share:.1%} ({low:.1%} to {high:.1%}) | {after} |"


class Promotion(NamedTuple):
    """A line of the second table."""

    title: str
    old: Arm
    new: Arm
    scored: bool = True


PROMOTIONS: Final = (
    Promotion("equal arms, 5 % failures, no scores", Arm(), Arm(), scored=False),
    Promotion("equal arms, 5 % failures, 70 % of the answers right", Arm(), Arm()),
    Promotion("equal arms, 2 % failures, 90 % right", Arm(0.02, 0.9), Arm(0.02, 0.9)),
    Promotion("3 points fewer failures, 10 points more right", Arm(), Arm(0.02, 0.8)),
    Promotion("5 points more failures, no scores", Arm(), Arm(0.10), scored=False),
    Promotion("10 points more failures, no scores", Arm(), Arm(0.15), scored=False),
    Promotion("5 points fewer right", Arm(), Arm(success=0.65)),
    Promotion("10 points fewer right", Arm(), Arm(success=0.60)),
)


def promoted(question: Promotion, seed: int) -> Promoted:
    return promotion(np.random.default_rng((37, seed)), question.old, question.new, scored=question.scored)


def promotion_line(question: Promotion, found: Sequence[Promoted]) -> str:
    whole = [one.sessions for one in found if one.stages == 3]
    share, (low, high) = len(whole) / len(found), wilson_interval(len(whole), len(found))
    first = sum(one.stages > 0 for one in found) / len(found)
    after = ""
    if len(whole) > len(found) / 2:
        nine_tenths = sorted([*whole, *[20_000] * (len(found) - len(whole))])[int(0.9 * len(found))]
        after = f"{median(whole):,.0f} ({nine_tenths:,})"
    return f"| {question.title} | {len(found):,} | {first:.1%} | {share:.1%} ({low:.1%} to {high:.1%}) | {after} |"


def main(arguments: Sequence[str]) -> int:
    options = argparse.ArgumentParser(prog="tests.performance.canary", description=__doc__)
    options.add_argument("--ramps", type=int, default=1000)
    options.add_argument("--workers", type=int, default=2)
    given = options.parse_args(arguments)
    print("| ramp | simulated | rolled back | after, in the median |\n|---|---|---|---|")
    with ProcessPoolExecutor(given.workers) as pool:
        for question in QUESTIONS:
            seeds = range(max(1, round(given.ramps * question.part)))
            found = list(pool.map(partial(played, question), seeds, chunksize=10))
            print(line(question, found), flush=True)
        print("\n| ramp by evidence | simulated | left 10 % | got all | sessions, in the median (nine tenths) |")
        print("|---|---|---|---|---|")
        for promotion_ in PROMOTIONS:
            tried = list(pool.map(partial(promoted, promotion_), range(given.ramps), chunksize=10))
            print(promotion_line(promotion_, tried), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
