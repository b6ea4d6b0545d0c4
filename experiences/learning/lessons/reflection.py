"""Training-free GRPO's stages (arXiv 2510.08191): summaries, one comparison per group, operations, one reconciliation.

Only groups with spread are compared. What a model answers is data of a schema; what can't be used is counted with its
reason, and changes nothing. What reads the attempts treats them as untrusted text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from budgets.llm.types import Message
from experiences.learning.lessons.attempts import (
    Contrast,
    answers_of,
    contrast,
    name_of,
    relative_ranks,
    task_text,
    tool_stats,
)
from experiences.learning.lessons.exemplars import exemplar
from experiences.learning.lessons.guards import MAX_WORDS, Source, lesson_fault, words
from experiences.learning.lessons.kinds import STAGE, Kinds, fault, labels_in, question_key
from experiences.learning.lessons.library import Library
from experiences.learning.lessons.operation_answers import Operation, Operations
from experiences.learning.lessons.operations import REWRITTEN, UNDRAFTED, Lineage, Receipt, is_drafted
from experiences.learning.lessons.prompts import Prompts, ReflectionOptions
from experiences.learning.lessons.similarity import most_alike
from experiences.rollouts.structured_output import Asker
from experiences.rollouts.types import Trajectory, TrajectoryGroup


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


class NewContext(BaseModel):
    """A context that was written again as a whole."""

    model_config = ConfigDict(extra="ignore")

    instructions: list[str] = Field(
        max_length=200, description='All lessons of the new context, each "When <situation>, <what to do>."'
    )


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The lines of a context that was written again, each with why it can't be a lesson ("" if it can), and their
    domain."""

    texts: tuple[tuple[str, str], ...]
    domain: str = ""


