"""reasoning-gym's generators: making an item from one integer, and judging an answer with the item's verifier.

reasoning-gym takes more than a second to import, so it is imported at the first use. It changes the thread's
decimal precision in places (one of its generators from 28 to 12 digits), so everything here runs in a decimal
context of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from decimal import localcontext
from typing import Any, NamedTuple

from experiences.rollouts.environments.lean_import import reasoning_gym
from experiences.rollouts.types import Outcome, Scenario

SUCCESS_SCORE = 0.99  # several verifiers pay part credit for a part of the answer; that is not a success
MAX_REMEMBERED_ITEMS = 5_000

HARDER: Mapping[str, Mapping[str, Any]] = {
    "chain_sum": {"min_digits": 5, "max_digits": 8},
    "decimal_chain_sum": {"min_digits": 5, "max_digits": 8},
    "gcd": {"min_numbers": 3, "max_numbers": 5, "max_value": 100_000},
    "lcm": {"min_numbers": 3, "max_numbers": 5, "max_value": 1_000},
    "prime_factorization": {"min_value": 1_001, "max_value": 1_000_000},
    "fraction_simplification": {"max_value": 100_000, "max_factor": 1_000},
    "base_conversion": {"max_base": 36, "min_value": 1_001, "max_value": 1_000_000},
    "bitwise_arithmetic": {"difficulty": 4},
    "leg_counting": {"min_animals": 10, "max_animals": 20, "min_instances": 16, "max_instances": 500},
    "spell_backward": {"min_word_len": 8, "max_word_len": 10},
    "letter_counting": {"min_words": 16, "max_words": 40},
    "word_sorting": {"min_words": 12, "max_words": 30},
    "number_sorting": {"min_numbers": 12, "max_numbers": 30, "min_value": -10_000.0, "max_value": 10_000.0},
    "calendar_arithmetic": {"year": 2055, "offset_upper_bound": 360},
    "simple_equations": {"min_terms": 4, "max_terms": 7, "max_value": 1_000},
    "caesar_cipher": {"min_words": 12, "max_words": 20},
}
"""The settings of the line "harder_numbers", for each family that has one."""

_STATELESS = frozenset(HARDER)  # item i of these depends on seed + i alone, so one dataset makes every item


class GeneratedItem(NamedTuple):
    """Names one item: it can be made again from this."""

    generator: str
    difficulty: str  # "default" | "harder"
    number: int


class Generators:
    """Makes items, remembers them, and judges answers. ``known()`` names all generators."""

    def __init__(self) -> None:
        self._datasets: dict[tuple[str, str], Any] = {}
        self._entries: dict[GeneratedItem, Mapping[str, Any]] = {}
        self._lock = threading.Lock()

    def known(self) -> list[str]:
        with localcontext():
            return sorted(reasoning_gym("factory").DATASETS)

    def entry(self, item: GeneratedItem) -> Mapping[str, Any]:
        """reasoning-gym's own item: "question", "answer", "metadata".

        Raises:
            ValueError: there is no such generator.
        """
        entry = self._entries.get(item)
        if entry is None:
            with localcontext():
                dataset, index = self._dataset(item)
                entry = dataset[index]
            if len(self._entries) >= MAX_REMEMBERED_ITEMS:
                self._entries.clear()
            self._entries[item] = entry
        return entry

    def score(self, answer: str, scenario: Scenario) -> Outcome:
        """The verdict of the item's own verifier; ``success`` from a score of .99.

        Raises:
            Exception: what the verifier raises (prime_factorization does on every answer in words).
        """
        item = item_of(scenario)
        entry = self.entry(item)
        with localcontext():
            dataset, _ = self._dataset(item)
            score = min(max(float(dataset.score_answer(answer, entry)), 0.0), 1.0)
        evidence = {"scorer": f"reasoning_gym/{item.generator}", "answer": answer, "expected": entry["answer"]}
        return Outcome(score, score >= SUCCESS_SCORE, evidence)

    def _dataset(self, item: GeneratedItem) -> tuple[Any, int]:
        if item.generator not in _STATELESS:
            return self._created(item, seed=item.number), 0
        key = (item.generator, item.difficulty)
        with self._lock:
            if key not in self._datasets:
                self._datasets[key] = self._created(item, seed=0)
            return self._datasets[key], item.number

    def _created(self, item: GeneratedItem, *, seed: int) -> Any:
        settings = HARDER[item.generator] if item.difficulty == "harder" else {}
        return reasoning_gym().create_dataset(item.generator, seed=seed, size=1, **settings)


def item_of(scenario: Scenario) -> GeneratedItem:
    """The item a scenario of this environment was made of."""
    expected = scenario.expected
    return GeneratedItem(str(expected["generator"]), str(expected["difficulty"]), int(expected["item"]))
