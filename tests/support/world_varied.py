"""Worlds that differ by seed in what makes advice hard to learn: how few queries a lesson touches, how much it does,
how noisy success is, whether a query says what a lesson is about, and how much the reflector only repeats.

A query has one topic; a piece of helpful advice helps with one topic only. ``World`` has the rest.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from tests.support.world import (
    LENGTH_COST,
    OFFSETS,
    SITUATIONS,
    SPREAD,
    Advice,
    Asked,
    Effect,
    Kind,
    World,
    cores_of,
    logit,
    pattern_of,
    remember,
    sigmoid,
)
from tests.support.world_topics import TOPICS, Topic
from tests.support.world_words import FAMILIES, IDLE, RISKY, SOUND, Family, spun

# Whether lesson and query name the topic with one word ("named") or with different ones ("paraphrased"), only the
# query names it ("absent"), or only the lesson does ("hidden": the query does not show it).
Wording = Literal["named", "paraphrased", "absent", "hidden"]
ONE_IN: Final = (1, 2, 4, 8, 16)
PER_TOPIC: Final[Mapping[int, tuple[int, int]]] = {1: (4, 6), 2: (3, 4), 4: (2, 3), 8: (2, 2), 16: (1, 2)}
MOST_HELPFUL: Final = 24
FAMILIES_EACH: Final = 4
Drawn = tuple[Family, int, list[str]]  # with the number that its answers depend on, and templates
SYMPTOMS: Final = (
    "I missed something that matters here.",
    "I was not careful enough with the details.",
    "I went about it in the wrong way.",
)


@dataclass(frozen=True)
class Variation:
    """A helpful lesson touches one in ``one_in`` queries and adds about ``effect`` logits to these; from all the others
    together it takes ``spill`` of that away. ``base`` is the success without advice, ``spread`` the standard deviation
    of the queries' difficulty in logits, ``lapse`` the share of right answers that are spoiled with any context.
    ``repeating`` is the share of the reflector's lessons that only repeat, ``mislabelled`` of those that name the wrong
    topic."""

    one_in: int
    effect: float
    spill: float
    base: float
    spread: float
    lapse: float
    wording: Wording
    repeating: float
    mislabelled: float

    @classmethod
    def drawn(cls, seed: int) -> Variation:
        """Twenty seeds in a row have each share with each wording once; the rest is drawn."""
        rng = random.Random(f"variation/{seed}")
        wordings: tuple[Wording, ...] = get_args(Wording)
        return cls(
            one_in=ONE_IN[seed % len(ONE_IN)],
            effect=rng.choice((0.6, 1.0, 1.5)),
            spill=rng.choice((0.0, 0.5)),
            base=rng.uniform(0.15, 0.5),
            spread=rng.choice((0.3, 0.6, 1.0)),
            lapse=rng.choice((0.0, 0.05, 0.1)),
            wording=wordings[seed % len(wordings)],
            repeating=rng.choice((0.0, 0.2, 0.5)),
            mislabelled=rng.choice((0.0, 0.1, 0.2)),
        )


class VariedWorld(World):
    """``VariedWorld(seed)``, or one of a given variation; ``null``: no advice has any effect."""

    families: Sequence[Family] = FAMILIES
    query_form, unnamed_form = "{At|For|From} the <topic>: <task>", "{Today|Next|Please}: <task>"

    def __init__(self, seed: int, variation: Variation | None = None, *, null: bool = False) -> None:
        self.seed, self.is_null = seed, null
        self.variation = Variation.drawn(seed) if variation is None else variation
        rng = random.Random(f"{type(self).__name__}/{seed}")
        self.topics = self._topics(rng)
        drawn = [
            (family, rng.randint(11, 400), rng.sample(family.templates, 3))
            for family in rng.sample(self.families, FAMILIES_EACH)
        ]
        self.kinds = tuple(self._kinds(drawn, rng))
        self.advice = tuple(self._advice(rng))
        self._patterns = [
            [re.compile(self._pattern(form, task, family)) for form in self.forms for task in tasks]
            for family, _, tasks in drawn
        ]
        self._advice_by_sentence: dict[str, frozenset[Advice]] = {}
        self._found: dict[str, tuple[Asked, ...]] = {}
        self._by_word = {word: topic for topic in self.topics for word in self._asked_as(topic)}

    # How it is drawn

    def _topics(self, rng: random.Random) -> tuple[Topic, ...]:
        return tuple(rng.sample(TOPICS, self.variation.one_in))

    def _kinds(self, drawn: Iterable[Drawn], rng: random.Random) -> Iterable[Kind]:
        """One of each family and topic; those of one family have the same rule for the right answer."""
        bases = [logit(min(max(self.variation.base + rng.uniform(-0.1, 0.1), 0.05), 0.6)) for _ in self.topics]
        for family, salt, tasks in drawn:
            for topic, base in zip(self.topics, bases, strict=True):
                words = f"{{{'|'.join(self._asked_as(topic))}}}"
                templates = tuple(
                    form.replace("<topic>", words).replace("<task>", task) for form in self.forms for task in tasks
                )
                yield Kind(topic.name, base, salt, family, templates, ())

    @property
    def forms(self) -> tuple[str, ...]:
        """The forms of its queries."""
        return (self.unnamed_form if self.variation.wording == "hidden" else self.query_form,)

    def _pattern(self, form: str, task: str, family: Family) -> str:
        """Finds such a task with any topic, whose name is the group "topic"."""
        names = "|".join(re.escape(name) for topic in self.topics for name in self._asked_as(topic))
        parts = {"<topic>": f"(?P<topic>{names})", "<task>": pattern_of(task, family.slots)}
        return "".join(parts.get(one) or pattern_of(one, {}) for one in re.split("(<topic>|<task>)", form) if one)

    def _asked_as(self, topic: Topic) -> tuple[str, ...]:
        return topic.asked if self.variation.wording == "paraphrased" else (topic.name,)

    def _advice(self, rng: random.Random) -> Iterable[Advice]:
        """Nothing about a wording says what it does: what sounds right may harm, what sounds careless may help."""
        spins = self._spins(rng)
        low, high = PER_TOPIC[self.variation.one_in]
        touched = [topic for topic in self.topics for _ in range(rng.randint(low, high))][:MOST_HELPFUL]
        for at, topic in enumerate(touched):
            yield self._piece("helpful", at, spins.pop(), self._helping(topic, rng), rng)
        for at in range(rng.randint(5, 8)):
            yield self._piece("harmful", at, spins.pop(), self._harming(rng), rng)
        for at in range(rng.randint(8, 16)):
            yield self._piece("useless", at, spins.pop(), {}, rng)

    def _spins(self, rng: random.Random) -> list[str]:
        known = [*(spin for spin, _ in SOUND), *RISKY, *IDLE]
        return rng.sample(known, len(known))

    def _piece(self, role: Effect, at: int | str, spin: str, logits: Mapping[str, float], rng: random.Random) -> Advice:
        effect: Effect = "useless" if self.is_null else role
        effects = {} if self.is_null else logits
        return Advice(f"{role}-{at}", role, effect, spin, rng.choice(SYMPTOMS), effects, cores_of(spin))

    def _helping(self, topic: Topic, rng: random.Random) -> Mapping[str, float]:
        """Its loss on queries of other topics is ``spill`` of its gain on its own, over all queries."""
        effect, others = self.variation.effect * rng.uniform(0.7, 1.3), len(self.topics) - 1
        lost = {one.name: -self.variation.spill * effect / others for one in self.topics if others}
        return (lost if self.variation.spill else {}) | {topic.name: effect}

    def _harming(self, rng: random.Random) -> Mapping[str, float]:
        share = rng.randint(-(-6 * len(self.topics) // 10), len(self.topics))
        return {one.name: -rng.uniform(0.5, 1.5) for one in rng.sample(self.topics, share)}

    # What is in a text

    def find(self, text: str) -> tuple[Asked, ...]:
        known = self._found.get(text)
        if known is None:
            plain = " ".join(text.split())
            hits = [
                (hit.start(), self._asked(hit, at))
                for at, patterns in enumerate(self._patterns)
                for one in patterns
                for hit in one.finditer(plain)
            ]
            known = tuple(asked for _, asked in sorted(hits, key=lambda hit: hit[0]))
            remember(self._found, text, known)
        return known

    def _asked(self, hit: re.Match[str], family: int) -> Asked:
        slots = hit.groupdict()
        if "topic" in slots:
            at = self.topics.index(self._by_word[slots["topic"]])
        else:
            at = zlib.crc32(f"{self.seed}/topic/{hit[0]}".encode()) % len(self.topics)
        kind = self.kinds[family * len(self.topics) + at]
        return Asked(kind, hit[0], kind.family.solve(slots, kind.salt))

    def situation(self, kind: Kind, rng: random.Random) -> str:
        wording = self.variation.wording
        if wording == "absent":
            return spun(f"{SITUATIONS} {{tasks of this sort|such tasks}}", rng)
        topic = next(one for one in self.topics if one.name == kind.name)
        if rng.random() < self.variation.mislabelled:
            topic = rng.choice(self.topics)
        word = rng.choice(topic.taught) if wording == "paraphrased" else topic.name
        return spun(f"{SITUATIONS} {kind.noun} for the {word}", rng)

    # The truth

    def success_logit(self, kind: Kind, heeded: Iterable[Advice], tokens: float, query: str = "") -> float:
        effects = sum(one.logits.get(kind.name, 0.0) for one in heeded)
        return kind.base + self.offset(query) + effects - LENGTH_COST * tokens / 1000

    def offset(self, query: str) -> float:
        """The query's ease compared with others of its kind, in logits."""
        found = OFFSETS[zlib.crc32(f"{self.seed}/{query}".encode()) % len(OFFSETS)] if query else 0.0
        return found * self.variation.spread / SPREAD

    def chance(self, asked: Asked, heeded: Collection[Advice], tokens: float) -> float:
        return (1 - self.variation.lapse) * sigmoid(self.success_logit(asked.kind, heeded, tokens, asked.query))
