"""A world in which advice is worth something: kinds of tasks, advice that helps, harms or does nothing, the truth.

Everything is drawn from a seed. A task succeeds with probability sigmoid(base of its kind + difficulty of the query
+ effects of the advice that is heeded - the length of the context): a plain logit model, so that a test can say what
any set of lessons is really worth. Nothing in here knows what learns in this world, or how.
"""

from __future__ import annotations

import math
import random
import re
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist, fmean
from typing import Any, Final, Literal, Self

from tests.support.world_words import CHOICE, FAMILIES, IDLE, LISTS, RISKY, SOUND, Family, spun

Effect = Literal["helpful", "useless", "harmful"]

LENGTH_COST: Final = 0.1  # logits per 1,000 tokens of context
SPREAD: Final = 0.5  # standard deviation of the queries' difficulty, in logits
OFFSETS: Final = tuple(SPREAD * NormalDist().inv_cdf((i + 0.5) / 9) for i in range(9))
SITUATIONS: Final = "{working on|handling|dealing with|you are given|asked about}"
MAX_REMEMBERED: Final = 50_000
_SENTENCE = re.compile(r"\n|[.!?;]+(?=\s|$|[\"'*])|\\n")
_SPLIT = re.compile(r"(\{[^{}]*\}|<\w+>)")


def sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


def logit(p: float) -> float:
    return math.log(p / (1 - p))


@dataclass(frozen=True)
class Advice:
    """A piece of advice. ``effect`` is the truth about it, ``logits`` by kind; ``role`` is what the world was drawn
    with (in a null world it differs from the effect). ``spin`` gives its wordings, ``symptom`` what goes wrong for
    those who lack it, ``topic`` is a word that hints at it and does not say it."""

    name: str
    role: Effect
    effect: Effect
    spin: str = field(repr=False)
    symptom: str = field(repr=False)
    logits: Mapping[str, float] = field(repr=False, compare=False)
    cores: tuple[re.Pattern[str], ...] = field(repr=False, compare=False)

    @property
    def topic(self) -> str:
        return re.findall(r"\[([^|\]]*)", self.spin)[0]

    def said_in(self, sentence: str) -> bool:
        return all(core.search(sentence) for core in self.cores)


@dataclass(frozen=True)
class Kind:
    """A kind of task as this world has it."""

    name: str
    base: float  # logit
    salt: int
    family: Family = field(repr=False)
    templates: tuple[str, ...] = field(repr=False)
    patterns: tuple[re.Pattern[str], ...] = field(repr=False, compare=False)

    @property
    def noun(self) -> str:
        return self.family.noun


@dataclass(frozen=True)
class Asked:
    """A query that was found in a text."""

    kind: Kind
    query: str
    answer: str | int

    def wrong(self, rng: random.Random) -> str:
        """A plausible answer that is not the right one: all of it the same but for one character or two."""
        right = str(self.answer)
        while True:
            at = rng.choice([i for i, sign in enumerate(right) if sign.isalnum()])
            pool = "0123456789" if right[at].isdigit() else "abcdefghijklmnopqrstuvwxyz"
            found = right[:at] + rng.choice(pool) + right[at + 1 :]
            found = found.upper() if right.isupper() else found
            same = int(found) == self.answer if isinstance(self.answer, int) else found.casefold() == right.casefold()
            if not same:
                return str(int(found)) if isinstance(self.answer, int) else found