@dataclass
class Reflected:
    """Result of reflection on a batch of groups: operations with their origin, and counts of the groups.

    ``unread`` counts groups with spread of which too few attempts could be summarised. ``receipts`` hold the outcome of
    each proposal after it was applied. ``kinds`` are labels of the run's training queries, where these were sorted
    (None: no question; (): the answer was of no use). ``rewritten`` is a whole context in place of operations (None: no
    question, or no usable answer).
    """

    proposed: list[tuple[Operation, Lineage]] = field(default_factory=list)
    groups: int = 0
    with_spread: int = 0
    compared: int = 0
    unread: int = 0
    drafts: int = 0
    receipts: list[Receipt] = field(default_factory=list)
    kinds: tuple[str, ...] | None = None
    rewritten: Rewritten | None = None

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
    """Asks a model what a batch of groups teaches. ``secret`` makes the marks around data, which can't be guessed."""

    asker: Asker
    options: ReflectionOptions
    secret: str

    def __post_init__(self) -> None:
        self._prompts = Prompts(self.options, self.secret)

    async def reflect(
        self, groups: Sequence[TrajectoryGroup], library: Library, *, iteration: int, epoch: int
    ) -> Reflected:
        """The operations that the groups propose for ``library``; it is not changed.

        Raises:
            Halted: a question could not be paid for, or the model is away; what was answered is kept.
        """
        # The whole group where it fits a question, else its best and worst attempts; none without spread.
        found = [one for group in groups if (one := self._whole(group) or contrast(group, self.options.each))]
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
        if self.options.exemplars:
            result.proposed += self._exemplars(chosen, iteration, epoch)
        return result

    async def rewrite(
        self, groups: Sequence[TrajectoryGroup], texts: Sequence[str], *, iteration: int
    ) -> Rewritten | None:
        """The context ``texts`` written again by the attempts that were made with it; None without a usable answer.

        Raises:
            Halted: as in ``reflect``.
        """
        shared, old = self.options.shared, set(texts)
        sources = [Source(g.scenario.query, shared.secret(answers_of(g.scenario)), True, shared.runs) for g in groups]

        def fault(text: str) -> str:
            return "" if text in old else lesson_fault(text, sources, max_words=self.options.max_words)

        def complaint(answer: NewContext) -> str:
            found = [f"text {n}: {why}" for n, one in enumerate(_lines(answer), start=1) if (why := fault(one))]
            return "; ".join(found)

        answer = await self.asker.ask(
            NewContext,
            self._prompts.rewritten(groups, texts, iteration),
            key=f"rewrite/{iteration}",
            stage="rewrite",
            iteration=iteration,
            complaint=complaint,
        )
        if answer is None:
            return None
        return Rewritten(tuple((text, fault(text)) for text in _lines(answer)), self.options.domain)

    async def kinds(self, queries: Sequence[str]) -> tuple[str, ...]:
        """The label of each query ("": none), by one question; () without a usable answer.

        Raises:
            Halted: as in ``reflect``.
        """
        answer = await self.asker.ask(
            Kinds,
            self._prompts.kinds(queries),
            key=question_key(queries),
            stage=STAGE,
            iteration=1,
            complaint=lambda found: fault(found, len(queries)),
        )
        return () if answer is None or fault(answer, len(queries)) else labels_in(answer, len(queries))

    def _exemplars(self, chosen: Sequence[Contrast], iteration: int, epoch: int) -> list[tuple[Operation, Lineage]]:
        """Pieces of the attempts that went well, of the groups with the largest spread; asks nothing."""
        found: list[tuple[Operation, Lineage]] = []
        for of in chosen:
            lineage = self._lineage(of, of.winners, iteration, epoch, shown=True)  # who said it knew the answer
            if text := exemplar(of, lineage.sources[0], max_words=self.options.max_words):
                found.append((Operation("ADD", text), replace(lineage, kind="exemplar")))
        return found[: self.options.exemplars]

    def _whole(self, group: TrajectoryGroup) -> Contrast | None:
        whole = contrast(group, len(group.trajectories))
        return whole if whole is not None and self._prompts.fits_whole(whole) else None

    async def _of_group(
        self, gate: asyncio.Semaphore, number: int, of: Contrast, library: Library, iteration: int, epoch: int
    ) -> tuple[int, list[tuple[Operation, Lineage]]] | None:
        """(drafts, operations) of one group; None where too few of its attempts could be read."""
        origin = f"{iteration}/{of.group.scenario.index}.{number}"

        async def ask(stage: str, key: str, messages: list[Message], schema: Any, complaint: Any = None) -> Any:
            async with gate:
                return await self.asker.ask(
                    schema,
                    messages,
                    key=f"{stage}/{origin}{key}",
                    stage=stage,
                    iteration=iteration,
                    complaint=complaint,
                )

        whole = self._whole(of.group) is not None
        read = {} if whole else await self._summaries(of, ask)
        used = [attempt for attempt in of.attempts if whole or name_of(attempt) in read]
        if not any(trajectory in of.winners for trajectory in used) or not any(
            trajectory in of.losers for trajectory in used
        ):
            return None
        prompts, shown = self._prompts, whole or self.options.show_answers  # attempts that did well hold the answer
        lineage = self._lineage(of, used, iteration, epoch, shown=shown)
        asked = prompts.whole(of, library, iteration) if whole else prompts.lessons(of, read, library, iteration)
        lessons = await ask("lessons", "", asked, Lessons, self._complaint(lineage))
        drafts = [] if lessons is None else [lesson.text for lesson in lessons.lessons[: self.options.max_lessons]]
        if not drafts:
            return 0, []
        lineage = replace(lineage, drafts=tuple(drafts))
        asked = prompts.operations(drafts, library, iteration)
        answer = await ask("operations", "", asked, Operations, self._complaint(lineage))
        if answer is None:
            return len(drafts), []
        return len(drafts), [(self._as_proposed(one, drafts, lineage.sources), lineage) for one in answer.plain()]

    async def _summaries(self, of: Contrast, ask: Callable[..., Awaitable[Any]]) -> dict[str, str]:
        """Summaries by the name of the attempt, of the attempts that could be summarised."""
        prompts = self._prompts
        summaries = await _all(
            [
                ask("summary", f".{trajectory.key.rollout}", prompts.summary(of, trajectory), Summary)
                for trajectory in of.attempts
            ]
        )
        pairs = zip(of.attempts, summaries, strict=True)
        return {name_of(attempt): found.summary for attempt, found in pairs if found is not None}

    def _complaint(self, lineage: Lineage) -> Callable[[Lessons | Operations], str]:
        """Faults of proposed texts, so that their author can repair them once."""

        def fault(text: str, is_new: bool) -> str:
            found = lesson_fault(text, lineage.sources, max_words=self.options.max_words)
            return found or (UNDRAFTED if is_new and not is_drafted(text, lineage.drafts) else "")

        def complaint(answer: Lessons | Operations) -> str:
            if isinstance(answer, Lessons):
                texts = [(lesson.text, False) for lesson in answer.lessons]
            else:
                changes = [operation for operation in answer.plain() if operation.op in ("ADD", "UPDATE", "MERGE")]
                texts = [(change.text, change.op == "ADD") for change in changes]
            faults = [fault(text, is_new) for text, is_new in texts]
            return "; ".join(f"text {n}: {why}" for n, why in enumerate(faults, start=1) if why)

        return complaint

    async def _reconciled(
        self, proposed: list[tuple[Operation, Lineage]], library: Library, iteration: int
    ) -> list[tuple[Operation, Lineage]]:
        """One consistent list. Each change keeps the lineage of the proposals that it comes from; where the model can't
        be understood, the proposals stay as they are: each is checked against the ones before it in any case."""
        batch = _batch(proposed)
        answer = await self.asker.ask(
            Operations,
            self._prompts.merged([one for one, _ in proposed], library, iteration),
            key=f"merge/{iteration}",
            stage="merge",
            iteration=iteration,
            complaint=self._complaint(batch),
        )
        if answer is None:
            return proposed
        texts = [one.text for one, _ in proposed if one.text]
        plain_ones = [self._as_proposed(operation, texts, batch.sources) for operation in answer.plain()]
        return [(operation, _nearest(operation, proposed, batch)) for operation in plain_ones]

    def _as_proposed(self, operation: Operation, texts: Sequence[str], sources: Sequence[Source]) -> Operation:
        """A new lesson that was sound when it was proposed, and was spoiled by being written once more, stays as it
        was proposed."""

        def sound(text: str) -> bool:
            return not lesson_fault(text, sources, max_words=self.options.max_words)

        if operation.op != "ADD" or sound(operation.text):
            return operation
        at, likeness = most_alike(operation.text, texts)
        return replace(operation, text=texts[at]) if likeness >= REWRITTEN and sound(texts[at]) else operation

    def _lineage(self, of: Contrast, used: Sequence[Trajectory], iteration: int, epoch: int, *, shown: bool) -> Lineage:
        ranks = relative_ranks(of.group)
        scenario, shared = of.group.scenario, self.options.shared
        secret = shared.secret(answers_of(scenario))
        return Lineage(
            task=task_text(scenario.query),
            group=f"{iteration}/{scenario.index}",
            epoch=epoch,
            domain=self.options.domain,
            taught_by=tuple(name_of(trajectory) for trajectory in used),
            ground_truth=sum(trajectory.outcome for trajectory in used) / len(used),
            relative_rank=sum(ranks.get(name_of(trajectory), 0.5) for trajectory in used) / len(used),
            tool_stats=tool_stats(used),
            sources=(Source(scenario.query, secret, shown=shown, common=shared.runs),),
        )


