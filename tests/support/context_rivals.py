"""Other methods with the same model and the same money: training-free GRPO as its reference has it, and ACE.

Both are plain ports in our own words (arXiv 2510.08191 and 2510.04618), over the client, runtime and world of a run
of ours. Each is given what that run spent (or as many of something else, which the caller counts); it begins nothing
more once that is used up, and ships what it has then.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final, Literal, TypeVar

import uvloop
from pydantic import BaseModel, Field

from budgets.llm.types import Message
from experiences.learning.lessons.attempts import attempt_text
from experiences.learning.lessons.library import Lesson
from experiences.learning.rendering import context_of
from experiences.rollouts.runtimes.base import PromptContext
from experiences.rollouts.runtimes.llm import Sampling
from experiences.rollouts.structured_output import Asker
from experiences.rollouts.types import RolloutKey, Scenario, Trajectory
from tests.support.context_runs import MODEL, Finished, Player
from training.trainer.play import SELECTION_STREAM, play

EPOCHS, GROUP = 3, 5  # of the paper (arXiv 2510.08191)
GROUPS_AT_ONCE, SAMPLES_AT_ONCE = 3, 2  # what is begun before the purse is looked at again
JUDGED: Final = 5  # opinions of an item before it may go
LONG_ANSWER: Final = 16_384  # tokens: what lists a whole library needs room
MOST: Final = 2_000  # entries of such a list; a schema that names no limit would be taken to mean a short one

SUMMARISE: Final = (
    "You read one attempt at a task. Answer in JSON: say step by step what it did and where it went wrong."
)
COMPARE: Final = (
    "You compare attempts at one task, good and bad ones. Answer in JSON with at most 2 experiences that would help "
    'with such tasks, each as "When <situation>, <what to do>.", of at most 32 words, without its own numbers.'
)
REVISE: Final = (
    "You keep a library of experiences. Answer in JSON: for each new experience, ADD it, UPDATE or DELETE one that is "
    "there by its id, or NONE."
)
RECONCILE: Final = (
    "You keep a library of experiences. Changes were proposed by several people. Answer in JSON with one consistent "
    "list of them."
)
TAG: Final = (
    "You read an attempt and the playbook it was given. Answer in JSON with a tag for each bullet of the playbook."
)
CURATE: Final = (
    "You read an attempt and the playbook it was given. Answer in JSON with what should be added to the playbook, each "
    'as "When <situation>, <what to do>."; nothing that is in it already.'
)

T = TypeVar("T", bound=BaseModel)


class Story(BaseModel):
    summary: str


class Compared(BaseModel):
    experiences: list[str]


class Change(BaseModel):
    operation: Literal["ADD", "UPDATE", "DELETE", "NONE"]
    id: str = ""
    content: str = ""


class Changes(BaseModel):
    operations: list[Change] = Field(max_length=MOST)


class Tag(BaseModel):
    id: str
    tag: Literal["helpful", "harmful", "neutral"]


class Tags(BaseModel):
    bullets: list[Tag] = Field(max_length=MOST)


class Additions(BaseModel):
    additions: list[str]


@dataclass(frozen=True)
class Context:
    """A policy that gives every rollout all of its texts."""

    texts: tuple[str, ...] = ()
    version: str = "rival"

    def context_for(self, key: RolloutKey, query: str) -> PromptContext:
        return PromptContext(context_of([Lesson(f"e{n}", text) for n, text in enumerate(self.texts)]), {})


@dataclass
class Rival:
    """The common part of both: play with all texts, ask, count the money."""

    run: Finished
    name: str
    player: Player = field(init=False)
    share: int = 0  # micro-dollars (or what ``counts`` counts) that may be spent by now
    counts: Callable[[], int] | None = None

    def __post_init__(self) -> None:
        self.player = Player(self.run.player.base_url)
        self._rng = random.Random(f"{self.name}/{self.run.setup.seed}")
        self._asker = Asker(self.player.client(), Sampling(MODEL, 0.3, LONG_ANSWER), f"run/{self.name}")
        self._questions = count()
        self._begun = self.counts() if self.counts else 0

    @property
    def spent(self) -> int:
        return self.counts() - self._begun if self.counts else self.player.meter.spent_micros

    def waves(self, size: int) -> Iterator[list[Scenario]]:
        """The training queries in random order, again and again, until the share is spent."""
        while True:
            order = self._rng.sample(list(self.run.setup.train), len(self.run.setup.train))
            for at in range(0, len(order), size):
                if self.spent >= self.share:
                    return
                yield order[at : at + size]

    async def played(self, texts: Sequence[str], wave: Sequence[Scenario], samples: int) -> list[list[Trajectory]]:
        """``samples`` attempts at each query, with all texts in the prompt."""
        setup, number = self.run.setup, next(self._questions)
        plan = replace(setup, acting=self.player, model=MODEL).plan(
            Context(tuple(texts)),
            setup.reward(),
            temperature=setup.config.temperature,
            purpose=f"{self.name}.{number}",
            stream=SELECTION_STREAM,
        )
        played = await play(wave, samples, plan, iteration=number)
        return played.trajectories

    async def ask(self, schema: type[T], instructions: str, *parts: str) -> T | None:
        """An answer, or None, as the reference takes it after its own retries: without a word."""
        messages = [Message("system", instructions), Message("user", "\n\n".join(parts))]
        return await self._asker.ask(schema, messages, key=str(next(self._questions)), stage=self.name)


def shipped_by(rival: Rival, work: Callable[[], Awaitable[list[str]]]) -> list[str]:
    """The texts that the rival ends with."""

    async def whole() -> list[str]:
        try:
            return await work()
        finally:
            await rival.player.aclose()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(whole())


# -- training-free GRPO ------------------------------------------------------------------------------------------------


def training_free(run: Finished, budget: int, counts: Callable[[], int] | None = None) -> tuple[Context, int]:
    """(what the reference loop ships, what it spent): epochs of one batch each, and every operation is accepted."""
    rival = Rival(run, "tf", counts=counts)

    async def work() -> list[str]:
        library: dict[str, str] = {}
        merging = 0  # what it cost the last time; it comes when the rest of an epoch's share is spent
        for epoch in range(1, EPOCHS + 1):
            rival.share = budget * epoch // EPOCHS - merging
            changes = await _batch(rival, library)
            before = rival.spent
            library = await _merged(rival, library, changes)
            merging = rival.spent - before
        return list(library.values())

    return Context(tuple(shipped_by(rival, work))), rival.spent


async def _batch(rival: Rival, library: dict[str, str]) -> list[Change]:
    """The proposals of all groups of a batch, each for the library as it was before."""
    changes: list[Change] = []
    for wave in rival.waves(GROUPS_AT_ONCE):
        groups = await rival.played(list(library.values()), wave, GROUP)
        for found in await asyncio.gather(*(_of_group(rival, library, group) for group in groups)):
            changes += found
    return changes


async def _merged(rival: Rival, library: dict[str, str], changes: Sequence[Change]) -> dict[str, str]:
    lines = "\n".join(f"- {one.operation} {one.id} {one.content}".replace("  ", " ") for one in changes)
    merged = await rival.ask(Changes, RECONCILE, f"Library:\n{_listed(library)}", f"Proposed changes:\n{lines}")
    return _operated(library, changes if merged is None else merged.operations)


async def _of_group(rival: Rival, library: dict[str, str], group: list[Trajectory]) -> list[Change]:
    if not 0 < sum(one.reward for one in group) / len(group) < 1:
        return []
    task = f"Task: {group[0].query}"
    read = await asyncio.gather(*(rival.ask(Story, SUMMARISE, task, attempt_text(one)) for one in group))
    stories = [
        f"Attempt {n} (reward {one.reward:.2f}): {story.summary}"
        for n, (one, story) in enumerate(zip(group, read, strict=True), start=1)
        if story is not None
    ]
    result = await rival.ask(Compared, COMPARE, task, "\n".join(stories))
    if result is None or not result.experiences:
        return []
    new = "\n".join(f"- {text}" for text in result.experiences[:2])
    answer = await rival.ask(Changes, REVISE, f"Library:\n{_listed(library)}", f"New experiences:\n{new}")
    return [] if answer is None else answer.operations


def _operated(library: dict[str, str], changes: Sequence[Change]) -> dict[str, str]:
    """Names are given again after each step, and dangling names are dropped, as in the reference."""
    texts = dict(library)
    for number, one in enumerate(changes):
        if one.operation == "ADD" and one.content:
            texts[f"new{number}"] = one.content
        elif one.operation == "UPDATE" and one.content and one.id in texts:
            texts[one.id] = one.content
        elif one.operation == "DELETE":
            texts.pop(one.id, None)
    return {f"G{n}": text for n, text in enumerate(dict.fromkeys(texts.values()))}


# -- ACE ---------------------------------------------------------------------------------------------------------------


@dataclass
class Bullet:
    text: str
    helpful: int = 0
    harmful: int = 0

    @property
    def is_problem(self) -> bool:
        return self.helpful + self.harmful >= JUDGED and self.harmful >= self.helpful


def counted(run: Finished, budget: int, counts: Callable[[], int] | None = None) -> tuple[Context, int]:
    """(what ACE ships, what it spent): a playbook that only grows, but for what opinions count as harmful."""
    rival = Rival(run, "ace", share=budget, counts=counts)

    async def work() -> list[str]:
        playbook: dict[str, Bullet] = {}
        names = count()
        for wave in rival.waves(SAMPLES_AT_ONCE):
            attempts = await rival.played([one.text for one in playbook.values()], wave, 1)
            result = await asyncio.gather(*(_reflected(rival, playbook, one[0]) for one in attempts))
            for tags, additions in result:
                _tagged(playbook, tags)
                known = {one.text for one in playbook.values()}
                playbook |= {f"b{next(names)}": Bullet(text) for text in dict.fromkeys(additions) if text not in known}
            playbook = {name: one for name, one in playbook.items() if not one.is_problem}
        return [one.text for one in playbook.values()]

    return Context(tuple(shipped_by(rival, work))), rival.spent


async def _reflected(rival: Rival, playbook: dict[str, Bullet], attempt: Trajectory) -> tuple[list[Tag], list[str]]:
    bullets = {name: one.text for name, one in playbook.items()}
    parts: tuple[Any, ...] = (f"Task: {attempt.query}", f"Playbook:\n{_listed(bullets)}", attempt_text(attempt))
    tags = await rival.ask(Tags, TAG, *parts) if bullets else None
    added = await rival.ask(Additions, CURATE, *parts)
    return [] if tags is None else tags.bullets, [] if added is None else added.additions


def _tagged(playbook: dict[str, Bullet], tags: Sequence[Tag]) -> None:
    for one in tags:
        if (bullet := playbook.get(one.id)) is not None:
            bullet.helpful += one.tag == "helpful"
            bullet.harmful += one.tag == "harmful"


def _listed(texts: dict[str, str]) -> str:
    return "\n".join(f"[{name}] {' '.join(text.split())}" for name, text in texts.items()) or "(none yet)"
