"""The queries of a run, split for ever: what is trained on, what selects, what is held out.

A dataset is split by content. An environment that makes its own items is asked for three disjoint sets.
Both are deterministic in (source, options, seed), so every slice, evaluation and resumption sees the same pools.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, Final, TypedDict

from agentcore_site.lib.lru_cache import LruCache
from experiences.rollouts.environments import environments
from experiences.rollouts.environments.base import Environment
from experiences.rollouts.environments.dataset import dataset_environment
from experiences.rollouts.options import POOL, own_options
from experiences.rollouts.types import Scenario, reindexed
from training.schema import GRPOConfig
from training.splits import HELD_OUT_SHARE, SELECTION_LEAST, SELECTION_SHARE, split_queries

# How many items a generating environment is asked for; ``environment_options["pool"]`` may say otherwise.
POOL_SIZES: Final = {"train": 200, "selection": 48, "held_out": 200}
POOL_LIMIT: Final = 10_000


@dataclass(frozen=True)
class Pools:
    """An environment with its three disjoint sets of scenarios.

    The held-out set is made when it is first asked for: training never asks, and so neither waits for it nor holds it.
    """

    environment: Environment
    train: Sequence[Scenario]
    selection: Sequence[Scenario]
    seed: int
    make_held_out: Callable[[], Sequence[Scenario]]

    @cached_property
    def held_out(self) -> Sequence[Scenario]:
        return self.make_held_out()

    @property
    def lines(self) -> tuple[str, ...]:
        """Names of the test sets that an evaluation reports; the first one decides."""
        return ("held_out", *self.environment.lines)

    def line(self, name: str) -> Sequence[Scenario]:
        """The scenarios of one line of the report ("held_out", "selection", or an extra line)."""
        if name == "held_out":
            return self.held_out
        if name == "selection":
            return self.selection
        return self.environment.scenarios(name, len(self.held_out), self.seed)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the held-out texts: under it the uses of this set are counted."""
        return hashlib.sha256("\n".join(scenario.query for scenario in self.held_out).encode()).hexdigest()


# More than the jobs that take turns on a worker: 99 of 100 in a smaller one would all miss. One takes half a megabyte,
# and jobs that have ended do not come again.
_pools: Final[LruCache[tuple[Any, ...], Pools]] = LruCache(most=128, seconds=300)


def pool_sizes(options: Mapping[str, Any]) -> dict[str, int]:
    """The sizes that the options ask for.

    Raises:
        ValueError: an unknown set, or a size out of range.
    """
    given = options.get(POOL) or {}
    if not isinstance(given, Mapping) or set(given) - set(POOL_SIZES):
        raise ValueError(f"pool must be an object with some of: {', '.join(POOL_SIZES)}.")
    sizes = POOL_SIZES | {name: int(size) for name, size in given.items()}
    for name, size in sizes.items():
        if not 1 <= size <= POOL_LIMIT:
            raise ValueError(f"pool.{name} must be between 1 and {POOL_LIMIT:,}; got {size}.")
    return sizes


def environment_pools(name: str, options: Mapping[str, Any], seed: int) -> Pools:
    """Pools of an environment that makes its own items. Cached: slices of one job ask again and again.

    Raises:
        UnknownName, ValueError: no such environment, or it refuses the options.
    """
    sizes = pool_sizes(options)
    options_json = json.dumps(own_options(options), sort_keys=True)

    def make() -> Pools:
        environment = _environment(name, options_json)
        train, selection = (environment.scenarios(split, sizes[split], seed) for split in ("train", "selection"))
        held_out = partial(environment.scenarios, "held_out", sizes["held_out"], seed)
        return Pools(environment, train, selection, seed, held_out)

    return _pools.get((name, options_json, tuple(sizes.items()), seed), make)


@lru_cache(maxsize=4)
def _environment(name: str, options_json: str) -> Environment:
    """One environment for all jobs of a worker that ask for the same: it holds the caches of its items."""
    return environments.get(name)(json.loads(options_json))


class Shares(TypedDict):
    """Shares of a dataset for proof and for selection, as keywords."""

    held_out_share: float
    selection_share: float
    selection_least: int


def shares(config: GRPOConfig) -> Shares:
    return {
        "held_out_share": config.held_out_share,
        "selection_share": config.selection_share,
        "selection_least": config.selection_least,
    }


def dataset_pools(
    rows: Sequence[Mapping[str, Any]],
    options: Mapping[str, Any],
    seed: int,
    *,
    held_out_share: float = HELD_OUT_SHARE,
    selection_share: float = SELECTION_SHARE,
    selection_least: int = SELECTION_LEAST,
) -> Pools:
    """Pools of an uploaded dataset: a share is held out, and of the rest a share selects.

    Raises:
        ValueError: a row has nothing to check an answer against (the message has its number).
    """
    environment = dataset_environment(rows, own_options(options))
    scenarios = environment.scenarios("all", len(rows), seed)
    queries = [scenario.query for scenario in scenarios]
    split = split_queries(
        queries,
        seed=seed,
        held_out_share=held_out_share,
        selection_share=selection_share,
        selection_least=selection_least,
    )
    train, selection, held_out = (
        reindexed([scenarios[i] for i in part]) for part in (split.train, split.selection, split.held_out)
    )
    return Pools(environment, train, selection, seed, lambda: held_out)
