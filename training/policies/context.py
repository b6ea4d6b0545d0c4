"""The policy of a frozen language model's context. Each lesson has a logit; a rollout draws the lessons it sees.

The model's weights can't be changed, but its lessons are drawn here with an exact log-probability. So GRPO applies as
to any policy (docs/algorithms.md#lessons-in-the-context-of-a-rollout). The *shipped* set is fixed: it changes only when
queries that were kept out of training support it.

The module is one class: drawing, learning, choosing and storing work on the same arrays of one library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from agentcore_site.lib.word_erasure import ERASED
from experiences.learning.lessons.library import Lesson, Library, Status
from experiences.rollouts.runtimes.base import PromptContext
from experiences.rollouts.types import RolloutKey, TrajectoryGroup
from training.algorithm.arrays import BoolArray, FloatArray, IntArray
from training.algorithm.optimizers import Arrays
from training.algorithm.relevance import QueryEffects, QuerySums, prior_of, query_effects
from training.policies.archive import nested, under
from training.policies.effects import Effects, Estimate
from training.policies.evidence import RolloutEvidence
from training.policies.inclusion import balanced, bits, logit_of, probabilities
from training.policies.query_rule import Choice, QueryRule, same_for_all
from training.policies.query_words import QueryWords, hash_of
from training.policies.served_context import ServedContext, prompt_context

INCLUSION_STREAM = 7  # of random numbers: rollouts draw from streams 0 to 2
FLOOR = 0.05
LEAST_LOCAL = 0.1  # evidence for effects that differ between queries, from which on queries get different lessons
RULES = ("shipped_rule", "start_rule", "kept_rule")
# A new lesson's probability. Lessons that say one thing in different words hide each other's effect: at .3 a rollout
# with one of three such lessons lacks the other two twice as often as at .5, and prompts are shorter.
PRIOR = 0.3
EVEN_ODDS = 0.5


@dataclass
class ContextPolicy:
    """``parameters["theta"]`` (K,) are the logits, in the library's order; those of lessons that are out don't count.

    ``shipped`` are the handles of the context outside of training, with the texts of ``supported``: the library as it
    was when that was decided. ``library`` is the run's draft: its texts and statuses hold inside of the run only, until
    a gate ships them. ``start`` is what was shipped when the run began.
    ``kept`` are the handles of the best context that the search has found so far, with the texts of ``kept_library``,
    to which a library that is worse goes back.
    ``selects`` False gives rollouts all live lessons: nothing is drawn, and nothing can be learned about single ones.
    ``answers`` are those that a search by another optimiser was given so far: scores of its queries (a list), or the
    text that it asked for, with its origin (a mapping).
    ``compared`` and ``mixed`` count groups, and those with spread; ``equal`` those in a row without, to the last one.

    ``words`` are what distinguishes the training queries: a lesson's effect may hold only where one of them occurs. It
    is estimated from the ``evidence``. Where the policy ``distinguishes`` queries, each gets the lessons that help with
    it: ``shipped_rule``, ``start_rule`` and ``kept_rule`` choose from the lessons of the same name (None: every query
    gets all of them).
    """

    library: Library = field(default_factory=Library)
    shipped: tuple[str, ...] = ()
    start: tuple[str, ...] = ()
    supported: Library = field(default_factory=Library)
    kept: tuple[str, ...] = ()
    kept_library: Library = field(default_factory=Library)
    effects: Effects = field(default_factory=Effects)
    words: QueryWords = field(default_factory=QueryWords)
    distinguishes: bool = False
    evidence: RolloutEvidence = field(default_factory=RolloutEvidence)
    shipped_rule: QueryRule | None = None
    start_rule: QueryRule | None = None
    kept_rule: QueryRule | None = None
    selects: bool = True
    floor: float = FLOOR
    version: str = ""
    answers: list[Any] = field(default_factory=list)
    compared: int = 0
    mixed: int = 0
    equal: int = 0
    kind: str = "context"
    parameters: Arrays = field(default_factory=lambda: {"theta": np.zeros(0)})
    replayed: tuple[str, Any] | None = field(default=None, init=False, repr=False, compare=False)  # of the answers
    _known: QueryEffects | None = field(default=None, init=False, repr=False, compare=False)  # of the evidence as it is

    @classmethod
    def fresh(
        cls,
        library: Library,
        weights: Mapping[str, float],
        *,  # the fields of the policy
        selects: bool = True,
        floor: float = FLOOR,
        words: QueryWords | None = None,
        distinguishes: bool = False,
        rule: QueryRule | None = None,
        effects: Effects | None = None,
        evidence: RolloutEvidence | None = None,
    ) -> ContextPolicy:
        """The policy before training in this run: it ships the library's active lessons, to every query or by the
        ``rule`` that an earlier run shipped. ``weights`` are probabilities from earlier runs, moved half-way back to
        the uninformed prior. ``effects`` are the sums of those runs and ``evidence`` their rollouts, both in the
        library's order. Without ``words`` all queries are alike."""
        p = np.array([weights.get(lesson.handle, PRIOR) for lesson in library])
        active = tuple(lesson.handle for lesson in library if lesson.status == "active")
        policy = cls(library, active, active, library, active, library, selects=selects, floor=floor)
        policy.words, policy.distinguishes = words or QueryWords(), distinguishes
        policy.shipped_rule = policy.start_rule = policy.kept_rule = rule
        policy.parameters["theta"] = policy._half_way_back(logit_of(p, floor)) if len(p) else np.zeros(0)
        policy.effects, policy.evidence = effects or policy.effects, evidence or policy.evidence
        policy.effects.grow(len(library))
        policy.evidence.grow(len(library))
        return policy

    # -- contexts of rollouts --------------------------------------------------------------------------------------

    def context_for(self, key: RolloutKey, query: str) -> PromptContext:
        """The context of this query outside of training."""
        return self.serves.context_for(key, query)

    @property
    def serves(self) -> ServedContext:
        """The context outside of training."""
        return ServedContext.of(self.supported, self.ships, self.version)

    def as_candidate(self, choice: Choice) -> ServedContext:
        """The context that this choice would ship, to be measured first."""
        return ServedContext.of(self.library, choice, self.version)

    @property
    def ships(self) -> Choice:
        """The shipped choice."""
        return Choice(self.shipped, self.shipped_rule)

    @property
    def keeps(self) -> Choice:
        """The best that the search has found so far."""
        return Choice(self.kept, self.kept_rule)

    @property
    def shipped_lessons(self) -> list[Lesson]:
        """All shipped lessons, of any query, with the texts that were shipped."""
        return list(self.serves.lessons)

    def serves_alike(self, choice: Choice, other: ContextPolicy, queries: Iterable[str]) -> bool:
        """Whether this policy with ``choice`` would give each of these queries the same text as ``other`` ships."""
        mine, theirs = self.as_candidate(choice), other.serves
        return all(mine.text_for(query) == theirs.text_for(query) for query in queries)

    def outside(self, lesson: Lesson) -> Lesson:
        """A lesson of the library as it is outside of the run: where it is shipped, with the text and the status
        that it was shipped with, also while the run tries others."""
        shipped = self.supported.get(lesson.handle) if lesson.handle in self.shipped else None
        if shipped is None:
            return lesson
        return replace(lesson, status=shipped.status) if lesson.text == shipped.text else shipped

    def exploring(self, seed: int, group: int) -> Exploring:
        """The source of training contexts: balanced draws within each group of siblings."""
        return Exploring(self, seed, group)

    def drawn(self, seed: int, group: int, key: RolloutKey) -> BoolArray:
        """The lessons (K,) in the context of this rollout."""
        if not self.selects:
            return self.live.copy()
        block, index = divmod(key.rollout, group)
        rng = np.random.default_rng((INCLUSION_STREAM, seed, key.iteration, key.scenario, block))
        return balanced(rng, np.where(self.live, self.probabilities, 0.0), group)[index]

    # -- what is known of the lessons ------------------------------------------------------------------------------

    @property
    def theta(self) -> FloatArray:
        return self.parameters["theta"]

    @property
    def probabilities(self) -> FloatArray:
        return probabilities(self.theta, self.floor)

    @property
    def live(self) -> BoolArray:
        return np.array([lesson.live for lesson in self.library], dtype=np.bool_)

    def estimate(self) -> Estimate:
        """Mean effects over the training queries, all K."""
        if not self.words.size:
            return self.effects.estimate()
        mean, sd = self.by_query().at(self.words.share[None, :])
        return Estimate(mean[0], sd[0], np.diag(self.effects.gram).copy())

    def by_query(self) -> QueryEffects:
        """Effects by the words of a query, of all K lessons. Rollouts of which only the sums are left, such as those of
        earlier runs, count as queries with the mean share of each word."""
        if self._known is None:
            sums = self.evidence.sums()
            rest = QuerySums(
                np.concatenate([sums.gram, (self.effects.gram - sums.gram.sum(axis=0))[None]]),
                np.concatenate([sums.moment, (self.effects.moment - sums.moment.sum(axis=0))[None]]),
                np.vstack([sums.features.reshape(-1, self.words.size), self.words.share]),
            )
            tasks = [lesson.task for lesson in self.library]
            prior = prior_of(
                self.words.named([lesson.text for lesson in self.library]),
                self.words.words_in(tasks),
                self.words.alike(tasks),
            )
            self._known = query_effects(rest, self.effects.variance, prior)
        new = len(self.library) - len(self._known.mean)  # lessons since then
        mean, spread = (np.pad(values, ((0, new), (0, 0))) for values in (self._known.mean, self._known.spread))
        return QueryEffects(mean, spread, self._known.local)

    def candidate(
        self,
        confidence: float,
        slots: int | None = None,
        *,
        queries: Sequence[str] = (),
        most_tokens: int = 100_000,
    ) -> Choice:
        """The choice that this policy would ship. Where effects differ between the training ``queries``, each query
        gets the lessons that help it; else all get the same (``everywhere``)."""
        plain = Choice(self.everywhere(confidence, slots))
        if not (self.selects and self.distinguishes and self.words.size and queries and self.live.any()):
            return plain
        rule = self.rule(confidence, slots, most_tokens)
        if rule.effects.local < LEAST_LOCAL or same_for_all(rule, queries):
            return plain
        named = set(rule.lessons_of(queries))
        return Choice(tuple(lesson.handle for lesson in self.library if lesson.handle in named), rule)

    def rule(self, confidence: float = 0.5, slots: int | None = None, most_tokens: int = 100_000) -> QueryRule:
        """The rule that gives each query what helps there, of all live lessons."""
        live = np.flatnonzero(self.live)
        lessons, known = [self.library.lessons[at] for at in live], self.by_query()
        return QueryRule(
            self.words,
            tuple(lesson.handle for lesson in lessons),
            tuple(lesson.tokens for lesson in lessons),
            QueryEffects(known.mean[live], known.spread[live], known.local),
            confidence,
            slots,
            most_tokens,
            frozenset(lesson.handle for lesson in lessons if lesson.kind == "section"),
        ).as_stored()

    def everywhere(self, confidence: float, slots: int | None = None) -> tuple[str, ...]:
        """Lessons for every query: live lessons that add to the reward with more than this probability, or all live
        ones where nothing is selected. If there is only room for ``slots`` experiences, those with the largest effect
        (or the first) are taken; sections of the playbook have their own room."""
        known = self.estimate()
        sure = known.above() > confidence if self.selects else self.live
        places = [at for at, one in enumerate(self.library) if sure[at] and one.live]
        experiences = [at for at in places if self.library.lessons[at].kind != "section"]
        if slots is not None and len(experiences) > slots:
            gone = sorted(experiences, key=lambda at: -float(known.beta[at]) if self.selects else at)[slots:]
            places = [at for at in places if at not in set(gone)]
        return tuple(self.library.lessons[at].handle for at in places)

    def measured(self, information: float) -> set[str]:
        """Lessons of which enough is known that opinions about them don't count any more."""
        enough = self.estimate().information >= information
        return {one.handle for one, known in zip(self.library, enough, strict=True) if known}

    def weakest_first(self) -> list[str]:
        """Live lessons by how little speaks for them: what makes room first."""
        if not self.selects:
            return []
        sure = self.estimate().above()
        ranked = sorted(zip(sure, self.library, strict=True), key=lambda pair: float(pair[0]))
        return [lesson.handle for good, lesson in ranked if lesson.live and good < EVEN_ODDS]

    # -- changes ---------------------------------------------------------------------------------------------------

    def take(self, library: Library) -> None:
        """Takes over a library that came of this one: new lessons start at the prior, new texts half-way back to it."""
        before = self.library
        theta = np.concatenate([self.theta, np.full(len(library) - len(before), self._unknown)])
        self.effects.grow(len(library))
        self.evidence.grow(len(library))
        for at, (old, new) in enumerate(zip(before, library, strict=False)):
            if old.version != new.version:
                self._forget(at)
                theta[at] = self._half_way_back(theta[at])
        self.library = library
        self.parameters["theta"] = theta

    @property
    def _unknown(self) -> float:
        """The logit of a lesson of which nothing is known."""
        return float(logit_of(np.array(PRIOR), self.floor))

    def _half_way_back(self, theta: FloatArray) -> FloatArray:
        return 0.5 * (theta + self._unknown)

    def _forget(self, at: int) -> None:
        self._known = None
        self.effects.forget(at)
        self.evidence.forget(at)

    def learn(
        self, included: BoolArray, reward: FloatArray, group: IntArray, groups: Sequence[TrajectoryGroup]
    ) -> None:
        """Adds rollouts: lessons included (N, K), reward (N,) and the index of each one's group in ``groups`` (N,)."""
        self.effects.learn(included, reward, group, self.live)
        if self.words.size:
            self._known, queries = None, [one.scenario.query for one in groups]
            names = [hash_of(query) for query in queries]
            self.evidence.learn(included, reward, group, self.words.all(queries), names)

    def sort(self, words: QueryWords) -> None:
        """Effects are estimated by these ``words`` from now on, such as those that know kinds of queries."""
        self.evidence, self.words, self._known = self.evidence.translated(self.words, words), words, None

    def prune(self, z: float, information: float) -> list[str]:
        """Takes out what evidence speaks against: beta + z * error < 0 with enough information, and on no query that
        was played any better. It can come back."""
        known = self.estimate()
        bad = (known.beta + z * known.error < 0) & (known.information >= information) & self.live
        if bad.any() and self.distinguishes and self.words.size:
            bad &= self._bad_everywhere(z)
        handles = [lesson.handle for lesson, out in zip(self.library, bad, strict=True) if out]
        self.library = self.library.moved(handles, "pruned")
        return handles

    def _bad_everywhere(self, z: float) -> BoolArray:
        """(K,): whether the effect + z * its deviation lies below 0 on every query that was played."""
        features = self.evidence.features.reshape(-1, self.words.size)
        mean, sd = self.by_query().at(features)
        return np.asarray((mean + z * sd < 0).all(axis=0), dtype=np.bool_)

    def ship(self, choice: Choice) -> None:
        """Ships a choice that queries outside of training support. Removed lessons were not measured and stay
        removed."""
        chosen = tuple(lesson.handle for lesson in self.library.chosen(choice.handles))
        self.library = self.library.moved(chosen, "active")
        left_out = [
            lesson.handle for lesson in self.library if lesson.status == "active" and lesson.handle not in chosen
        ]
        self.library = self.library.moved(left_out, "proposed")
        self.shipped, self.shipped_rule, self.supported = chosen, choice.rule, self.library
        self.keep(self.ships)

    def keep(self, choice: Choice) -> None:
        """The search goes on from this context. Outside of the run nothing changes."""
        self.kept, self.kept_rule, self.kept_library = choice.handles, choice.rule, self.library

    def unship(self, library: Library) -> None:
        """Goes back to what the run began with, outside of training; ``library`` has its texts. What was shipped since
        then stays in the search."""
        self.shipped, self.shipped_rule, self.supported = self.start, self.start_rule, library
        tried = [
            lesson.handle for lesson in self.library if lesson.status == "active" and lesson.handle not in self.start
        ]
        self.library = self.library.moved(tried, "proposed")
        self.kept_library = self.kept_library.moved(tried, "proposed")

    def roll_back(self) -> list[str]:
        """Back to the library that the search kept; what came since is taken out, and stays for the record. Returns its
        handles."""
        return self._back_to(self.kept_library, "pruned")

    def back_to_start(self) -> list[str]:
        """Back to the library that is shipped, to the letter; what the run learned stays proposed: a later run may try
        it again. Returns its handles."""
        return self._back_to(self.supported, "proposed")

    def _back_to(self, library: Library, gone_to: Status) -> list[str]:
        later = [lesson for lesson in self.library if lesson.handle not in library.position]
        for lesson in later:
            library = library.having(lesson)
        changed = [at for at, (a, b) in enumerate(zip(self.library, library, strict=True)) if a.version != b.version]
        for at in changed:
            self._forget(at)
        gone = [lesson.handle for lesson in later if lesson.live]
        self.library = library.moved(gone, gone_to)
        return gone

    # -- as the trainer's other policies ---------------------------------------------------------------------------

    def make_reference(self) -> None:
        """Does nothing: what the policy ships is its reference."""

    def updated(self, version: str) -> None:
        self.version = version

    def state_dict(self) -> dict[str, Any]:
        effects = {f"effects.{name}": value for name, value in self.effects.state_dict().items()}
        return {
            "kind": self.kind,
            "version": self.version,
            "library": self.library.as_list(),
            "supported": self.supported.as_list(),
            "kept_library": self.kept_library.as_list(),
            "shipped": list(self.shipped),
            "kept": list(self.kept),
            "start": list(self.start),
            "selects": self.selects,
            "floor": self.floor,
            "distinguishes": self.distinguishes,
            "compared": self.compared,
            "mixed": self.mixed,
            "equal": self.equal,
            "theta": self.theta.copy(),
            **({"answers": self.answers} if self.answers else {}),
            **effects,
            **nested("words", self.words.state_dict()),
            **nested("evidence", self.evidence.state_dict()),
            **{
                name: value
                for role in RULES
                if (rule := getattr(self, role)) is not None
                for name, value in nested(role, rule.state_dict()).items()
            },
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """Raises KeyError for the state of another kind of policy. A state of kind "frozen", from before there were
        lessons, is a policy without lessons."""
        if state["kind"] == "frozen":
            return cls(version=str(state["version"]))
        if state["kind"] != "context":
            raise KeyError(f"a {state['kind']} policy")
        effects = {key.removeprefix("effects."): value for key, value in state.items() if key.startswith("effects.")}
        # Earlier releases knew no words: of their rollouts the sums are left.
        words = under("words", state)
        evidence = under("evidence", state) if words else {}
        rules = {role: QueryRule.from_state_dict(rule) if (rule := under(role, state)) else None for role in RULES}
        # Earlier releases knew no difference between what the search keeps and what is shipped.
        kept, kept_library = state.get("kept", state["shipped"]), state.get("kept_library", state["supported"])
        policy = cls(
            library=Library.of(state["library"]),
            shipped=tuple(state["shipped"]),
            start=tuple(state["start"]),
            supported=Library.of(state["supported"]),
            kept=tuple(kept),
            kept_library=Library.of(kept_library),
            effects=Effects.from_state_dict(effects),
            words=QueryWords.from_state_dict(words) if words else QueryWords(),
            distinguishes=bool(state.get("distinguishes", False)),
            evidence=RolloutEvidence.from_state_dict(evidence) if evidence else RolloutEvidence(),
            shipped_rule=rules["shipped_rule"],
            start_rule=rules["start_rule"],
            kept_rule=rules["kept_rule"],
            selects=bool(state["selects"]),
            floor=float(state["floor"]),
            version=str(state["version"]),
            answers=list(state.get("answers", [])),
            compared=int(state["compared"]),
            mixed=int(state["mixed"]),
            equal=int(state.get("equal", 0)),  # earlier releases did not count them
        )
        policy.parameters["theta"] = np.array(state["theta"], dtype=np.float64)
        policy.evidence.grow(len(policy.library))
        return policy


def without_lessons(state: Mapping[str, Any], gone: Callable[[str], bool]) -> dict[str, Any] | None:
    """A stored policy (``state_dict``) in which the lessons whose texts ``gone`` names say nothing any more; None where
    there is none. They keep their places, on which the figures of the others depend."""
    handles: set[str] = set()

    def cleaned(values: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        found = []
        for value in values:
            if any(gone(str(value[name])) for name in ("text", "why", "task")):
                handles.add(value["handle"])
                value = {**value, "text": ERASED, "why": "", "task": "", "status": "pruned"}
            found.append(dict(value))
        return found

    # Earlier releases stored fewer of them.
    changed = {name: cleaned(state[name]) for name in ("library", "supported", "kept_library") if name in state}
    answers = [_answer_without(answer, gone) for answer in state.get("answers", [])]
    if not handles and answers == state.get("answers", []):
        return None
    named = [name for name in ("shipped", "start", "kept") if name in state]
    kept = {name: [one for one in state[name] if one not in handles] for name in named}
    return {**state, **changed, **kept, **({"answers": answers} if answers else {})}


def _answer_without(answer: Any, gone: Callable[[str], bool]) -> Any:
    """An answer of a search without the lines that ``gone`` names. Those stay as lines, so that no text becomes
    another one's equal."""
    if not isinstance(answer, Mapping):
        return answer
    return {**answer, "text": "\n".join(ERASED if gone(line) else line for line in str(answer["text"]).splitlines())}


@dataclass
class Exploring:
    """A policy as training rollouts meet it."""

    policy: ContextPolicy
    seed: int
    group: int

    @property
    def version(self) -> str:
        return self.policy.version

    def context_for(self, key: RolloutKey, query: str) -> PromptContext:
        z = self.policy.drawn(self.seed, self.group, key)
        lessons = [lesson for lesson, chosen in zip(self.policy.library, z, strict=True) if chosen]
        live = self.policy.live
        if not self.policy.selects or not live.any():
            return prompt_context(lessons)
        logp = bits(z[None, live], self.policy.theta[live], self.policy.floor).logp
        return prompt_context(lessons, float(logp.sum()))
