"""Lessons as text in an agent's prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiences.learning.lessons.library import Lesson

HEAD: Final = "What was learned from earlier work of this kind. Take what fits the task:"


def told(lessons: Sequence[Lesson]) -> str:
    """The lessons as a list, in their order; "" for none. They stand without their names, which no agent needs."""
    if not lessons:
        return ""
    return "\n".join([HEAD, *(f"- {' '.join(lesson.text.split())}" for lesson in lessons)])


def listed(lessons: Sequence[Lesson]) -> str:
    """The lessons with their names, for the model that proposes changes."""
    return "\n".join(f"[{lesson.handle}] {' '.join(lesson.text.split())}" for lesson in lessons) or "(none yet)"
