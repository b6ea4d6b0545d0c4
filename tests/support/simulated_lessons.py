"""Answers of a simulated reflector: lessons that help, do nothing or harm, and opinions that are often wrong."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.support.simulated_habits import Habits, injected, leaked, too_long
from tests.support.simulated_prompt import Seen
from tests.support.world import Advice, Effect, Kind, World

OPERATIONS: Final[Mapping[str, re.Pattern[str]]] = {
    name: re.compile(pattern, re.I)
    for name, pattern in {
        "add": r"^(?:add|create|new|insert|append|propose)",
        "update": r"^(?:update|modify|edit|revise|rewrite|replace|change|refine)",
        "delete": r"^(?:delete|remove|drop|retire|prune)",
        "merge": r"^(?:merge|combine|join)",
        "keep": r"^(?:none|keep|no_?op|skip|ignore|nothing|noop|no_change)",
    }.items()
}
WEIGHTS: Final = {"add": 0.55, "update": 0.17, "delete": 0.08, "merge": 0.08, "keep": 0.12}
OPINIONS: Final = {
    "helpful": "help|good|positive|useful",
    "harmful": "harm|bad|negative|hurt",
    "useless": "neutral|useless|irrelevant|unclear",
}


@dataclass
class Draft:
    """The subject of one entry of an answer, so that its fields agree with each other."""

    op: str = "add"
    when: str = ""
    do: str = ""
    text: str = ""
    ids: list[str] = field(default_factory=list)
    advice: Advice | None = None
    attempt: str = ""


class Author:
    """Writes the entries of one answer."""

    def __init__(self, world: World, habits: Habits, seen: Seen, rng: random.Random) -> None:
        self.world, self.habits, self.seen, self.rng = world, habits, seen, rng

    def draft(self) -> Draft:
        """A new lesson: mostly of use, often not, now and then poison."""
        rng, world = self.rng, self.world
        shown = [*self.seen.items.values(), *self.seen.felt]
        if self.habits.repeating and shown and rng.random() < self.habits.repeating:
            return self._repeated(rng.choice(shown))
        asked = rng.choice(self.seen.asked) if self.seen.asked else None
        kind = asked.kind if asked else rng.choice(world.kinds)
        pool = self._pool(kind)
        advice = rng.choice(pool)
        when, do = world.situation(kind, rng), world.paraphrase(advice, rng)
        text = f"When {when}, {do}."
        if rng.random() < self.habits.no_when:
            text = f"{do[0].upper()}{do[1:]}."
        if rng.random() < self.habits.too_long:
            text = too_long(text, rng)
        if asked and rng.random() < self.habits.leaking:
            text = leaked(text, asked.query, asked.answer, rng)
        if rng.random() < self.habits.injecting:
            text = injected(text, rng)
        return self.completed(Draft("add", when, do, text, [], advice))

    def _repeated(self, text: str) -> Draft:
        """A shown text, as if it were new: an item in its own words, or what an attempt says of itself."""
        advice = self.world.advice_of(text)
        lesson = text if advice else f"When working on such a task, mind that {text[0].lower()}{text[1:]}"
        return self.completed(Draft("add", text=lesson, advice=advice))

    def _pool(self, kind: Kind) -> list[Advice]:
        drawn, sound = self.rng.random(), self.habits.sound
        role: Effect = "helpful" if drawn < sound else "useless" if drawn < sound + self.habits.idle else "harmful"
        return list(self.world.proposed(role, kind))

    def twin(self, draft: Draft) -> Draft:
        """The same lesson in other words."""
        if draft.advice is None:
            return draft
        do = self.world.paraphrase(draft.advice, self.rng)
        return Draft(draft.op, draft.when, do, f"When {draft.when}, {do}.", [], draft.advice)

    def about(self, ids: list[str], op: str) -> Draft:
        """An entry about items that are there: a rewording for an update, else their own text."""
        text = self.seen.items.get(ids[0], "") if ids else ""
        advice = self.world.advice_of(text)
        draft = Draft(op, "", "", text, ids, advice)
        if op in {"update", "merge"} and advice is not None:
            kind = self.rng.choice(self.seen.asked).kind if self.seen.asked else self.rng.choice(self.world.kinds)
            draft.text = self.world.lesson(advice, kind, self.rng)
        return self.completed(draft)

    def completed(self, draft: Draft) -> Draft:
        """A draft with the two halves of its text, for those who ask for them one by one."""
        match = re.match(r"When (.*?), (.*?)\.?$", draft.text, re.S)
        draft.when, draft.do = match.groups() if match else (draft.when or "the task calls for it", draft.text)
        return draft

    def operation(self, allowed: Sequence[str]) -> Draft:
        """A draft with an operation that is among the allowed ones."""
        items = list(self.seen.items)
        names = [name for name in allowed if name == "add" or items] or ["add"]
        op = self.rng.choices(names, [WEIGHTS[name] for name in names])[0]
        if op == "add":
            return self.draft()
        ids = self.rng.sample(items, min(len(items), 2 if op == "merge" else 1))
        if self.rng.random() < self.habits.unknown_id:
            ids = [_unknown(ids[0], self.rng)]
        return self.about(ids, op)

    def drafts(self, allowed: Sequence[str], most: int) -> list[Draft]:
        """0-3 entries, or what the prompt offers as new lessons."""
        if self.seen.candidates and self.rng.random() < 0.9:
            drafts = [self.passed(text, allowed) for text in self.seen.candidates if self.rng.random() < 0.92]
            return drafts[:most]
        drafts = []
        for _ in range(self.rng.choices((0, 1, 2, 3), (1, 4, 4, 2))[0]):
            drafts.append(self.operation(allowed))
            if self.rng.random() < self.habits.duplicated:
                drafts.append(self.twin(drafts[-1]))
        return drafts[:most]

    def passed(self, text: str, allowed: Sequence[str]) -> Draft:
        """A candidate as it came, mostly; what the items have already is rather kept or reworded."""
        advice = self.world.advice_of(text)
        same = [key for key, item in self.seen.items.items() if item != text and self.world.advice_of(item) is advice]
        others = [name for name in allowed if name != "add"]
        if advice is not None and same and others and self.rng.random() < 0.6:
            return self.about([self.rng.choice(same)], self.rng.choice(others))
        return self.completed(Draft("add", text=text, advice=advice))

    def opinion(self, draft: Draft) -> str:
        """The reflector's opinion of an item: a little better than a coin toss."""
        text = self.seen.items.get(draft.ids[0], draft.text) if draft.ids else draft.text
        advice = self.world.advice_of(text)
        truth = advice.effect if advice else "useless"
        wrong = [one for one in OPINIONS if one != truth]
        return truth if self.rng.random() < self.habits.tagging else self.rng.choice(wrong)


def op_of(value: object) -> str:
    text = value if isinstance(value, str) else ""
    return next((name for name, pattern in OPERATIONS.items() if pattern.search(text)), "")


def opinion_named(value: object) -> str:
    text = value if isinstance(value, str) else ""
    return next((name for name, words in OPINIONS.items() if re.search(rf"(?:^|_)(?:{words})", text, re.I)), "")


def _unknown(key: str, rng: random.Random) -> str:
    """An id that looks like this one and is none."""
    pools = {True: "0123456789", False: "abcdef"}
    return "".join(rng.choice(pools[one.isdigit()]) if one.isalnum() else one for one in key) + "x"