class World:
    """``World(seed)``; ``World.null(seed)`` is one in which no advice has any effect."""

    def __init__(self, seed: int, *, null: bool = False) -> None:
        self.seed, self.is_null = seed, null
        rng = random.Random(f"world/{seed}")
        self.kinds = tuple(_kind(family, rng, null) for family in rng.sample(FAMILIES, rng.randint(5, 8)))
        self.advice = tuple(_advice(rng, [kind.name for kind in self.kinds], null))
        self._advice_by_sentence: dict[str, frozenset[Advice]] = {}
        self._found: dict[str, tuple[Asked, ...]] = {}

    @classmethod
    def null(cls, seed: int) -> Self:
        return cls(seed, null=True)

    @property
    def helpful(self) -> tuple[Advice, ...]:
        return self._with("helpful")

    @property
    def useless(self) -> tuple[Advice, ...]:
        return self._with("useless")

    @property
    def harmful(self) -> tuple[Advice, ...]:
        return self._with("harmful")

    def _with(self, effect: Effect) -> tuple[Advice, ...]:
        return tuple(one for one in self.advice if one.effect == effect)

    # Tasks

    def rows(self, n: int, seed: int) -> list[dict[str, Any]]:
        """``n`` rows with different queries for a dataset, of all kinds in equal parts, shuffled."""
        rng, rows = random.Random(f"rows/{self.seed}/{seed}"), dict[str, dict[str, Any]]()
        while len(rows) < n:
            task = self.task(self.kinds[len(rows) % len(self.kinds)], rng)
            rows.setdefault(task.query, {"query": task.query, "expected_outcome": {"answer": task.answer}})
        shuffled = list(rows.values())
        rng.shuffle(shuffled)
        return shuffled

    def task(self, kind: Kind, rng: random.Random) -> Asked:
        slots = {name: _slot(spec, rng) for name, spec in kind.family.slots.items()}
        query = re.sub(r"<(\w+)>", lambda found: slots[found[1]], spun(rng.choice(kind.templates), rng))
        return Asked(kind, query, kind.family.solve(slots, kind.salt))

    def find(self, text: str) -> tuple[Asked, ...]:
        """All queries of this world in a text, in their order."""
        known = self._found.get(text)
        if known is None:
            plain = " ".join(text.split())
            hits = [
                (hit.start(), Asked(kind, hit[0], kind.family.solve(hit.groupdict(), kind.salt)))
                for kind in self.kinds
                for pattern in kind.patterns
                for hit in pattern.finditer(plain)
            ]
            known = tuple(asked for _, asked in sorted(hits, key=lambda hit: hit[0]))
            remember(self._found, text, known)
        return known

    # Advice

    def advice_in(self, text: str) -> frozenset[Advice]:
        """All advice in a text, in any wording; each sentence is read by itself."""
        return frozenset(advice for sentence in _SENTENCE.split(text) for advice in self._advice_in_sentence(sentence))

    def advice_of(self, text: str) -> Advice | None:
        """The advice that a lesson gives: None if there is none in it, one of them if there are several."""
        return min(self.advice_in(text), key=lambda one: one.name, default=None)

    def _advice_in_sentence(self, sentence: str) -> frozenset[Advice]:
        known = self._advice_by_sentence.get(sentence)
        if known is None:
            lower = " ".join(sentence.lower().split())
            known = frozenset(one for one in self.advice if one.said_in(lower)) if " " in lower else frozenset()
            remember(self._advice_by_sentence, sentence, known)
        return known

    def paraphrase(self, advice: Advice, rng: random.Random) -> str:
        """The advice as an imperative, in one of its wordings, without a full stop."""
        return spun(advice.spin, rng)

    def lesson(self, advice: Advice, kind: Kind, rng: random.Random) -> str:
        """The advice as a conditional lesson: "When <situation>, <imperative>."."""
        return f"When {self.situation(kind, rng)}, {self.paraphrase(advice, rng)}."

    def situation(self, kind: Kind, rng: random.Random) -> str:
        """The condition in the words of a lesson that was learned from tasks of this kind."""
        return spun(f"{SITUATIONS} {kind.noun}", rng)

    def needed(self, kind: Kind) -> tuple[Advice, ...]:
        """The advice that helps with a kind of task."""
        return tuple(one for one in self.advice if one.logits.get(kind.name, 0) > 0)

    def proposed(self, role: Effect, kind: Kind) -> tuple[Advice, ...]:
        """The advice of a role that a reflector may think of at a task of this kind."""
        of_role = tuple(one for one in self.advice if one.role == role)
        return tuple(one for one in of_role if one in self.needed(kind)) or of_role if role == "helpful" else of_role

    # The truth

    def success_logit(self, kind: Kind, heeded: Iterable[Advice], tokens: float, query: str = "") -> float:
        """``tokens``: the length of the context. Without a query: that of one of middling difficulty."""
        effects = sum(one.logits.get(kind.name, 0.0) for one in heeded)
        offset = OFFSETS[zlib.crc32(f"{self.seed}/{query}".encode()) % len(OFFSETS)] if query else 0.0
        return kind.base + offset + effects - LENGTH_COST * tokens / 1000

    def chance(self, asked: Asked, heeded: Collection[Advice], tokens: float) -> float:
        """The probability that a query is answered rightly by a model that heeds this advice; ``tokens`` as above."""
        return sigmoid(self.success_logit(asked.kind, heeded, tokens, asked.query))

    def success_rate(self, texts: Sequence[str] = (), kinds: Collection[Kind] = ()) -> float:
        """The expected share of successes over all kinds (or those given) for a context of these texts."""
        heeded = frozenset(advice for text in texts for advice in self.advice_in(text))
        length = tokens_in("\n".join(texts))
        return fmean(
            sigmoid(self.success_logit(kind, heeded, length) + offset)
            for kind in kinds or self.kinds
            for offset in OFFSETS
        )


def tokens_in(text: str) -> float:
    return len(text) / 4


