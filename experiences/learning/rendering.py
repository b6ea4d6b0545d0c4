"""Rendering of lessons and playbook items into one context, for jobs, evaluations and production alike.

Items of a playbook are listed under the title of their category with their ids, which an agent may report as used.
Lessons follow as a list without names, which no agent needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from experiences.learning.lessons.library import Lesson
from experiences.learning.playbooks.items import TITLES, PlaybookItem, number

HEAD: Final = "What was learned from earlier work of this kind. Take what fits the task:"

Item = tuple[str, str, str]  # category, id, content


def item_lesson(item: PlaybookItem) -> Lesson:
    """An item of a playbook as a context holds it."""
    return Lesson(item.id, item.content, kind="section", status="active", category=item.category)


def context_of(lessons: Iterable[Lesson]) -> str:
    """The text of lessons, in their order, among them items of a playbook (kind "section"), in theirs; "" for none."""
    items: list[Item] = []
    lines = []
    for lesson in lessons:
        if lesson.category in TITLES:
            items.append((lesson.category, lesson.handle, lesson.text))
        else:
            lines.append(f"- {' '.join(lesson.text.split())}")
    parts = [playbook] if (playbook := _playbook(items)) else []
    return "\n\n".join([*parts, "\n".join([HEAD, *lines])] if lines else parts)


def playbook_context(items: Iterable[PlaybookItem]) -> str:
    """The same of a playbook's items alone. It depends on the items and not on their counts, so that one version has
    one text."""
    return _playbook([(item.category, item.id, item.content) for item in items])


def _playbook(items: list[Item]) -> str:
    items.sort(key=lambda one: number(one[1]))
    parts = []
    for category, title in TITLES.items():
        lines = [f"- [{id}] {_indented(content)}" for of, id, content in items if of == category]
        if lines:
            parts.append("\n".join([f"## {title}", *lines]))
    return "\n\n".join(parts)


def _indented(content: str) -> str:
    """An item of several lines stays one item."""
    return "\n  ".join(line for line in content.splitlines() if line.strip())
