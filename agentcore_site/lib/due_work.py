"""Whether a scheduled task has work: beat asks before it sends a message, so that an idle site sends few."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from celery import shared_task

from agentcore_site.lib.database import TROUBLE
from agentcore_site.lib.row_scope import everything

_questions: Final[dict[str, Callable[[], bool]]] = {}


def task_with_work(name: str, work_waits: Callable[[], bool]) -> Any:
    """A ``shared_task`` that beat sends only while ``work_waits()`` is true, and seldom otherwise
    (``agentcore_site.jobs.beat_lease.UNASKED``). The question costs less than a message: statements that an index
    answers."""
    _questions[name] = work_waits
    return shared_task(name=name)


def has_work(task: str) -> bool:
    """True also for tasks without a question, and where the database can't answer."""
    question = _questions.get(task)
    if question is None:
        return True
    try:
        with everything():
            return question()
    except TROUBLE:
        return True
