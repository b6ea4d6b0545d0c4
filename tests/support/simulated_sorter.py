"""The simulated model sorts numbered queries by what they are about, as well as a reader can.

It knows a topic by any of its words. Where a query does not show its topic, it goes by the form of the task. It takes
some queries for another kind, and overlooks some.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.support.simulated_prompt import Schema, texts_of
from tests.support.world import Asked, World
from tests.support.world_varied import VariedWorld

OVERLOOKED: Final = 0.03
_NUMBERED: Final = re.compile(r"^\s*(\d{1,4})[.)]\s+(\S.*)$")


def sorts(schema: Schema) -> tuple[str, str, str] | None:
    """The names of the list of groups, and in each of its label and of its numbers; None where no groups of numbers are
    wanted."""
    definitions = {**schema.get("$defs", {}), **schema.get("definitions", {})}
    for name, one in (schema.get("properties") or {}).items():
        inner: Any = one.get("items") or {}
        inner = definitions.get(str(inner.get("$ref", "")).rpartition("/")[2], inner)
        fields = inner.get("properties") or {}
        texts = [key for key, value in fields.items() if value.get("type") == "string"]
        numbers = [key for key, value in fields.items() if (value.get("items") or {}).get("type") == "integer"]
        if texts and numbers:
            return name, texts[0], numbers[0]
    return None


def sorted_queries(
    world: World, messages: Sequence[Mapping[str, Any]], names: tuple[str, str, str], right: float, rng: random.Random
) -> dict[str, Any]:
    """The queries in the user's part by kind; ``right`` is the share that it sorts as they are."""
    groups: dict[str, list[int]] = defaultdict(list)
    labels = sorted({_shown(world, kind.name, kind.noun) for kind in world.kinds})
    for line in "\n".join(texts_of(messages, "user")).splitlines():
        hit = _NUMBERED.match(line)
        asked = world.find(hit[2]) if hit else ()
        if hit is None or not asked or rng.random() < OVERLOOKED:
            continue
        label = _label(world, asked[0]) if rng.random() < right else rng.choice(labels)
        groups[label].append(int(hit[1]))
    listing, label_name, numbers = names
    return {listing: [{label_name: label, numbers: found} for label, found in groups.items()]}


def _label(world: World, asked: Asked) -> str:
    return _shown(world, asked.kind.name, asked.kind.noun)


def _shown(world: World, topic: str, form: str) -> str:
    hidden = isinstance(world, VariedWorld) and world.variation.wording == "hidden"
    return form if hidden else topic
