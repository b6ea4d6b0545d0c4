"""G8: the context that the policy learns for a frozen model, proved on a simulated one whose success depends on it.

Everything is the real thing but the model: trainer, reflection, client and meter, at default settings with 200 rows.
The queries that decide were never trained on nor selected by; worlds in which no advice has any effect show how often
something is shipped by chance."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean, median
from types import MappingProxyType
from typing import Any

from tests.performance.table import Figure, at_least, at_most
from tests.support.context_rivals import counted, training_free
from tests.support.context_runs import learned, success_of
from tests.support.simulated_model import simulated_server
from tests.support.world import World
from training.algorithm.inference import PairedDifference, paired_difference

ROWS = 200
SEEDS = range(100, 120)
NULLS, TRAINING_FREE_NULLS = range(100, 160), range(100, 130)
SAMPLES = 8  # of each held-out query
SURE = 0.01
NOTHING: Mapping[str, Any] = MappingProxyType({})
RIVALS = {"training-free GRPO without a gate": training_free, "ACE's counters": counted}


@dataclass(frozen=True)
class Proof:
    """The result of one seed's run. ``over`` is how much better it is than each rival, ``spent`` what that one spent as
    a share of what the run did."""

    seed: int
    found: int
    helpful: int
    shipped: int
    harmful: int
    gain: PairedDifference
    own_ms: list[float]
    over: dict[str, float] = field(default_factory=dict)
    spent: dict[str, float] = field(default_factory=dict)

    @property
    def recall(self) -> float:
        return self.found / self.helpful

    @property
    def is_sure(self) -> bool:
        return self.gain.mean > 0 and self.gain.p_value < SURE

    def __str__(self) -> str:
        rivals = "".join(f", {100 * over:+.0f} over {name}" for name, over in self.over.items())
        return (
            f"seed {self.seed}: {self.found} of {self.helpful} helpful, {self.harmful} harmful of {self.shipped} told, "
            f"{100 * self.gain.mean:+.1f} points, p {self.gain.p_value:.4f}{rivals}"
        )


def proved(seed: int, algorithm: str = "grpo", rivals: Sequence[str] = ()) -> Proof:
    """One whole run in the world of this seed, and the rivals' on the same queries."""
    world = World(seed)
    with simulated_server(world) as server:
        run = learned(server.base_url, world.rows(ROWS, seed), {"algorithm": algorithm}, seed=seed)
        budget, base = run.spent, run.setup.fresh_state().policy
        before, after = (
            success_of(run, policy, samples=SAMPLES, purpose=name)
            for policy, name in ((base, "baseline"), (run.state.policy, "trained"))
        )
        over, spent = {}, {}
        for name in rivals:
            context, amount = RIVALS[name](run, budget)
            spent[name] = amount / budget
            over[name] = float((after - success_of(run, context, samples=SAMPLES, purpose=name)).mean())
    return Proof(
        seed,
        found=len({one for text in run.shipped for one in world.advice_in(text) if one.effect == "helpful"}),
        helpful=len(world.helpful),
        shipped=len(run.shipped),
        harmful=sum(any(one.effect == "harmful" for one in world.advice_in(text)) for text in run.shipped),
        gain=paired_difference(after, before),
        own_ms=[one.own_ms for one in run.answered if one.stage == "summary"],
        over=over,
        spent=spent,
    )


def gains() -> list[Figure]:
    """The default algorithm, seed by seed, against what others make of the same money."""
    proofs = _proofs(partial(proved, rivals=tuple(RIVALS)), SEEDS)
    n = len(proofs)
    shipped, harmful = sum(one.shipped for one in proofs), sum(one.harmful for one in proofs)
    recall = fmean(one.recall for one in proofs)
    own = median(ms for one in proofs for ms in one.own_ms)
    uneven = max(abs(share - 1) for one in proofs for share in one.spent.values())
    return [
        at_least("G8", "helpful lessons that are found and served, mean share", recall, 0.9, "", digits=3),
        at_most("G8", f"harmful ones of {shipped} lessons told", 100 * harmful / max(shipped, 1), 2, "%", digits=1),
        at_least("G8", "gain on held-out queries, mean", _points(proofs), 15, "points", digits=1),
        at_least("G8", f"seeds whose gain has p < .01, of {n}", sum(p.is_sure for p in proofs), n, "seeds", digits=0),
        at_most("G8", "largest p of them all", max(one.gain.p_value for one in proofs), SURE, "", digits=4),
        *(_against(name, [one.over[name] for one in proofs]) for name in RIVALS),
        at_most("G8", "money that a rival had more or less than our run, at most", 100 * uneven, 5, "%", digits=1),
        at_most("X4", "own time of a summary, median", own, 50, "ms"),
    ]


def nulls() -> list[Figure]:
    """The share of runs that ship a lesson in a world in which nothing helps."""
    return [_by_chance("grpo", NULLS)]


def free() -> list[Figure]:
    """Training-free GRPO with its gates."""
    proofs = _proofs(partial(proved, algorithm="tfgrpo"), SEEDS)
    shipped, harmful = sum(one.shipped for one in proofs), sum(one.harmful for one in proofs)
    shipping = sum(one.shipped > 0 for one in proofs)
    print(
        f"tfgrpo: {shipping} of {len(proofs)} seeds ship; recall {fmean(one.recall for one in proofs):.2f}, "
        f"{harmful} of {shipped} lessons harmful, {sum(one.is_sure for one in proofs)} with p < .01",
        file=sys.stderr,
    )
    return [
        at_least("X3", "tfgrpo: gain on held-out queries, mean", _points(proofs), 15, "points", digits=1),
        _by_chance("tfgrpo", TRAINING_FREE_NULLS),
    ]


def accepted_by_chance(seed: int, algorithm: str, config: Mapping[str, Any] = NOTHING) -> bool:
    """Whether a run ships anything in a world in which no advice has any effect."""
    world = World.null(seed)
    with simulated_server(world) as server:
        run = learned(server.base_url, world.rows(ROWS, seed), {"algorithm": algorithm, **config}, seed=seed)
    return bool(run.shipped)


def _by_chance(algorithm: str, seeds: range) -> Figure:
    chosen = _chosen(seeds)
    shipped = [seed for seed in chosen if accepted_by_chance(seed, algorithm)]
    print(f"{algorithm}: shipped something in the null worlds {shipped}", file=sys.stderr)
    share = 100 * len(shipped) / len(chosen)
    name = f"{algorithm}: {len(chosen)} worlds without effects in which something is shipped"
    return at_most("G8", name, share, 5, "%", digits=1)


def _against(name: str, over: Sequence[float]) -> Figure:
    """Paired over seeds: what the rival made of the same money, in the same world."""
    test = paired_difference(over, [0.0] * len(over))
    ratio = test.p_value / SURE if test.mean > 0 else float("inf")
    value = f"{100 * test.mean:+.1f} points, p {test.p_value:.4f}"
    return Figure("G8", f"gain over {name}, for as many dollars", value, f"p < {SURE:g}", ratio)


def _points(proofs: Sequence[Proof]) -> float:
    return 100 * fmean(one.gain.mean for one in proofs)


def _proofs(prove: partial[Proof], seeds: range) -> list[Proof]:
    proofs = []
    for seed in _chosen(seeds):
        proofs.append(prove(seed))
        print(proofs[-1], file=sys.stderr)
    return proofs


def _chosen(seeds: range) -> Sequence[int]:
    return [int(seed) for seed in os.environ.get("BENCH_SEEDS", "").split(",") if seed] or list(seeds)
