"""Training-free GRPO's stages (arXiv 2510.08191): summaries, one comparison per group, operations, one reconciliation.

Only groups with spread are compared. What a model answers is data of a schema; what can't be used is counted with its
reason, and changes nothing. What reads the attempts treats them as untrusted text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, field_validator

from budgets.llm.types import Message
from experiences.library.attempts import (
    Contrast,
    answers_of,
    attempt_text,
    contrast,
    name_of,
    relative_ranks,
    task_text,
    tool_stats,
)
from experiences.library.guards import MAX_WORDS, Source, lesson_fault, words
from experiences.library.lessons import Library
from experiences.library.operations import Lineage, Operation, Operations
from experiences.library.similarity import most_alike
from experiences.library.telling import listed
from experiences.quoting import RULE, plain, quoted, steady_marks, unheard_of
from experiences.structured import Asker
from experiences.types import Trajectory, TrajectoryGroup

REWRITTEN: Final = 0.5  # two texts that are so much alike are one that was written again

SUMMARY: Final = """You read one attempt of an agent at a task and say what it did and why it ended as it did.
{rule}
Answer with one JSON object. Its "summary" is one or two sentences of at most {words} words: the strategy that was
followed, and the decisive move or mistake. Name no numbers or names of this very task."""
LESSONS: Final = """You compare attempts of one agent at one task: some did well, some badly. You look for what made the
difference, as advice that helps with other tasks of this kind.
{rule}
Answer with one JSON object. Its "lessons" is a list of at most {most} lessons, or empty if the difference looks like
chance. A lesson is one sentence of at most {words} words in the form "When <situation>, <what to do>.". It is general:
no numbers, names or answers of this task, nothing that only holds for it. Don't repeat what is known already."""
OPERATIONS: Final = """You keep a library of lessons for an agent. New lessons were proposed; you say how the
library has to change.
{rule}
Answer with one JSON object. Its "operations" is a list; for each proposed lesson one of
ADD (new: its text), UPDATE (an existing lesson's id, and its better text), MERGE (the ids of lessons that say the same,
and one text for them), DELETE (an existing lesson's id that proved wrong), NONE (it is known already).
A text is one sentence of at most {words} words in the form "When <situation>, <what to do>."."""
MERGED: Final = """You keep a library of lessons for an agent. Several changes were proposed independently of each
other. You make one consistent list of them: join what says the same, drop what contradicts the better founded, keep the
rest.
{rule}
Answer with one JSON object. Its "operations" is a list of ADD (text), UPDATE (id, text), MERGE (ids, text), DELETE (id)
and NONE. A text is one sentence of at most {words} words in the form "When <situation>, <what to do>."."""


class Summary(BaseModel):
    """What one attempt did."""

    model_config = ConfigDict(extra="ignore")

    summary: str = Field(min_length=1, max_length=1000, description="What was tried and why it ended as it did.")

    @field_validator("summary")
    @classmethod
    def _short(cls, value: str) -> str:
        if (n := len(words(value))) > MAX_WORDS:
            raise ValueError(f"the summary has {n} words; {MAX_WORDS} are allowed")
        return " ".join(value.split())


class Draft(BaseModel):
    """A lesson that was proposed. Whether it can be one is for the library to say."""

    model_config = ConfigDict(extra="ignore")

    text: str = Field(min_length=1, max_length=2000, description='"When <situation>, <what to do>."')
    why: str = Field("", max_length=2000, description="What in the attempts speaks for it.")


class Lessons(BaseModel):
    """What a comparison of attempts teaches."""

    model_config = ConfigDict(extra="ignore")

    lessons: list[Draft] = Field(max_length=10, description="The lessons, none if the difference looks like chance.")


@dataclass(frozen=True, slots=True)
class ReflectionOptions:
    """``max_groups`` groups are compared, those with the largest spread; ``each`` winners and losers are read of each;
    ``concurrency`` questions are asked at once."""

    max_groups: int = 4
    each: int = 2
    max_lessons: int = 2
    max_words: int = MAX_WORDS
    domain: str = ""
    concurrency: int = 8


@dataclass
class Reflected:
    """What a batch of groups taught: operations with where they come from, and what there was to learn from.

    ``unread`` counts groups that had spread but of which too few attempts could be summarised."""

    proposed: list[tuple[Operation, Lineage]] = field(default_factory=list)
    groups: int = 0
    with_spread: int = 0
    compared: int = 0
    unread: int = 0
    drafts: int = 0

    def as_dict(self) -> dict[str, Any]:
        return {
            "groups": self.groups,
            "with_spread": self.with_spread,
            "compared": self.compared,
            "unread": self.unread,
            "drafts": self.drafts,
            "operations": len(self.proposed),
        }


