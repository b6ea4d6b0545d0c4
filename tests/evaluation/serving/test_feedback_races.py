"""Feedback that arrives while the sweep is at its answer."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection, transaction

from agentcore_site.tenancy.actors import Actor
from evaluation.serving.feedback.scoring import traces_score
from evaluation.serving.feedback.services import feedback_give
from evaluation.serving.models import Feedback
from experiences.models import Agent
from tests.evaluation.serving.test_feedback import answered, reloaded

pytestmark = pytest.mark.django_db(transaction=True)


def beside(work: Any) -> threading.Thread:
    def run() -> None:
        try:
            work()
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_feedback_is_counted_though_the_sweep_read_before_the_feedback_and_writes_afterwards(
    operator: Actor, agent: Agent
) -> None:
    """The sweep holds the answer's row, without a reward, and has read that nothing was said."""
    trace = answered(agent)
    with transaction.atomic():
        traces_score([trace.pk])
        other = beside(lambda: feedback_give(operator, trace, metric="thumbs", value="up"))
        other.join(timeout=0.5)
        assert other.is_alive(), "it waits for the row"
    other.join(timeout=30)
    assert reloaded(trace).components["raw"]["feedback"] == 1


def test_two_clicks_at_once_are_one_opinion(operator: Actor, agent: Agent) -> None:
    trace = answered(agent)
    clicks = [beside(lambda: feedback_give(operator, trace, metric="thumbs", value="up")) for _ in range(6)]
    for one in clicks:
        one.join(timeout=30)
    assert Feedback.objects.filter(trace=trace).count() == 1
