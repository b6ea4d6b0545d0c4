"""Changes of a library by operations: each is taken or refused with its reason, none is dropped in silence."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from experiences.learning.lessons.exemplars import exemplar_fault
from experiences.learning.lessons.guards import MAX_WORDS, Source, lesson_fault
from experiences.learning.lessons.library import Kind as LessonKind
from experiences.learning.lessons.library import Lesson, Library, Status, line_tokens, new_handle
from experiences.learning.lessons.operation_answers import Operation
from experiences.learning.lessons.prompt_injection import suspicion
from experiences.learning.lessons.removed import NOTHING, RemovedLessons
from experiences.learning.lessons.similarity import ALIKE, most_alike

FULL: Final = "the library is full, and none of its lessons is known to be of less use"
REWRITTEN: Final = 0.5  # two texts that are so much alike are one that was written again
UNDRAFTED: Final = "it matches no lesson that was drafted from attempts"
DELETED_ITEMS, DELETED_TOKENS = 0.2, 0.3  # a batch that takes out a larger share is a rewrite, and refused


@dataclass(frozen=True, slots=True)
class Lineage:
    """Origin of an operation: the provenance of its lesson, and texts that the lesson may not repeat. ``drafts`` are
    the lessons that comparisons drafted: an added lesson has to be one of them, in any words; None: any lesson.
    ``kind`` is that of an added lesson."""

    task: str = ""
    group: str = ""
    epoch: int = 1
    domain: str = ""
    taught_by: tuple[str, ...] = ()
    ground_truth: float | None = None
    relative_rank: float | None = None
    tool_stats: tuple[Mapping[str, Any], ...] = ()
    sources: tuple[Source, ...] = ()
    drafts: tuple[str, ...] | None = None
    kind: LessonKind = "experience"


def is_drafted(text: str, drafts: Sequence[str] | None) -> bool:
    """Whether a text is one of the drafts, perhaps written again. Any text is where ``drafts`` is None."""
    return drafts is None or most_alike(text, drafts)[1] >= REWRITTEN


@dataclass(frozen=True, slots=True)
class OperationRules:
    """Limits of a model's operations. ``may_delete`` False leaves removal to evidence. Lessons in ``protected`` have
    been measured, and no opinion changes their texts. ``evictable`` gives way, in its order, when the library is full.
    ``functions``: names that no lesson may order a call of. ``memory``: lessons that earlier jobs removed."""

    max_words: int = MAX_WORDS
    max_items: int = 60
    max_tokens: int = 2500
    max_new: int = 8
    may_delete: bool = True
    protected: Collection[str] = ()
    evictable: Sequence[str] = ()
    functions: frozenset[str] = frozenset()
    memory: RemovedLessons = NOTHING

    def distrust(self, text: str) -> str:
        """The reason why a text needs a person's release before it enters a context; "" if it needs none."""
        return suspicion(text, self.functions)


@dataclass(frozen=True, slots=True)
class Receipt:
    """Outcome of one operation. ``handle`` is the lesson that it added, changed or removed."""

    op: str
    taken: bool
    why: str
    handle: str = ""
    text: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {"op": self.op, "taken": self.taken, "why": self.why, "handle": self.handle, "text": self.text}


@dataclass
class Applied:
    """A library after a batch of operations, and what became of each."""

    library: Library
    receipts: list[Receipt] = field(default_factory=list)

    @property
    def refused(self) -> list[Receipt]:
        return [receipt for receipt in self.receipts if not receipt.taken and receipt.op != "NONE"]


def apply_operations(
    library: Library, proposed: Sequence[tuple[Operation, Lineage]], rules: OperationRules, *, origin: str
) -> Applied:
    """The library after the operations, in their order, each against what the ones before it left.

    ``origin`` names where they come from (run and iteration), and so the handles of new lessons.
    """
    batch = _LibraryBatch(library, rules, origin)
    if why := _rewrite(library, [operation for operation, _ in proposed], rules):
        batch.no_deletes = why
    for number, (operation, lineage) in enumerate(proposed):
        batch.take(operation, lineage, number)
    return Applied(batch.library, batch.receipts)


class _Seen(NamedTuple):
    """``lesson`` of the library says a text already; None: one of an earlier job did. ``why`` the text is not taken."""

    why: str
    lesson: Lesson | None = None

    @property
    def handle(self) -> str:
        return "" if self.lesson is None else self.lesson.handle


