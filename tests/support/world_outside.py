"""Worlds with one clear condition a lesson: eight families of requests, 16 lessons that help, 24 that do nothing, 8
that harm; each touches one query in eight.

The ``form`` says how queries are worded: "plain" (one form of query), "v" (eight forms, with two or three sentences
that say nothing; one word names the topic in query and lesson), "w" (as "v", but queries name the topic by one of three
other words), "g" (as "v", and lessons act on all queries).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Final, Literal

from tests.support.world import Advice, Effect, Kind
from tests.support.world_second import ACTIONS, OBJECTS
from tests.support.world_topics import Topic
from tests.support.world_varied import Variation, VariedWorld
from tests.support.world_words import spun

Form = Literal["plain", "v", "w", "g"]
EACH: Final[Mapping[Effect, int]] = {"helpful": 2, "useless": 3, "harmful": 1}  # of a family of requests
SIGNS: Final[Mapping[Effect, int]] = {"helpful": 1, "useless": 0, "harmful": -1}
LOGITS: Final = 1.1  # of a lesson, on the queries that it touches
EVERYWHERE: Final = 0.25  # of that, where lessons act on all queries
SUBJECTS: Final = (
    Topic("freight", ("cargo", "haulage", "lorries"), ("freight",)),
    Topic("payroll", ("wages", "salaries", "paychecks"), ("payroll",)),
    Topic("tenancy", ("landlord", "lodgers", "renters"), ("tenancy",)),
    Topic("catering", ("buffet", "banquet", "canteen"), ("catering",)),
    Topic("customs", ("tariffs", "imports", "border"), ("customs",)),
    Topic("pharmacy", ("pills", "prescriptions", "drugstore"), ("pharmacy",)),
    Topic("forestry", ("timber", "logging", "sawmill"), ("forestry",)),
    Topic("insurance", ("premiums", "policyholder", "underwriter"), ("insurance",)),
)
FORMS: Final = (
    "{Good morning.|Hello there.} This concerns <topic>. <task> {Thanks a lot.|Best wishes.}",
    "<task> {It is for|It came up in} <topic>. {No rush.|Whenever it suits you.}",
    "{A colleague sent this.|It was on my desk.} In <topic> we have: <task> {Many thanks.|So long.}",
    "Regarding <topic>: <task> {I was away last week.|The phone never stops.} {Thank you.|Cheers.}",
    "{It rains here.|We moved in May.} {All is well.|The coffee is cold.} Our <topic> people wonder: <task>",
    "Could you help with <topic>? {It is my first time.|The screen went dark.} <task>",
    "{Sorry for the noise.|Just a quick one.} <task> That is all from <topic>. {Take care.|See you.}",
    "{Hi.|Dear all.} {Here is one more.|One last thing.} <task> Yours, <topic>.",
)


class OutsideWorld(VariedWorld):
    """``OutsideWorld(seed, null=...)``, in the form that its subclass names."""

    form: Form = "plain"

    def __init__(self, seed: int, variation: Variation | None = None, *, null: bool = False) -> None:
        drawn = random.Random(f"outside/{seed}")
        own = Variation(
            one_in=1 if self.form == "g" else len(SUBJECTS),
            effect=LOGITS,
            spill=0.0,
            base=drawn.uniform(0.25, 0.45),
            spread=0.6,
            lapse=0.0,
            wording="paraphrased" if self.form == "w" else "named",
            repeating=0.0,
            mislabelled=0.0,
        )
        super().__init__(seed, variation or own, null=null)

    def _topics(self, rng: random.Random) -> tuple[Topic, ...]:
        return tuple(rng.sample(SUBJECTS, len(SUBJECTS)))

    @property
    def forms(self) -> tuple[str, ...]:
        return ("In <topic>: <task>",) if self.form == "plain" else FORMS

    def _advice(self, rng: random.Random) -> Iterable[Advice]:
        """In one wording each; what it is for is written in its name."""
        texts = [f"{spun(action, rng)} {spun(thing, rng)}" for action, thing in product(ACTIONS, OBJECTS)]
        spins = [f"[{text}]" for text in rng.sample(texts, len(texts))]
        for topic in self.topics:
            for role, many in EACH.items():
                for at in range(many):
                    effects = self._on(topic, SIGNS[role], rng)
                    yield self._piece(role, f"{topic.name}-{at}", spins.pop(), effects, rng)

    def _on(self, topic: Topic, sign: int, rng: random.Random) -> dict[str, float]:
        effect = sign * self.variation.effect * rng.uniform(0.7, 1.3)
        touched, share = (self.topics, EVERYWHERE) if self.form == "g" else ((topic,), 1.0)
        return {one.name: share * effect for one in touched if effect}

    def proposed(self, role: Effect, kind: Kind) -> tuple[Advice, ...]:
        return tuple(one for one in self.advice if one.role == role and f"-{kind.name}-" in one.name)

    def situation(self, kind: Kind, rng: random.Random) -> str:
        return f"handling {kind.name} requests"


class OutsideV(OutsideWorld):
    form = "v"


class OutsideW(OutsideWorld):
    form = "w"


class OutsideG(OutsideWorld):
    form = "g"