@dataclass
class Reflector:
    """Asks a model what a batch of groups teaches. ``secret`` makes the marks around data that nobody can guess."""

    asker: Asker
    options: ReflectionOptions
    secret: str

    async def reflect(
        self, groups: Sequence[TrajectoryGroup], library: Library, *, iteration: int, epoch: int
    ) -> Reflected:
        """The operations that the groups propose for ``library``; it is not changed.

        Raises:
            Halted: a question could not be paid for, or the model is away; what was answered is kept.
        """
        found = [one for group in groups if (one := contrast(group, self.options.each))]
        result = Reflected(groups=len(groups), with_spread=len(found))
        chosen = sorted(found, key=lambda one: -one.spread)[: self.options.max_groups]
        gate = asyncio.Semaphore(self.options.concurrency)
        work = [self._of_group(gate, number, one, library, iteration, epoch) for number, one in enumerate(chosen)]
        compared = await _all(work)
        for of_group in compared:
            if of_group is None:
                result.unread += 1
                continue
            result.compared += 1
            result.drafts += of_group[0]
            result.proposed += of_group[1]
        if sum(bool(of_group and of_group[1]) for of_group in compared) > 1:
            result.proposed = await self._reconciled(result.proposed, library, iteration)
        return result

    async def _of_group(
        self, gate: asyncio.Semaphore, number: int, of: Contrast, library: Library, iteration: int, epoch: int
    ) -> tuple[int, list[tuple[Operation, Lineage]]] | None:
        """(drafts, operations) of one group; None where too few of its attempts could be read."""
        place = f"{iteration}/{of.group.scenario.index}.{number}"

        async def ask(stage: str, key: str, messages: list[Message], schema: Any, complaint: Any = None) -> Any:
            async with gate:
                return await self.asker.ask(
                    schema,
                    messages,
                    key=f"{stage}/{place}{key}",
                    stage=stage,
                    iteration=iteration,
                    complaint=complaint,
                )

        summaries = await _all(
            [ask("summary", f".{one.key.rollout}", self._summary(of, one, iteration), Summary) for one in of.attempts]
        )
        read = {name_of(one): s.summary for one, s in zip(of.attempts, summaries, strict=True) if s is not None}
        if not any(name_of(one) in read for one in of.winners) or not any(name_of(one) in read for one in of.losers):
            return None
        lineage = self._lineage(of, read, iteration, epoch)
        complaint = self._complaint(*lineage.sources)
        lessons = await ask("lessons", "", self._lessons(of, read, library, iteration), Lessons, complaint)
        drafts = [] if lessons is None else lessons.lessons[: self.options.max_lessons]
        if not drafts:
            return 0, []
        answer = await ask("operations", "", self._operations(drafts, library, iteration), Operations, complaint)
        if answer is None:
            return len(drafts), []
        texts = [one.text for one in drafts]
        return len(drafts), [(self._as_proposed(one, texts, lineage.sources), lineage) for one in answer.plain()]

    def _complaint(self, *sources: Source) -> Callable[[Lessons | Operations], str]:
        """What is wrong with proposed texts, so that their author can mend them once."""

        def complaint(said: Lessons | Operations) -> str:
            if isinstance(said, Lessons):
                texts = [one.text for one in said.lessons]
            else:
                texts = [one.text for one in said.plain() if one.op in ("ADD", "UPDATE", "MERGE")]
            faults = [lesson_fault(text, sources, max_words=self.options.max_words) for text in texts]
            return "; ".join(f"text {n}: {why}" for n, why in enumerate(faults, start=1) if why)

        return complaint

    async def _reconciled(
        self, proposed: list[tuple[Operation, Lineage]], library: Library, iteration: int
    ) -> list[tuple[Operation, Lineage]]:
        """One consistent list. Each change keeps the lineage of the proposals that it comes from; where the model can't
        be understood, the proposals stand as they are: each is checked against the ones before it in any case."""
        lines = "\n".join(f"{one.op} {_about(one)}".strip() for one, _ in proposed)
        messages = self._messages(
            MERGED, {"LIBRARY": listed(library.live), "CHANGES": plain(lines)}, f"merge/{iteration}"
        )
        answer = await self.asker.ask(
            Operations,
            messages,
            key=f"merge/{iteration}",
            stage="merge",
            iteration=iteration,
            complaint=self._complaint(*_sources(proposed)),
        )
        if answer is None:
            return proposed
        texts, sources = [one.text for one, _ in proposed if one.text], _sources(proposed)
        plain_ones = [self._as_proposed(one, texts, sources) for one in answer.plain()]
        return [(one, _nearest(one, proposed)) for one in plain_ones]

    def _as_proposed(self, operation: Operation, texts: Sequence[str], sources: Sequence[Source]) -> Operation:
        """A new lesson that was sound when it was proposed, and was spoiled by being written once more, stands as it
        was proposed."""

        def sound(text: str) -> bool:
            return not lesson_fault(text, sources, max_words=self.options.max_words)

        if operation.op != "ADD" or sound(operation.text):
            return operation
        at, likeness = most_alike(operation.text, texts)
        return replace(operation, text=texts[at]) if likeness >= REWRITTEN and sound(texts[at]) else operation

    # -- questions -------------------------------------------------------------------------------------------------

    def _summary(self, of: Contrast, attempt: Trajectory, iteration: int) -> list[Message]:
        blocks = {"TASK": task_text(of.group.scenario.query), "ATTEMPT": attempt_text(attempt)}
        return self._messages(SUMMARY, blocks, f"summary/{name_of(attempt)}")

    def _lessons(self, of: Contrast, read: dict[str, str], library: Library, iteration: int) -> list[Message]:
        def lines(attempts: Sequence[Trajectory]) -> str:
            known = [one for one in attempts if name_of(one) in read]
            return "\n".join(
                f"- score {one.outcome:.2f}, {len(one.steps)} steps: {read[name_of(one)]}" for one in known
            )

        blocks = {
            "KNOWN LESSONS": listed(library.live),
            "TASK": task_text(of.group.scenario.query),
            "ATTEMPTS THAT DID WELL": lines(of.winners),
            "ATTEMPTS THAT DID BADLY": lines(of.losers),
        }
        return self._messages(LESSONS, blocks, f"lessons/{iteration}/{of.group.scenario.index}")

    def _operations(self, drafts: Sequence[Draft], library: Library, iteration: int) -> list[Message]:
        # Without the reasons: what stands beside a lesson is taken for a part of it.
        proposed = "\n".join(f"{n}. {plain(one.text)}" for n, one in enumerate(drafts, start=1))
        blocks = {"LIBRARY": listed(library.live), "PROPOSED LESSONS": proposed}
        return self._messages(OPERATIONS, blocks, f"operations/{iteration}")

    def _messages(self, instructions: str, blocks: dict[str, str], place: str) -> list[Message]:
        mark = unheard_of(steady_marks(self.secret, place), blocks.values())
        options = self.options
        head = instructions.format(rule=RULE.format(mark=mark), words=options.max_words, most=options.max_lessons)
        return [Message("system", head), Message("user", quoted(blocks, mark))]

    def _lineage(self, of: Contrast, read: dict[str, str], iteration: int, epoch: int) -> Lineage:
        used = [one for one in of.attempts if name_of(one) in read]
        ranks = relative_ranks(of.group)
        scenario = of.group.scenario
        return Lineage(
            task=task_text(scenario.query),
            group=f"{iteration}/{scenario.index}",
            epoch=epoch,
            domain=self.options.domain,
            taught_by=tuple(name_of(one) for one in used),
            ground_truth=sum(one.outcome for one in used) / len(used),
            relative_rank=sum(ranks.get(name_of(one), 0.5) for one in used) / len(used),
            tool_stats=tool_stats(used),
            sources=(Source(scenario.query, answers_of(scenario)),),
        )


def _about(operation: Operation) -> str:
    ids = ", ".join([*([operation.id] if operation.id else []), *operation.ids])
    return f"{f'[{ids}] ' if ids else ''}{plain(operation.text)}"


def _nearest(operation: Operation, proposed: Sequence[tuple[Operation, Lineage]]) -> Lineage:
    """The lineage of the proposal whose text or id is nearest; all queries of the batch stay forbidden to repeat."""
    at, _ = most_alike(operation.text or operation.id, [one.text or one.id for one, _ in proposed])
    return replace(proposed[max(at, 0)][1], sources=_sources(proposed))


def _sources(proposed: Sequence[tuple[Operation, Lineage]]) -> tuple[Source, ...]:
    return tuple(dict.fromkeys(source for _, lineage in proposed for source in lineage.sources))


async def _all(work: Sequence[Any]) -> list[Any]:
    """All results in order. The first exception is raised after the others came to their own end: a question that is
    cut off is paid for all the same, and its answer would be lost."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for one in results:
        if isinstance(one, BaseException):
            raise one
    return list(results)
