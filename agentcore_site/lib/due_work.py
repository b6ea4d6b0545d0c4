"""Questions that beat asks before it sends a scheduled task: one without work costs a statement and no message."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from celery import shared_task

from agentcore_site.lib.database import TROUBLE
from agentcore_site.lib.row_scope import everything

log = logging.getLogger(__name__)
_questions: Final[dict[str, Callable[[], bool]]] = {}


def task_with_work(name: str, work_waits: Callable[[], bool]) -> Any:
    """A ``shared_task`` that beat sends only while ``work_waits()`` is true, and seldom otherwise
    (``agentcore_site.jobs.beat_lease.UNASKED``). The question costs less than a message: statements that an index
    answers."""
    _questions[name] = work_waits
    return shared_task(name=name)


def has_work(task: str) -> bool:
    """True also for tasks without a question, and where the question fails: the task then meets the same error, which
    must not end beat."""
    question = _questions.get(task)
    if question is None:
        return True
    try:
        with everything():
            return question()
    except TROUBLE:
        return True
    except Exception:
        log.exception("beat can't see whether %s has work", task)
        return True
