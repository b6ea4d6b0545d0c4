"""The embedded environment: tool use on reasoning-gym's items, scored by reasoning-gym's own verifiers.

What is learned here and what is not is in docs/embedded-environment.md.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np

from experiences.rollouts.environments.base import environments
from experiences.rollouts.environments.fault_injection import FaultRates
from experiences.rollouts.environments.generators import HARDER, GeneratedItem, Generators
from experiences.rollouts.environments.paraphrases import N_TRAINED, N_UNSEEN, TEMPLATES, reworded
from experiences.rollouts.environments.tool_episode import ToolEpisode, ToolWorld
from experiences.rollouts.options import Option, help_of, read_options
from experiences.rollouts.tools import toolbox
from experiences.rollouts.types import ActionSpec, Scenario

FAMILIES = tuple(HARDER)
# Each fits some of the families. More tools that fit none make chance successes rarer, and chains harder to find.
TOOLS = (
    "int_calc",
    "dec_calc",
    "gcd",
    "lcm",
    "factor",
    "reduce_fraction",
    "convert_base",
    "numerals",
    "animals",
    "reverse_letters",
    "count_letter",
    "sort_words",
    "sort_numbers",
    "calendar",
    "solve_linear",
    "shift_decoder",
)
SPLITS = ("train", "selection", "held_out")
REGION = 2**29  # item numbers of one split; reasoning-gym makes an item from Random(number)
EXHAUSTED_AFTER = 3_000  # tries in a row without a new text

# Which split a question belongs to is a property of its text: its checksum modulo 10. So no text of one split can
# turn up in another, for any seeds and sizes.
_SHARES: Mapping[str, range] = {"train": range(5), "selection": range(5, 7), "held_out": range(7, 10)}
# The extra lines ask held-out items: unseen wording the very same ones, harder numbers others of their own.
_REGIONS = {"train": 0, "selection": 1, "held_out": 2, "unseen_wording": 2, "harder_numbers": 3}


@dataclass(frozen=True)
class ReasoningGymEnvironment:
    """Items of ``families`` in turn, so that families are balanced; ``wording`` original or mixed with ours.

    ``scenarios(split, n, seed)`` begins with the same scenarios for every n. Splits are disjoint by item number
    and by text, for all seeds.
    """

    world: ToolWorld
    generators: Generators
    families: tuple[str, ...] = FAMILIES
    wording: str = "original"
    difficulty: str = "default"
    name: str = "reasoning_gym"
    _made: dict[tuple[str, int, int], tuple[Scenario, ...]] = field(default_factory=dict, repr=False)

    @property
    def actions(self) -> tuple[ActionSpec, ...]:
        return self.world.actions

    @property
    def lines(self) -> tuple[str, ...]:
        known = {"harder_numbers": HARDER, "unseen_wording": TEMPLATES}
        return tuple(line for line, families in known.items() if set(self.families) & set(families))

    def start(self, scenario: Scenario, rng: np.random.Generator) -> ToolEpisode:
        return self.world.start(scenario, rng)

    def scenarios(self, split: str, n: int, seed: int) -> Sequence[Scenario]:
        """``n`` scenarios of a split ("train", "selection", "held_out") or line, with indices from 0.

        Raises:
            ValueError: the split is unknown, n is below 1, or the families have fewer different questions.
        """
        if split not in (*SPLITS, *self.lines):
            raise ValueError(f"There is no split {split!r}. Known: {', '.join((*SPLITS, *self.lines))}.")
        if n < 1:
            raise ValueError(f"The number of scenarios must be at least 1; got {n}.")
        key = (split, n, seed)
        if key not in self._made:
            if len(self._made) >= 32:
                self._made.clear()
            self._made[key] = tuple(self._balanced(split, n, seed))
        return self._made[key]

    def _balanced(self, split: str, n: int, seed: int) -> Iterator[Scenario]:
        """Families in turn; one that has no further questions leaves its place to the others."""
        seen: set[str] = set()
        sources = {family: self._of_family(family, split, seed, seen) for family in self._families_of(split)}
        made = 0
        while sources:
            for family, source in list(sources.items()):
                scenario = next(source, None)
                if scenario is None:
                    del sources[family]
                    continue
                yield Scenario(made, scenario.query, scenario.expected, scenario.metadata)
                made += 1
                if made == n:
                    return
        raise ValueError(f"These families have only {made} different questions for {split!r}; {n} were asked for.")

    def _families_of(self, split: str) -> tuple[str, ...]:
        limits: Mapping[str, Mapping[str, Any]] = {"harder_numbers": HARDER, "unseen_wording": TEMPLATES}
        return tuple(family for family in self.families if family in limits.get(split, self.families))

    def _of_family(self, family: str, split: str, seed: int, seen: set[str]) -> Iterator[Scenario]:
        share = _SHARES.get(split, _SHARES["held_out"])
        difficulty = "harder" if split == "harder_numbers" else self.difficulty
        start = zlib.crc32(f"{seed}/{family}".encode()) % REGION
        fruitless = 0
        for offset in range(REGION):
            number = _REGIONS[split] * REGION + (start + offset) % REGION
            item = GeneratedItem(family, difficulty if family in HARDER else "default", number)
            entry = self.generators.entry(item)
            fruitless += 1
            if fruitless > EXHAUSTED_AFTER:
                return
            if _answerable(entry) and zlib.crc32(entry["question"].encode()) % 10 in share:
                scenario = self._scenario(item, entry, split)
                if entry["question"] not in seen and scenario.query not in seen:
                    seen.update((entry["question"], scenario.query))
                    fruitless = 0
                    yield scenario

    def _scenario(self, item: GeneratedItem, entry: Mapping[str, Any], split: str) -> Scenario:
        variant = self._variant(item, split)
        question = entry["question"]
        query = question if variant is None else reworded(item.generator, question, entry["metadata"], variant)
        expected = {
            "answer": str(entry["answer"]),
            "generator": item.generator,
            "difficulty": item.difficulty,
            "item": item.number,
        }
        wording = "original" if variant is None else f"variant {variant + 1}"
        return Scenario(0, query, expected, {"family": item.generator, "split": split, "wording": wording})

    def _variant(self, item: GeneratedItem, split: str) -> int | None:
        """The number of the wording that an item gets, None for the original; it depends on the item alone."""
        draw = zlib.crc32(f"wording/{item.generator}/{item.number}".encode())
        if split == "unseen_wording":
            return N_TRAINED + draw % N_UNSEEN
        if self.wording == "original" or item.generator not in TEMPLATES:
            return None
        return draw % (N_TRAINED + 1) - 1 if draw % (N_TRAINED + 1) else None


def _answerable(entry: Mapping[str, Any]) -> bool:
    """base_conversion prints the value 0 as nothing, in the question or in the key: such items have no answer."""
    return bool(entry["answer"]) and entry["metadata"].get("source_repr") != ""


OPTIONS: Final[Mapping[str, Option]] = {
    "families": Option(
        "Generators of reasoning-gym to draw from, in turn; the 16 with fitting tools by default.", FAMILIES
    ),
    "wording": Option(
        "original (default): reasoning-gym's own; mixed: also three of our wordings for each family.",
        choices=("original", "mixed"),
    ),
    "traps": Option(
        "How many tools answer almost any text: three (default), all (five) or none.", choices=("three", "all", "none")
    ),
    "difficulty": Option("default, or harder: larger numbers and longer lists.", choices=("default", "harder")),
    "tools": Option("Names of the tools that the agent gets; by default the 16 of which each fits some family.", TOOLS),
    "timeout_rate": Option("The share of tool calls that time out; 0.04 by default.", 0.04, 0, 0.5),
    "corruption_rate": Option("The share of tool calls that return a corrupted result; 0.06 by default.", 0.06, 0, 0.5),
}


class ReasoningGymFactory:
    title: ClassVar[str] = "Reasoning gym"
    description: ClassVar[str] = "Tool use on reasoning-gym's items, scored by their own verifiers; needs no key."
    options: ClassVar[Mapping[str, Option]] = OPTIONS
    option_help: ClassVar[Mapping[str, str]] = help_of(OPTIONS)

    def __call__(self, options: Mapping[str, Any]) -> ReasoningGymEnvironment:
        chosen = read_options("environment reasoning_gym", options, OPTIONS)
        generators = Generators()
        box = toolbox(tuple(chosen["tools"]), traps=chosen["traps"])
        rates = FaultRates(timeout=chosen["timeout_rate"], corrupted=chosen["corruption_rate"])
        return ReasoningGymEnvironment(
            world=ToolWorld(box, generators.score, rates),
            generators=generators,
            families=_families(chosen["families"], generators),
            wording=chosen["wording"],
            difficulty=chosen["difficulty"],
        )


def _families(chosen: Any, generators: Generators) -> tuple[str, ...]:
    if isinstance(chosen, str) or not isinstance(chosen, Sequence) or not chosen:
        raise ValueError(f"environment reasoning_gym: families must be a list of generators; got {chosen!r}.")
    families = tuple(dict.fromkeys(map(str, chosen)))
    others = [family for family in families if family not in FAMILIES]
    if others:
        known = generators.known()
        unknown = [family for family in others if family not in known]
        if unknown:
            raise ValueError(f"reasoning-gym has no generator {unknown[0]!r}. Known: {', '.join(known)}.")
    return families


environments.register("reasoning_gym")(ReasoningGymFactory())
