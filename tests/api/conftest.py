"""Callers of the API, and a run that has something to show."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import cache

from agentcore_site.tenancy.actors import Actor
from experiences.models import Agent
from tests.selection import is_fast
from tests.support.callers import Caller
from tests.support.rows import lived_run
from training.models import TrainingRun


@pytest.fixture(autouse=True)
def fresh_limits(request: pytest.FixtureRequest) -> None:
    """The requests of earlier tests don't count against the limits of this one."""
    if not is_fast(request.node):
        cache.clear()


@pytest.fixture
def api(olivia: Any) -> Caller:
    """Olivia, the operator."""
    return Caller(olivia)


@pytest.fixture
def run(operator: Actor, agent: Agent) -> TrainingRun:
    return lived_run(operator, agent)