def _lines(answer: NewContext) -> list[str]:
    """The texts of a context, each on one line, without marks of a list."""
    flat = (" ".join(text.split()).removeprefix("- ") for text in answer.instructions)
    return [text for text in dict.fromkeys(flat) if text]


def _nearest(operation: Operation, proposed: Sequence[tuple[Operation, Lineage]], batch: Lineage) -> Lineage:
    """The lineage of the proposal whose text or id is nearest; all queries of the batch stay forbidden to repeat, and
    all drafts of the batch allowed."""
    at, _ = most_alike(operation.text or operation.id, [one.text or one.id for one, _ in proposed])
    return replace(proposed[max(at, 0)][1], sources=batch.sources, drafts=batch.drafts)


def _batch(proposed: Sequence[tuple[Operation, Lineage]]) -> Lineage:
    """The queries that no lesson of a batch may repeat, and the lessons that its comparisons drafted."""
    lineages = [lineage for _, lineage in proposed]
    return Lineage(
        sources=tuple(dict.fromkeys(source for lineage in lineages for source in lineage.sources)),
        drafts=tuple(dict.fromkeys(draft for lineage in lineages for draft in lineage.drafts or ())),
    )


async def _all(work: Sequence[Any]) -> list[Any]:
    """All results in order. The first exception is raised after the others came to their own end: a question that is
    cut off is paid for all the same, and its answer would be lost."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return list(results)
