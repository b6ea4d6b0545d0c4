"""Lessons and the library that holds them: values that never change. A change makes another library."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal, Self

from budgets.llm.tokens import middle

Status = Literal["proposed", "active", "pruned", "quarantined"]
Kind = Literal["experience", "exemplar", "section"]
MARK_TOKENS: Final = 2  # of a line's dash
NAME_TOKENS: Final = 3  # of an item's name
LIVE: Final = frozenset({"proposed", "active"})


@dataclass(frozen=True)
class Lesson:
    """One lesson that may be part of an agent's context.

    ``handle`` is its permanent name: it never changes and is never reused. ``version`` rises when the text changes,
    and earlier measurements do not apply to the new text. ``kind`` is "section" for a section of a playbook:
    it is selected like an experience, and only its owner changes its text; "exemplar" for a piece of an attempt, which
    stays as it was said. ``category`` is that of a section. ``taught_by`` names the rollouts
    ("iteration/query/rollout") that it was learned from, ``group`` is "iteration/query".
    """

    handle: str
    text: str
    kind: Kind = "experience"
    version: int = 1
    status: Status = "proposed"
    category: str = ""
    domain: str = ""
    why: str = ""
    task: str = ""
    group: str = ""
    epoch: int = 1
    taught_by: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    ground_truth: float | None = None
    relative_rank: float | None = None
    tool_stats: tuple[Mapping[str, Any], ...] = ()

    @cached_property
    def tokens(self) -> int:
        """About how many tokens a prompt grows by with it."""
        return line_tokens(self.text) + (NAME_TOKENS if self.category else 0)

    @property
    def live(self) -> bool:
        return self.status in LIVE

    def as_dict(self) -> dict[str, Any]:
        """JSON values, complete."""
        return asdict(self)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Restores the value of ``as_dict``, also after a round trip through JSON."""
        listed = {name: tuple(values[name]) for name in ("taught_by", "parents", "tool_stats") if name in values}
        return cls(**{**values, **listed})


@dataclass(frozen=True)
class Library:
    """Lessons in the order in which they came. Those that were taken out keep their place, so that nothing that was
    measured is lost and they can come back."""

    lessons: tuple[Lesson, ...] = ()

    def __iter__(self) -> Iterator[Lesson]:
        return iter(self.lessons)

    def __len__(self) -> int:
        return len(self.lessons)

    @cached_property
    def position(self) -> Mapping[str, int]:
        return {lesson.handle: at for at, lesson in enumerate(self.lessons)}

    @cached_property
    def live(self) -> tuple[Lesson, ...]:
        return tuple(lesson for lesson in self.lessons if lesson.live)

    @property
    def tokens(self) -> int:
        """Tokens of all live lessons: what a prompt with all of them would cost."""
        return sum(lesson.tokens for lesson in self.live)

    def get(self, handle: str) -> Lesson | None:
        at = self.position.get(handle)
        return None if at is None else self.lessons[at]

    def chosen(self, handles: Iterable[str]) -> list[Lesson]:
        """The lessons of these names that are live, in the library's order."""
        wanted = set(handles)
        return [lesson for lesson in self.live if lesson.handle in wanted]

    def having(self, lesson: Lesson) -> Library:
        """The library with this lesson, in the place of the one with its handle, else at the end."""
        at = self.position.get(lesson.handle)
        if at is None:
            return Library((*self.lessons, lesson))
        return Library((*self.lessons[:at], lesson, *self.lessons[at + 1 :]))

    def moved(self, handles: Iterable[str], status: Status) -> Library:
        """The library with another status for these lessons."""
        wanted = set(handles)
        return Library(
            tuple(replace(lesson, status=status) if lesson.handle in wanted else lesson for lesson in self.lessons)
        )

    def as_list(self) -> list[dict[str, Any]]:
        return [lesson.as_dict() for lesson in self.lessons]

    @classmethod
    def of(cls, values: Sequence[Mapping[str, Any]]) -> Library:
        return cls(tuple(Lesson.of(value) for value in values))


def line_tokens(text: str) -> int:
    """About how many tokens a lesson's line has, with its mark."""
    return middle(text) + MARK_TOKENS


def new_handle(*where: object) -> str:
    """A name drawn from where the lesson came from: the same origin gives the same name, so that work that is done
    again after a crash finds its own lessons."""
    return "x" + hashlib.blake2b("/".join(map(str, where)).encode(), digest_size=5).hexdigest()
