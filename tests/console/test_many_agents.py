"""Pages of an organisation with more agents than a list to choose from can hold."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore_site.tenancy.models import Organization
from experiences.models.agent_lookup import OFFERED
from tests.console.conftest import SignIn
from tests.factories import AgentFactory

pytestmark = pytest.mark.django_db
MORE = 3


@pytest.fixture
def last(acme: Organization) -> str:
    """The id of the agent that comes last by name."""
    made = [AgentFactory(organization=acme, name=f"Agent {n:03}", slug=f"agent-{n}") for n in range(OFFERED + MORE)]
    return str(made[-1].pk)


def test_a_launch_offers_the_first_agents_the_chosen_one_and_says_how_many_more_there_are(
    signed_in: SignIn, olivia: Any, last: str
) -> None:
    client = signed_in(olivia)
    page = client.get("/launch/").content.decode()
    assert "Agent 000" in page and last not in page
    assert page.count("<option value=") >= OFFERED and f"There are {MORE} more" in page
    chosen = client.get(f"/launch/?agent={last}").content.decode()
    assert f'<option value="{last}" selected>' in chosen and f"There are {MORE - 1} more" in chosen


def test_a_rule_is_set_for_an_agent_that_its_form_does_not_list(
    signed_in: SignIn, adam: Any, last: str, acme: Organization
) -> None:
    client = signed_in(adam)
    assert last not in client.get("/archives/").content.decode()
    answer = client.post(f"/archives/{acme.pk}/rule/", {"agent": last, "keep_days": "12"})
    assert answer.status_code == 302
    assert f"Agent {OFFERED + MORE - 1}" in client.get("/archives/").content.decode()
