"""Animals into an expression for their legs: the first link of a chain."""

from __future__ import annotations

import re

from experiences.rollouts.tools.base import FunctionTool, ToolError

LEGS = {
    0: "snake, sea slug, jellyfish, flatworm, leech, worm, fish",
    2: "chicken, bird, human, duck, goose, kangaroo",
    4: "dog, cat, cow, horse, lion, elephant, giraffe, tiger, deer, sheep, goat, pig, rabbit, frog, lizard",
    5: "starfish",
    6: "insect, ant, butterfly, beetle, bee, wasp, grasshopper, cricket, cockroach, praying mantis, firefly, fly, moth",
    8: "spider, scorpion, tick, mite",
    10: "crab, lobster, shrimp",
    14: "woodlouse",
}
LEGS_OF = {animal: legs for legs, names in LEGS.items() for animal in names.split(", ")}


def _plurals(animal: str) -> list[str]:
    stem = {"y": animal[:-1] + "ies", "h": animal + "es"}.get(animal[-1], animal)
    return [animal, animal + "s", stem]


_SINGULAR = {form: animal for animal in LEGS_OF for form in _plurals(animal)}
_COUNTED = re.compile(
    r"\b(\d{1,9}) (" + "|".join(sorted(map(re.escape, _SINGULAR), key=len, reverse=True)) + r")\b", re.IGNORECASE
)


def animals(text: str) -> str:
    """ "13 cats, 2 ants" as "13*4 + 2*6", not evaluated."""
    counted = _COUNTED.findall(text)
    if not counted:
        raise ToolError("no counted animals in the text")
    return " + ".join(f"{count}*{LEGS_OF[_SINGULAR[form.lower()]]}" for count, form in counted)


ANIMALS = FunctionTool("animals", "Writes counted animals as an expression for their legs.", animals)
