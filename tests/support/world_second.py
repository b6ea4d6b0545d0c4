"""A world that is built differently: advice acts in another way, tasks, answers and advice are other ones.

Each applicable piece of advice is noticed with a probability that falls with the length of the whole context. A query
is solved if enough of them are noticed (one, of a third of the queries two); what harms and is noticed spoils it. So
effects neither add up in logits nor does a long list come free.
"""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Collection, Sequence
from itertools import product
from typing import Final

from tests.support.world import Advice, Asked, Kind, sigmoid
from tests.support.world_varied import VariedWorld
from tests.support.world_words import Family

HALF_NOTICED: Final = 1_200  # tokens of a prompt of which every second piece of advice is noticed
DEMANDING: Final = 3  # one query in so many needs two pieces of advice

ACTIONS: Final = (
    "[verify|confirm] {again |}the",
    "[transcribe|copy] {first of all |}the",
    "[truncate|shorten] {a little |}the",
    "[enumerate|number] {one by one |}the",
    "[translate|paraphrase] {loosely |}the",
    "[postpone|defer] {for now |}the",
    "[highlight|underline] {clearly |}the",
    "[average|balance] {roughly |}the",
)
OBJECTS: Final = (
    "[due date|deadline]",
    "[account holder|customer record]",
    "[shipping clause|delivery terms]",
    "[currency|exchange rate]",
    "[footnote|annotation]",
    "[discount tier|price bracket]",
    "[reference line|subject line]",
    "[warranty|guarantee] {text|part}",
    "[attachment|enclosure]",
    "[priority flag|urgency mark]",
)

TASKS: Final[tuple[Family, ...]] = (
    Family(
        "routing",
        "{ticket|case} routing",
        {"ticket": "1000-9999", "level": "2-9", "tint": "TINT"},
        (
            "ticket <ticket>, level <level>, <tint> queue -> {which|what} team?",
            "{route|assign} case <ticket> (<tint>, level <level>)",
            "team for <tint> ticket <ticket> at level <level>",
        ),
        lambda of, salt: ("north", "south", "east", "west")[(int(of["ticket"]) + salt) % 4] + f"-{of['tint'][:2]}",
    ),
    Family(
        "recipe",
        "{batch|mixture} scaling",
        {"grams": "100-900", "portions": "3-60", "ware": "WARE"},
        (
            "scale {mix|batch} of <grams> g to <portions> <ware>",
            "<portions> <ware> need how much, at <grams> g each?",
            "total mass: <ware> x <portions>, unit mass <grams> g",
        ),
        lambda of, salt: f"{int(of['grams']) * int(of['portions']) + salt} g",
    ),
    Family(
        "seal",
        "{seal|stamp} checks",
        {"name": "NAME", "number": "100-9999"},
        (
            "seal word of <name>, register <number>?",
            "register <number> / {holder|bearer} <name>: give the seal word",
            "<name> (entry <number>) asks for {the|a} seal word",
        ),
        lambda of, salt: f"{of['name'][::-1].lower()}{(int(of['number']) * 3 + salt) % 53}",
    ),
    Family(
        "detour",
        "{detour|route} notes",
        {"from": "CITY", "to": "CITY", "road": "2-400"},
        (
            "road <road> closed, <from> to <to>: {signpost|detour} code?",
            "<from> - <to> without road <road>: which {code|signpost}?",
            "code of the detour around <road> between <from> and <to>",
        ),
        lambda of, salt: f"{of['to'][0]}{of['from'][0]}{(int(of['road']) * 11 + salt) % 787}",
    ),
)


class SecondWorld(VariedWorld):
    """``VariedWorld`` with the rules of this module. The topic is behind the task."""

    families: Sequence[Family] = TASKS
    query_form, unnamed_form = "<task> (desk: <topic>)", "<task> (desk: {any|open})"

    def _spins(self, rng: random.Random) -> list[str]:
        spins = [f"{action} {thing}" for action, thing in product(ACTIONS, OBJECTS)]
        return rng.sample(spins, len(spins))

    def chance(self, asked: Asked, heeded: Collection[Advice], tokens: float) -> float:
        noticed = 1 / (1 + tokens / HALF_NOTICED)
        effects = [one.logits.get(asked.kind.name, 0.0) for one in heeded]
        helping = [noticed * -math.expm1(-one) for one in effects if one > 0]
        spoiled = math.prod(1 + noticed * math.expm1(one) for one in effects if one < 0)
        alone = sigmoid(asked.kind.base + self.offset(asked.query))
        solved = alone + (1 - alone) * at_least(self._needed(asked.kind, asked.query), helping)
        return (1 - self.variation.lapse) * solved * spoiled

    def _needed(self, kind: Kind, query: str) -> int:
        demanding = zlib.crc32(f"{self.seed}/needs/{query}".encode()) % DEMANDING == 0
        return 2 if demanding and len(self.needed(kind)) > 1 else 1


def at_least(needed: int, chances: Sequence[float]) -> float:
    """The probability that at least so many (1 or 2) of independent events happen."""
    none = math.prod(1 - one for one in chances)
    if needed == 1:
        return 1 - none
    only_one = sum(one * none / (1 - one) for one in chances)
    return 1 - none - only_one
