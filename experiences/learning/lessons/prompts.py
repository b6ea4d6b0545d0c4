"""Prompts of reflection: our instructions, and all texts of others as data between marks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from agentcore_site.lib.texts import plain
from budgets.llm.tokens import middle
from budgets.llm.types import Message
from experiences.learning.lessons.attempts import (
    Contrast,
    attempt_text,
    critique,
    name_of,
    right_answer,
    task_text,
)
from experiences.learning.lessons.guards import MAX_WORDS, Shared
from experiences.learning.lessons.kinds import queries_text, question_key
from experiences.learning.lessons.library import Lesson, Library
from experiences.learning.lessons.operation_answers import Operation
from experiences.privacy import redact
from experiences.rollouts.prompt_quoting import RULE, quoted, steady_marks, unused_mark
from experiences.rollouts.types import Trajectory, TrajectoryGroup

SHOWN_KINDS: Final = 20  # kinds of queries that are requested at most
SHOWN_CHOICES: Final = 40
MAX_OBJECTIVE: Final = 2_000  # characters of each objective that are shown

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
REWRITTEN: Final = """You improve the advice that an agent gets with each of its tasks. The block ADVICE is all that it
got, one lesson a line. The block ATTEMPTS has tasks, what the agent did with that advice, and how it came out.
{rule}
Your task is to write new advice for the agent. Read the tasks and infer what they ask for. Read all attempts, with
their verdicts. Keep the niche facts about such tasks that the agent may lack later, and strategies that generalise.
Answer with one JSON object. Its "instructions" is the whole new list: what you leave out is gone. A lesson is one
sentence of at most {words} words in the form "When <situation>, <what to do>.". It is general: no numbers, names or
answers of these very tasks."""
KINDS: Final = """You sort the queries of an agent by what they are about, so that advice for one kind can be kept
apart from advice for another. The form of a sentence, greetings and thanks say nothing about the kind.
{rule}
Answer with one JSON object. Its "kinds" is a list of 2 to {kinds} kinds. Each has a name of one to four words, and the
numbers of its queries. Each query belongs to one kind. Queries that name one thing by different words are of one
kind."""
OBJECTIVE: Final = "The block OBJECTIVE says what a good answer of the agent is."
LEARNING: Final = "The block LEARN ABOUT says what lessons are wanted about."
CHOICES: Final = (
    "The block CHOICES lists answers that many tasks share. They give no task away: a lesson may name one of them, as"
    ' in "When <situation>, answer <choice>.".'
)
ANSWER: Final = "The block RIGHT ANSWER is there so that you understand the mistakes. No lesson may give it away."


@dataclass(frozen=True, slots=True)
class ReflectionOptions:
    """``max_groups`` groups are compared, those with the largest spread; ``each`` winners and losers are read of each;
    ``concurrency`` questions are asked at once. A group whose attempts have at most ``group_tokens`` tokens together is
    shown whole in one question, without summaries. ``objective`` says what a good answer is, ``learning_objective``
    what lessons should be about. ``show_answers`` shows what is right, and what judges said of the attempts. Of so many
    groups at most ``exemplars`` are taken. ``shared``: texts of the training queries that a lesson may repeat."""

    max_groups: int = 4
    each: int = 2
    max_lessons: int = 2
    max_words: int = MAX_WORDS
    domain: str = ""
    concurrency: int = 8
    group_tokens: int = 0
    objective: str = ""
    learning_objective: str = ""
    show_answers: bool = False
    exemplars: int = 0
    shared: Shared = field(default_factory=Shared)


@dataclass(frozen=True, slots=True)
class Prompts:
    """The questions of reflection. ``secret`` makes the marks around data, which can't be guessed."""

    options: ReflectionOptions
    secret: str

    def summary(self, of: Contrast, attempt: Trajectory) -> list[Message]:
        blocks = {"TASK": task_text(of.group.scenario.query), "ATTEMPT": attempt_text(attempt)}
        return self._messages(SUMMARY, blocks, f"summary/{name_of(attempt)}")

    def lessons(self, of: Contrast, read: dict[str, str], library: Library, iteration: int) -> list[Message]:
        """``read``: the summaries of the attempts, by name."""

        def lines(attempts: Sequence[Trajectory]) -> str:
            return "\n".join(
                f"- score {attempt.outcome:.2f}, {len(attempt.steps)} steps: {read[name_of(attempt)]}"
                f"{self._judged(attempt)}"
                for attempt in attempts
                if name_of(attempt) in read
            )

        return self._compared(of, lines(of.winners), lines(of.losers), library, iteration)

    def whole(self, of: Contrast, library: Library, iteration: int) -> list[Message]:
        """All attempts of the group as they are, in place of summaries."""
        return self._compared(of, self._attempts_text(of.winners), self._attempts_text(of.losers), library, iteration)

    def fits_whole(self, of: Contrast) -> bool:
        """Whether the attempts of a group may be shown in one question."""
        most = self.options.group_tokens
        return most > 0 and middle(self._attempts_text(of.attempts)) <= most

    def operations(self, drafts: Sequence[str], library: Library, iteration: int) -> list[Message]:
        """``drafts``: without the reasons, since words beside a lesson are taken for a part of it."""
        proposed = "\n".join(f"{n}. {plain(text)}" for n, text in enumerate(drafts, start=1))
        blocks = {"LIBRARY": listed(library.live), "PROPOSED LESSONS": proposed}
        return self._messages(OPERATIONS, blocks, f"operations/{iteration}")

    def merged(self, proposed: Sequence[Operation], library: Library, iteration: int) -> list[Message]:
        lines = "\n".join(f"{operation.op} {_about(operation)}".strip() for operation in proposed)
        return self._messages(MERGED, {"LIBRARY": listed(library.live), "CHANGES": plain(lines)}, f"merge/{iteration}")

    def rewritten(self, groups: Sequence[TrajectoryGroup], texts: Sequence[str], iteration: int) -> list[Message]:
        """Messages that ask for a whole context in place of ``texts``, with which the attempts were made."""
        tasks = []
        for n, group in enumerate(groups, start=1):
            right = right_answer(group.scenario) if self.options.show_answers else ""
            shown = f"\nRight answer: {right}" if right else ""
            tasks.append(
                f"Task {n}: {task_text(group.scenario.query)}{shown}\n{self._attempts_text(group.trajectories)}"
            )
        blocks = {"ADVICE": "\n".join(texts) or "(none yet)", "ATTEMPTS": "\n\n".join(tasks)}
        if self.options.shared.answers:
            blocks["CHOICES"] = redact(plain("\n".join(self.options.shared.answers[:SHOWN_CHOICES])))
        return self._messages(REWRITTEN, blocks, f"rewrite/{iteration}")

    def kinds(self, queries: Sequence[str]) -> list[Message]:
        """Messages that ask a model for the kind of each query."""
        return self._messages(KINDS, {"QUERIES": queries_text(queries)}, question_key(queries))

    def _compared(self, of: Contrast, good: str, bad: str, library: Library, iteration: int) -> list[Message]:
        scenario = of.group.scenario
        blocks = {"KNOWN LESSONS": listed(library.live), "TASK": task_text(scenario.query)}
        if self.options.show_answers and (right := right_answer(scenario)):
            blocks["RIGHT ANSWER"] = right
        if self.options.shared.answers:
            blocks["CHOICES"] = redact(plain("\n".join(self.options.shared.answers[:SHOWN_CHOICES])))
        blocks |= {"ATTEMPTS THAT DID WELL": good, "ATTEMPTS THAT DID BADLY": bad}
        return self._messages(LESSONS, blocks, f"lessons/{iteration}/{scenario.index}")

    def _attempts_text(self, attempts: Sequence[Trajectory]) -> str:
        shown = [f"Attempt {n}:\n{attempt_text(one)}{self._judged(one)}" for n, one in enumerate(attempts, start=1)]
        return "\n\n".join(shown)

    def _judged(self, attempt: Trajectory) -> str:
        verdict = critique(attempt) if self.options.show_answers else ""
        return f" What was said of it: {verdict}" if verdict else ""

    def _messages(self, instructions: str, blocks: dict[str, str], origin: str) -> list[Message]:
        wanted = {"OBJECTIVE": self.options.objective, "LEARN ABOUT": self.options.learning_objective}
        blocks = {name: redact(plain(text))[:MAX_OBJECTIVE] for name, text in wanted.items() if text.strip()} | blocks
        mark = unused_mark(steady_marks(self.secret, origin), blocks.values())
        rules = {"OBJECTIVE": OBJECTIVE, "LEARN ABOUT": LEARNING, "RIGHT ANSWER": ANSWER, "CHOICES": CHOICES}
        rule = "\n".join([RULE.format(mark=mark), *(text for name, text in rules.items() if name in blocks)])
        options = self.options
        head = instructions.format(rule=rule, words=options.max_words, most=options.max_lessons, kinds=SHOWN_KINDS)
        return [Message("system", head), Message("user", quoted(blocks, mark))]


def _about(operation: Operation) -> str:
    ids = ", ".join([*([operation.id] if operation.id else []), *operation.ids])
    return f"{f'[{ids}] ' if ids else ''}{plain(operation.text)}"


def listed(lessons: Sequence[Lesson]) -> str:
    """The lessons with their names, for the model that proposes changes."""
    return "\n".join(f"[{lesson.handle}] {' '.join(lesson.text.split())}" for lesson in lessons) or "(none yet)"