class _LibraryBatch:
    def __init__(self, library: Library, rules: OperationRules, origin: str) -> None:
        self.library, self.rules, self.origin = library, rules, origin
        self.receipts: list[Receipt] = []
        self.no_deletes = "" if rules.may_delete else "whether a lesson goes is left to what it is measured to do"
        self.added = 0

    def take(self, operation: Operation, lineage: Lineage, number: int) -> None:
        step = {"ADD": self._add, "UPDATE": self._update, "DELETE": self._delete, "MERGE": self._merge}
        if operation.op == "NONE":
            self._say(operation, False, "nothing to change")
            return
        step[operation.op](operation, lineage, number)

    def _add(self, operation: Operation, lineage: Lineage, number: int) -> None:
        text = " ".join(operation.text.split())
        if fault := self._fault(text, lineage):
            self._say(operation, False, fault)
        elif not is_drafted(text, lineage.drafts):
            self._say(operation, False, UNDRAFTED)
        elif seen := self._seen(text):
            self._again(operation, seen, lineage)
        elif self.added >= self.rules.max_new:
            self._say(operation, False, f"{self.rules.max_new} new lessons at once are enough")
        elif not self._has_room(text):
            self._say(operation, False, FULL)
        else:
            self._put(operation, self._new(text, operation, lineage, number))

    def _update(self, operation: Operation, lineage: Lineage, number: int) -> None:
        lesson, text = self._target(operation), " ".join(operation.text.split())
        if lesson is None:
            return
        if fault := lesson_fault(text, lineage.sources, max_words=self.rules.max_words) or self.rules.distrust(text):
            self._say(operation, False, fault, lesson.handle)
        elif text == lesson.text:
            self._say(operation, False, "it says so already", lesson.handle)
        elif seen := self._seen(text, besides=[lesson]):
            self._say(operation, False, seen.why, lesson.handle)
        elif not self._fits(text, without=[lesson.handle]):
            self._say(operation, False, FULL, lesson.handle)
        else:
            changed = replace(
                lesson,
                text=text,
                version=lesson.version + 1,
                why=operation.reason[:500],
                taught_by=_joined(lesson.taught_by, lineage.taught_by),
            )
            self.library = self.library.having(changed)
            self._say(operation, True, operation.reason, lesson.handle)

    def _delete(self, operation: Operation, lineage: Lineage, number: int) -> None:
        lesson = self._target(operation)
        if lesson is None:
            return
        # A lesson that came back counts once in the share that a batch may take out.
        gone = any(one.taken and one.op == "DELETE" and one.handle == lesson.handle for one in self.receipts)
        if why := self.no_deletes or ("this batch took it out before" if gone else ""):
            self._say(operation, False, why, lesson.handle)
            return
        self.library = self.library.moved([lesson.handle], "pruned")
        self._say(operation, True, operation.reason, lesson.handle)

    def _merge(self, operation: Operation, lineage: Lineage, number: int) -> None:
        parents = [lesson for one in dict.fromkeys(map(_id, operation.ids)) if (lesson := self.library.get(one))]
        unknown = [one for one in operation.ids if self.library.get(_id(one)) is None]
        text = " ".join(operation.text.split())
        if unknown or len(parents) < 2:
            self._say(operation, False, f"unknown: {', '.join(unknown)}" if unknown else "a merge needs two lessons")
            return
        held = [one.handle for one in parents if not one.live or one.kind != "experience" or self._measured(one)]
        if held or self.no_deletes:
            self._say(operation, False, f"{held[0]} can't be merged" if held else self.no_deletes)
        elif fault := lesson_fault(text, lineage.sources, max_words=self.rules.max_words) or self.rules.distrust(text):
            self._say(operation, False, fault)
        elif seen := self._seen(text, besides=[one for one in self.library if not one.live or one in parents]):
            self._say(operation, False, seen.why, seen.handle)
        elif not self._fits(text, without=[parent.handle for parent in parents]):
            self._say(operation, False, FULL)
        else:
            taught = _joined(*(parent.taught_by for parent in parents), lineage.taught_by)
            merged = replace(
                self._new(text, operation, lineage, number),
                parents=tuple(parent.handle for parent in parents),
                taught_by=taught,
            )
            self.library = self.library.moved([parent.handle for parent in parents], "pruned")
            self._put(operation, merged)

    # -- shared ----------------------------------------------------------------------------------------------------

    def _target(self, operation: Operation) -> Lesson | None:
        """The lesson that an operation names; None, and a receipt, where it may not be changed."""
        lesson = self.library.get(_id(operation.id))
        why = ""
        if lesson is None:
            why = f"there is no lesson {operation.id[:40]!r}"
        elif not lesson.live:
            why = f"it is {lesson.status}"
        elif lesson.kind == "section":
            why = "it is a section of the playbook, which has its own way of being changed"
        elif lesson.kind == "exemplar":
            why = "it is a piece of an attempt, which stays as it was said"
        elif self._measured(lesson):
            why = "it has been measured: what it does decides"
        if why:
            self._say(operation, False, why, "" if lesson is None else lesson.handle)
            return None
        return lesson

    def _fault(self, text: str, lineage: Lineage) -> str:
        if lineage.kind == "exemplar":
            return exemplar_fault(text, lineage.sources, self.rules.max_words)
        return lesson_fault(text, lineage.sources, max_words=self.rules.max_words)

    def _measured(self, lesson: Lesson) -> bool:
        return lesson.handle in self.rules.protected

    def _seen(self, text: str, besides: Collection[Lesson] = ()) -> _Seen | None:
        """A lesson with nearly the same words: one of the library other than ``besides``, also a removed one, or else
        one that an earlier job or a person removed."""
        lessons = self.library.lessons
        at, found = most_alike(text, [lesson.text for lesson in lessons])
        if found >= ALIKE and lessons[at] not in besides:
            return _Seen(f"it would be the same as {lessons[at].handle}", lessons[at])
        why = self.rules.memory.why_not(text)
        return _Seen(why) if why else None

    def _again(self, operation: Operation, seen: _Seen, lineage: Lineage) -> None:
        """Notes that a known lesson was taught again. A lesson removed before this run stays removed. Where nothing was
        measured (``may_delete``), a lesson removed by opinion or with its epoch becomes a candidate again; one removed
        by evidence stays removed."""
        known = seen.lesson
        if known is None:
            self._say(operation, False, seen.why)
            return
        taught = _joined(known.taught_by, lineage.taught_by)
        back = known.status == "pruned" and self.rules.may_delete and self._fits(known.text)
        status: Status = "proposed" if back else known.status
        self.library = self.library.having(replace(known, taught_by=taught, status=status))
        why = "it was taken out, and is tried again" if back else f"it is known as {known.handle}"
        self._say(operation, back, why, known.handle)

    def _new(self, text: str, operation: Operation, lineage: Lineage, number: int) -> Lesson:
        why = self.rules.distrust(text)
        return Lesson(
            handle=new_handle(self.origin, number),
            text=text,
            kind=lineage.kind,
            status="quarantined" if why else "proposed",
            domain=lineage.domain,
            why=why or operation.reason[:500],
            task=lineage.task[:200],
            group=lineage.group,
            epoch=lineage.epoch,
            taught_by=lineage.taught_by,
            ground_truth=lineage.ground_truth,
            relative_rank=lineage.relative_rank,
            tool_stats=lineage.tool_stats,
        )

    def _put(self, operation: Operation, lesson: Lesson) -> None:
        self.library = self.library.having(lesson)
        self.added += 1
        if lesson.status == "quarantined":
            self._say(operation, False, f"in quarantine: {lesson.why}", lesson.handle)
        else:
            self._say(operation, True, operation.reason, lesson.handle)

    def _has_room(self, text: str) -> bool:
        """True if one more lesson fits, after evictable ones have left."""
        for handle in self.rules.evictable:
            if self._fits(text):
                return True
            lesson = self.library.get(handle)
            if lesson is not None and lesson.live and lesson.kind != "section":
                self.library = self.library.moved([handle], "pruned")
                self.receipts.append(Receipt("EVICT", True, "the library was full", handle, lesson.text))
        return self._fits(text)

    def _fits(self, text: str, without: Collection[str] = ()) -> bool:
        """Whether the library has room for a text, once ``without`` are gone. Sections have room of their own."""
        held = [lesson for lesson in self.library.live if lesson.kind != "section" and lesson.handle not in without]
        tokens = sum(lesson.tokens for lesson in held) + line_tokens(text)
        return len(held) < self.rules.max_items and tokens <= self.rules.max_tokens

    def _say(self, operation: Operation, taken: bool, why: str, handle: str = "") -> None:
        self.receipts.append(Receipt(operation.op, taken, why[:300], handle, operation.text[:400]))


def _rewrite(library: Library, operations: Sequence[Operation], rules: OperationRules) -> str:
    """Why the batch's removals are refused as a whole: it would be a rewrite (context collapse, arXiv 2510.04618)."""
    gone = library.chosen(_id(operation.id) for operation in operations if operation.op == "DELETE")
    joined = [library.chosen(map(_id, operation.ids)) for operation in operations if operation.op == "MERGE"]
    gone += [lesson for group in joined for lesson in group[1:]]  # a merge leaves one in the place of several
    if not gone or not rules.may_delete:
        return ""
    items, tokens = len(library.live), library.tokens
    too_many = len(gone) > max(1, DELETED_ITEMS * items)
    too_much = sum(lesson.tokens for lesson in gone) > max(gone[0].tokens, DELETED_TOKENS * tokens)
    return f"the batch would take out {len(gone)} of {items} lessons at once" if too_many or too_much else ""


def _id(written: str) -> str:
    """An id as models write it: with brackets, quotes or spaces around."""
    return written.strip().strip("[]()\"'` ").lower() if written else ""


def _joined(*lists: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one for some in lists for one in some))[:64]
