"""A playbook over its first executions in simulated worlds: success by hundreds, and the order of items by effect.

The product's own draws, effects, curator and rules of a full playbook, without a site: suggestions come from the world
(half of them help, .15 do harm), and a person approves each one. ``python -m tests.performance.playbooks`` prints
one line a world.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from statistics import fmean
from typing import Final

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded

from experiences.learning.playbooks.curator import CuratorRules, curate
from experiences.learning.playbooks.deltas import Delta
from experiences.learning.playbooks.effects import ItemEffect, Outcomes
from experiences.learning.playbooks.effects_by_words import DrawnExecution, expected_effects, words_of
from experiences.learning.playbooks.items import PlaybookItem
from experiences.learning.playbooks.leave_out import draw
from experiences.learning.playbooks.replacement import curate_replacing, no_room, places
from tests.performance.table import Figure, at_least
from tests.support.world import Advice, Effect
from tests.support.world_outside import OutsideG, OutsideV, OutsideW, OutsideWorld
from tests.support.world_truth import PROMPT

WORLDS: Final[Mapping[str, type[OutsideWorld]]] = {
    one.form: one for one in (OutsideWorld, OutsideV, OutsideW, OutsideG)
}
SEEDS: Final = range(9401, 9407)
EXECUTIONS, EVERY, MOST, TESTED = 1_000, 10, 20, 160
ROLES: Final[Mapping[Effect, float]] = {"helpful": 0.5, "useless": 0.35, "harmful": 0.15}
PEOPLE: Final = CuratorRules(min_confidence=0.0, review_floor=0.0, max_sections=MOST, guarded=False)


@dataclass
class Life:
    """One playbook's life. ``success`` are true rates of the whole playbook after each hundred executions, ``order``
    the probability that a helpful item ranks above a harmful one, of all that were ever measured."""

    world: OutsideWorld
    rng: random.Random
    rate: float
    attainable: float = 0.0
    order: float = float("nan")
    success: list[float] = field(default_factory=list)
    paid: int = 0
    skipped: int = 0
    sections: list[PlaybookItem] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    trials: list[DrawnExecution] = field(default_factory=list)
    numbers: count[int] = field(default_factory=lambda: count(1))

    def live(self, queries: Sequence[str], fresh: Sequence[str]) -> None:
        self.attainable = self.truth(fresh, frozenset(self.world.helpful))
        for number, query in enumerate(queries):
            if number % 100 == 0:
                self.success.append(self.truth(fresh, self.advice(one.id for one in self.sections)))
            self.execute(query)
            if (number + 1) % EVERY == 0:
                self.evolve(queries[number + 1 - EVERY : number + 1])
        self.success.append(self.truth(fresh, self.advice(one.id for one in self.sections)))
        self.order = self.ranked()

    def truth(self, queries: Sequence[str], advice: frozenset[Advice]) -> float:
        tokens = PROMPT + 20.0 * len(advice)
        return fmean(self.world.chance(self.world.find(query)[0], advice, tokens) for query in queries)

    def advice(self, ids: object) -> frozenset[Advice]:
        return frozenset(one for id in ids for one in self.world.advice_in(self.texts[id]))  # type: ignore[attr-defined]

    def execute(self, query: str) -> None:
        offered = [item.id for item in self.sections]
        included = frozenset(offered) - set(draw(1, offered, self.rate, self.rng.random).left_out)
        chance = self.world.chance(self.world.find(query)[0], self.advice(included), PROMPT + 20.0 * len(included))
        ended = self.rng.random() < chance
        self.trials.append(DrawnExecution(words_of([query]), ended, self.rate, frozenset(offered), included))

    def evolve(self, queries: Sequence[str]) -> None:
        effects = self.effects([item.id for item in self.sections])
        if no_room(self.sections, effects, MOST):
            self.skipped += 1
            return
        self.paid += 1
        self.sections = list(curate(self.sections, [], CuratorRules(max_sections=MOST), self.name, effects).sections)
        for query in self.rng.sample(list(queries), self.rng.randint(1, 3))[: places(self.sections, effects, MOST)]:
            kind = self.world.find(query)[0].kind
            role = self.rng.choices(list(ROLES), list(ROLES.values()))[0]
            text = self.world.lesson(self.rng.choice(self.world.proposed(role, kind)), kind, self.rng)
            given = Delta("add", 0.8, "learnings", text)
            made = curate_replacing(self.sections, given, PEOPLE, self.name, effects)
            if len(made.sections) <= MOST:  # else each item helps, and the person is refused
                self.sections = list(made.sections)
                self.texts |= {item.id: item.content for item in self.sections}

    def name(self) -> str:
        return f"s{next(self.numbers)}"

    def effects(self, ids: Sequence[str]) -> dict[str, ItemEffect]:
        expected = expected_effects(self.trials[-2_000:], {id: self.texts[id] for id in ids})
        return {id: replace(self.counted(id), expected=expected.get(id)) for id in ids}

    def counted(self, id: str) -> ItemEffect:
        mine = [trial for trial in self.trials if id in trial.offered]
        included = [trial.success for trial in mine if id in trial.included]
        left = [trial.success for trial in mine if id not in trial.included]
        return ItemEffect(Outcomes(len(included), sum(included)), Outcomes(len(left), sum(left)))

    def ranked(self) -> float:
        effects = {id: one for id, one in self.effects(list(self.texts)).items() if one.known}
        roles: dict[str, list[float]] = {role: [] for role in ROLES}
        for id, effect in effects.items():
            for advice in self.advice([id]):
                roles[advice.role].append(effect.estimate)
        pairs = [(good, bad) for good in roles["helpful"] for bad in roles["harmful"]]
        return fmean((good > bad) + (good == bad) / 2 for good, bad in pairs) if pairs else float("nan")


def lived(world: OutsideWorld, seed: int, *, rate: float) -> Life:
    queries = [row["query"] for row in world.rows(EXECUTIONS + TESTED, seed)]
    life = Life(world, random.Random(f"playbook/{seed}"), rate)
    life.live(queries[TESTED:], queries[:TESTED])
    return life


def lives() -> list[Figure]:
    """Six worlds of each form, at the default rate and at .3."""
    found = []
    for form, world in WORLDS.items():
        for rate in (0.1, 0.3):
            runs = [lived(world(seed), seed, rate=rate) for seed in SEEDS]
            what = f"playbook, {form} worlds, left out {rate:g}"
            ordered = [run.order for run in runs if run.order == run.order]
            after = fmean(run.success[-1] for run in runs)
            goal = fmean(run.attainable for run in runs)
            found.append(
                at_least("X11", f"{what}: success after 1,000 (all that helps: {goal:.3f})", after, 0.75, "", digits=3)
            )
            found.append(at_least("X11", f"{what}: a helpful item ranks above a harmful one", fmean(ordered), 0.9, ""))
            began = [fmean(run.success[at] for run in runs) for at in range(len(runs[0].success))]
            print(what, " ".join(f"{one:.3f}" for one in began), f"order {fmean(ordered):.3f}", file=sys.stderr)
    return found


if __name__ == "__main__":
    for name, kind in WORLDS.items():
        for seed in SEEDS:
            at = time.process_time()
            one = lived(kind(seed), seed, rate=float(sys.argv[1]) if len(sys.argv) > 1 else 0.1)
            rates = " ".join(f"{rate:.3f}" for rate in one.success)
            print(
                f"{name} {seed}: {rates} of {one.attainable:.3f}, order {one.order:.2f}, {one.paid} paid,"
                f" {one.skipped} skipped, {time.process_time() - at:.1f} s",
                flush=True,
            )
