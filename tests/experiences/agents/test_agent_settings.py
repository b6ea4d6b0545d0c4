"""An agent's own settings: off until a person switches them on, and never beyond what the site allows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agentcore_site.audit.models import AuditEvent
from agentcore_site.lib.errors import Conflict, Insufficient, Invalid
from agentcore_site.tenancy.actors import Actor
from budgets.services import price_set
from experiences.agents.evolution_settings import evolution_settings
from experiences.agents.services.agents import agent_create, agent_update
from experiences.models import Agent, DeltaState, Playbook
from experiences.playbooks.services.evolutions import evolution_queue
from experiences.playbooks.services.playbooks import playbook_create, playbook_delete, playbook_edit
from tests.support.llm_server import ModelServer
from tests.support.playbooks import PRICE, TEXTS, add, evolutions, lived, model_agent, playbook_of, suggesting
from tests.support.running import run_to_end

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    deltas = suggesting(add(TEXTS[0], confidence=0.75))
    with ModelServer(brain=lambda _: deltas, prices={"small": PRICE, "cheap": PRICE}) as running:
        yield running


@pytest.fixture
def clerk(adam: Any, server: ModelServer) -> Agent:
    return model_agent(Actor(adam), server)


def test_a_new_agent_neither_evolves_nor_runs_in_groups(operator: Actor, clerk: Agent) -> None:
    assert (clerk.evolves, clerk.grouped_execution, clerk.reward) == (False, False, "")
    playbook = playbook_create(operator, agent=clerk)
    lived(operator, clerk, 12)
    assert evolutions() == []
    with pytest.raises(Conflict, match="does not evolve"):
        evolution_queue(operator, playbook)
    agent_update(operator, clerk, evolves=True)
    lived(operator, clerk, 1)
    assert len(evolutions()) == 1


def test_a_change_leaves_what_was_written_beside_it(operator: Actor, agent: Agent) -> None:
    """Training notes whether a context arrives while a person has the form open."""
    read_before = Agent.objects.get(pk=agent.pk)
    Agent.objects.filter(pk=agent.pk).update(context_arrives=False, description="By a colleague.")
    agent_update(operator, read_before, name="Renamed", tools=["calculator"])
    found = Agent.objects.get(pk=agent.pk)
    assert (found.name, found.tools, found.description) == ("Renamed", ["calculator"], "By a colleague.")
    assert found.context_arrives is False and found.updated_at > agent.updated_at


def test_an_agent_that_evolves_has_a_playbook_from_the_start(operator: Actor, clerk: Agent, adam: Any) -> None:
    values = {"runtime": "llm", "environment": "dataset", "endpoint": clerk.endpoint}
    born = agent_create(Actor(adam), name="Evolving", evolves=True, **values)
    assert Playbook.objects.get(agent=born).section_count == 0
    assert not Playbook.objects.filter(agent=clerk).exists()
    agent_update(operator, clerk, evolves=True)
    lived(operator, clerk, 10)  # no person made a playbook, and the tenth execution lets it evolve
    assert [one.evolution.agent_id for one in evolutions()] == [clerk.pk]
    section = {"category": "strategies", "content": TEXTS[0]}
    taken = playbook_create(operator, agent=born, initial_sections=[section])
    assert (taken.version, taken.section_count) == (2, 1) and TEXTS[0] in taken.context
    with pytest.raises(Conflict, match="has a playbook already"):
        playbook_create(operator, agent=born)


def test_a_playbook_that_was_deleted_comes_back_only_when_evolution_is_switched_on_again(
    operator: Actor, clerk: Agent
) -> None:
    agent_update(operator, clerk, evolves=True)
    playbook_delete(operator, Playbook.objects.get(agent=clerk))
    agent_update(operator, clerk, name="Renamed", evolves=True)
    assert not Playbook.objects.filter(agent=clerk).exists()
    agent_update(operator, clerk, evolves=False)
    agent_update(operator, clerk, evolves=True)
    assert Playbook.objects.filter(agent=clerk).count() == 1


def test_an_agent_without_settings_has_those_of_the_site(agent: Agent, settings: Any) -> None:
    found = evolution_settings(agent)
    assert (found.min_confidence, found.max_sections, found.frequency) == (0.7, 20, 10)
    settings.ACE_DELTA_MODEL, settings.ACE_MONTHLY_BUDGET_USD = "cheap", 7.0
    assert (evolution_settings(agent).delta_model, evolution_settings(agent).monthly_budget_usd) == ("cheap", 7.0)


def test_its_own_settings_decide_when_and_by_what_model_it_evolves(
    operator: Actor, clerk: Agent, adam: Any, server: ModelServer, settings: Any
) -> None:
    settings.TRUSTED_SOURCES = frozenset({"executions"})  # so that confidence alone decides
    price_set(Actor(adam), model="cheap", organization=clerk.organization, input_micros=1, output_micros=1)
    agent_update(operator, clerk, ace_evolution_frequency=3, ace_delta_model="cheap", ace_min_confidence=0.9)
    playbook = playbook_of(operator, clerk)
    lived(operator, clerk, 3)
    (job,) = evolutions()
    assert run_to_end(job).status == "completed" and server.requests[-1].model == "cheap"
    (delta,) = playbook.deltas.all()
    assert delta.state == DeltaState.REVIEW  # 0.75 would do for the site
    playbook.refresh_from_db()
    assert playbook.version == 1


def test_its_own_limits_hold(operator: Actor, clerk: Agent) -> None:
    agent_update(operator, clerk, ace_max_sections=2, ace_monthly_budget_usd=0.0)
    playbook = playbook_of(operator, clerk)  # two items
    with pytest.raises(Conflict, match="has its 2 sections"):
        playbook_edit(operator, playbook, type="add", category="learnings", content=TEXTS[3])
    with pytest.raises(Insufficient, match=r"of \$0\.00 is left"):
        evolution_queue(operator, playbook)


def test_the_site_is_the_limit_also_when_it_becomes_stricter_later(
    operator: Actor, agent: Agent, settings: Any
) -> None:
    for name, value, limit in (
        ("ace_max_sections", 21, "ACE_MAX_SECTIONS"),
        ("ace_min_confidence", 0.6, "ACE_MIN_CONFIDENCE"),
        ("ace_monthly_budget_usd", 100.5, "ACE_MONTHLY_BUDGET_USD"),
        ("ace_evolution_frequency", 0, ""),
        ("ace_reflection_rounds", 6, ""),
    ):
        with pytest.raises(Invalid, match=f"{name} must be between") as refused:
            agent_update(operator, Agent.objects.get(pk=agent.pk), **{name: value})
        assert limit in refused.value.message and list(refused.value.fields) == [name]
    agent_update(operator, agent, ace_max_sections=15, ace_min_confidence=0.8, ace_monthly_budget_usd=50)
    settings.ACE_MAX_SECTIONS, settings.ACE_MIN_CONFIDENCE, settings.ACE_MONTHLY_BUDGET_USD = 5, 0.95, 10
    found = evolution_settings(agent)
    assert (found.max_sections, found.min_confidence, found.monthly_budget_usd) == (5, 0.95, 10)
    settings.ACE_ENABLED = False
    agent.evolves = True
    assert not evolution_settings(agent).enabled


@pytest.mark.parametrize(
    ("values", "field", "message"),
    [
        ({"reward": "shapd"}, "reward", "did you mean shaped|Known"),
        ({"reward": "composite", "reward_options": {"speed": 1}}, "reward_options.speed", "speed"),
        ({"reward_options": {"speed": 1}}, "reward", "Name the reward"),
        ({"reward": "judge", "reward_options": {"rubric": "Is it kind?"}}, "reward", "there is none to ask"),
    ],
)
def test_a_reward_that_could_not_pay_is_refused(
    operator: Actor, values: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(Invalid, match=message) as refused:
        agent_create(operator, name="Paid", **values)
    assert list(refused.value.fields) == [field]


def test_each_switch_is_in_the_audit_log(operator: Actor, agent: Agent) -> None:
    agent_update(operator, agent, grouped_execution=True, evolves=True, reward="outcome")
    event = AuditEvent.objects.filter(action="agent.changed").latest("at")
    assert event.before == {"grouped_execution": False, "evolves": False, "reward": ""}
    assert event.after == {"grouped_execution": True, "evolves": True, "reward": "outcome"}
