"""Lessons that were taken out before, by a person or by a measurement: they are not tried again.

A run's own library knows its own lessons. This is about those of earlier jobs, so that one lesson is not measured twice
and a person does not have to take it out twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from experiences.learning.lessons.similarity import ALIKE, most_alike

MOST: Final = 500  # the latest of them


@dataclass(frozen=True, slots=True)
class TakenOut:
    """A lesson's text, and ``why`` it is not tried: a clause that names who took it out."""

    text: str
    why: str


@dataclass(frozen=True, slots=True)
class RemovedLessons:
    """Lessons of earlier jobs that were taken out, or that wait for a person."""

    lessons: Sequence[TakenOut] = ()

    def why_not(self, text: str) -> str:
        """Why this text, or one in nearly the same words, is not tried; "" if nothing is known against it."""
        at, found = most_alike(text, [lesson.text for lesson in self.lessons])
        return self.lessons[at].why if found >= ALIKE else ""


NOTHING: Final = RemovedLessons()