def remember(cache: dict[str, Any], key: str, value: object) -> None:
    if len(cache) >= MAX_REMEMBERED:
        cache.clear()
    cache[key] = value


def _slot(spec: str, rng: random.Random) -> str:
    if spec in LISTS:
        return rng.choice(LISTS[spec])
    low, _, high = spec.partition("-")
    return str(rng.randint(int(low), int(high)))


def _kind(family: Family, rng: random.Random, null: bool) -> Kind:
    base = logit(rng.uniform(0.2, 0.6) if null else rng.uniform(0.1, 0.35))
    templates = tuple(rng.sample(family.templates, 3))
    patterns = tuple(re.compile(pattern_of(template, family.slots)) for template in templates)
    return Kind(family.name, base, rng.randint(11, 400), family, templates, patterns)


def pattern_of(template: str, slots: Mapping[str, str]) -> str:
    """The regular expression that finds what a template makes."""
    parts = []
    for part in _SPLIT.split(template):
        if part.startswith("{"):
            parts.append(f"(?:{'|'.join(map(re.escape, part[1:-1].split('|')))})")
        elif part.startswith("<"):
            spec = slots[part[1:-1]]
            parts.append(f"(?P<{part[1:-1]}>{'|'.join(LISTS[spec]) if spec in LISTS else '[0-9]+'})")
        else:
            parts.append(re.escape(part))
    return "".join(parts)


def _advice(rng: random.Random, kinds: Sequence[str], null: bool) -> list[Advice]:
    """Helpful advice sounds right, but not all that sounds right helps: some of it harms or does nothing."""
    sound = rng.sample(SOUND, len(SOUND))
    helpful = [sound.pop() for _ in range(rng.randint(5, 8))]
    n_harmful = rng.randint(5, 8)
    traps = [sound.pop() for _ in range(rng.randint(1, 3))]
    harmful = [*traps, *((spin, "") for spin in rng.sample(RISKY, n_harmful - len(traps)))]
    useless = [*sound[:3], *((spin, "") for spin in rng.sample(IDLE, rng.randint(8, 17)))]
    pools: list[tuple[Effect, list[tuple[str, str]], list[dict[str, float]]]] = [
        ("helpful", helpful, _dealt(rng, kinds, len(helpful))),
        ("harmful", harmful, _spread(rng, kinds, n_harmful)),
        ("useless", useless, [{} for _ in useless]),
    ]
    made = [
        Advice(f"{role}-{i}", role, role, spin, symptom, logits, cores_of(spin))
        for role, pool, effects in pools
        for i, ((spin, symptom), logits) in enumerate(zip(pool, effects, strict=True))
    ]
    return [replace(one, effect="useless", logits={}) for one in made] if null else made


def _dealt(rng: random.Random, kinds: Sequence[str], n: int) -> list[dict[str, float]]:
    """Effects of ``n`` helpful pieces: each is of use in 40-80 % of the kinds, each kind has a use for 2-4 of them."""
    low, high = math.ceil(0.4 * len(kinds)), math.floor(0.8 * len(kinds))
    target = rng.randint(max(2 * len(kinds), n * low), min(4 * len(kinds), n * high))
    shares = [low] * n
    while sum(shares) < target:
        shares[rng.choice([i for i in range(n) if shares[i] < high])] += 1
    load, dealt = dict.fromkeys(kinds, 0), list[dict[str, float]]()
    for share in shares:
        chosen = sorted(rng.sample(kinds, len(kinds)), key=load.__getitem__)[:share]  # the least served ones first
        dealt.append({kind: rng.uniform(0.7, 1.6) for kind in chosen})
        for kind in chosen:
            load[kind] += 1
    return dealt


def _spread(rng: random.Random, kinds: Sequence[str], n: int) -> list[dict[str, float]]:
    """Effects of ``n`` harmful pieces, each in most of the kinds."""
    shares = [rng.randint(math.ceil(0.6 * len(kinds)), len(kinds)) for _ in range(n)]
    return [{kind: -rng.uniform(0.7, 1.6) for kind in rng.sample(kinds, share)} for share in shares]


def cores_of(spin: str) -> tuple[re.Pattern[str], ...]:
    groups = [found[1].split("|") for found in CHOICE.finditer(spin) if found[0].startswith("[")]
    return tuple(re.compile(rf"\b(?:{'|'.join(re.escape(_stem(word)) for word in group)})") for group in groups)


def _stem(words: str) -> str:
    """Words without what changes at their end: "leading zeros" is found in "leading zeroes" and "leading zero"."""
    last = words.rpartition(" ")[2]
    return words[: len(words) - len(last)] + last[: max(4, len(last) - 2)]
