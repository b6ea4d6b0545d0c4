"""An agent's own settings: off until a person switches them on, and never beyond what the site allows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from agentcore_site import env
from agentcore_site.audit.models import AuditEvent
from agentcore_site.lib.errors import Conflict, Forbidden, Insufficient, Invalid
from agentcore_site.tenancy.actors import Actor
from budgets.services import price_set
from experiences.agents.evolution_settings import evolution_settings
from experiences.agents.services.agents import agent_create, agent_update
from experiences.learning.lessons.library import Lesson
from experiences.learning.rendering import HEAD
from experiences.models import Agent, DeltaState, Playbook
from experiences.playbooks.deployed import DeployedContext
from experiences.playbooks.selectors import compiled
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


def test_a_change_leaves_settings_that_another_person_wrote_meanwhile(operator: Actor, agent: Agent) -> None:
    """Training notes whether a context arrives while a person has the form open."""
    read_before = Agent.objects.get(pk=agent.pk)
    Agent.objects.filter(pk=agent.pk).update(context_arrives=False, description="By a colleague.")
    agent_update(operator, read_before, name="Renamed", tools=["calculator"])
    response = Agent.objects.get(pk=agent.pk)
    assert (response.name, response.tools, response.description) == ("Renamed", ["calculator"], "By a colleague.")
    assert response.context_arrives is False and response.updated_at > agent.updated_at


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
    assert (taken.version, taken.section_count) == (1, 1) and TEXTS[0] in taken.context
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
    result = evolution_settings(agent)
    assert (result.min_confidence, result.max_sections, result.frequency) == (0.7, 20, 10)
    settings.ACE_DELTA_MODEL, settings.ACE_MONTHLY_BUDGET_USD = "cheap", 7.0
    assert (evolution_settings(agent).delta_model, evolution_settings(agent).monthly_budget_usd) == ("cheap", 7.0)


def test_an_agents_own_settings_decide_when_and_by_what_model_its_playbook_evolves(
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
    agent_update(operator, clerk, ace_monthly_budget_usd=0.0)
    playbook = playbook_of(operator, clerk)  # two items
    with pytest.raises(Insufficient, match=r"of \$0\.00 is left"):
        evolution_queue(operator, playbook)
    agent_update(operator, clerk, ace_max_sections=2)
    with pytest.raises(Conflict, match="has its 2 sections"):
        playbook_edit(operator, playbook, type="add", category="learnings", content=TEXTS[3])


def test_a_sites_limit_that_becomes_stricter_later_applies_as_well(
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
    result = evolution_settings(agent)
    assert (result.max_sections, result.min_confidence, result.monthly_budget_usd) == (5, 0.95, 10)
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


# -- the way of its playbook to services -------------------------------------------------------------------------------


def test_who_may_deploy_chooses_how_a_playbook_reaches_services(
    operator: Actor, dan: Any, agent: Agent, adam: Any
) -> None:
    developer, address = Actor(dan), f"/agents/{agent.pk}/edit/"
    for ask in (
        lambda: agent_create(developer, name="New", ace_release="direct"),
        lambda: agent_update(developer, Agent.objects.get(pk=agent.pk), ace_release="direct"),
    ):
        with pytest.raises(Forbidden, match="deploy releases"):
            ask()
    agent_update(operator, agent, ace_release="direct")
    agent_update(developer, Agent.objects.get(pk=agent.pk), ace_release="direct", name="Renamed")
    made = agent_create(operator, name="New", ace_release="reviewed")
    event = AuditEvent.objects.get(action="agent.created", target_id=str(made.pk))
    assert event.after == {"slug": "new", "ace_release": "reviewed"}
    for person, disabled in ((dan, True), (adam, False)):
        browser = Client()
        browser.force_login(person)
        field = browser.get(address).context["form"].fields["ace_release"]
        assert field.disabled is disabled
    browser.force_login(adam)
    admin_form = browser.get(f"/admin/experiences/agent/{agent.pk}/change/").content.decode()
    assert 'name="ace_release"' in admin_form
    assert "each new version at once" in browser.get(f"/agents/{agent.pk}/").content.decode()


def test_the_site_chooses_for_playbooks_that_services_make(operator: Actor, agent: Agent, settings: Any) -> None:
    by_a_person = playbook_create(operator, agent=agent)
    assert by_a_person.agent.ace_release == "" and not agent.serves_directly
    playbook_delete(operator, by_a_person)
    settings.ACE_RELEASE = "reviewed"
    assert playbook_create(operator, agent=agent, for_service=True).agent.ace_release == "reviewed"
    playbook_delete(operator, Playbook.objects.get())
    settings.ACE_RELEASE = "direct"  # a choice stays
    assert playbook_create(operator, agent=agent, for_service=True).agent.ace_release == "reviewed"


def test_a_way_to_services_that_there_is_not_is_refused(operator: Actor, agent: Agent, monkeypatch: Any) -> None:
    with pytest.raises(Invalid, match="ace_release"):
        agent_update(operator, agent, ace_release="soon")
    monkeypatch.setenv("ACE_RELEASE", "soon")
    with pytest.raises(env.BadEnvironment, match="ACE_RELEASE knows no 'soon'; it takes direct or reviewed"):
        env.choice("ACE_RELEASE", "direct", ("direct", "reviewed"))


def test_lessons_of_a_release_follow_the_newest_items(operator: Actor, agent: Agent, monkeypatch: Any) -> None:
    agent_update(operator, agent, ace_release="direct")
    playbook = playbook_of(operator, agent)
    held = DeployedContext(3, (Lesson("s1", "An old text.", category="strategies"), Lesson("x1", "Count twice.")))
    monkeypatch.setattr("experiences.playbooks.selectors.deployed_context", lambda _: held)
    result = compiled(operator, agent.slug)
    assert (result.release, result.items, result.version) == (3, ("s1", "s2"), 1)
    assert result.context == f"{playbook.context}\n\n{HEAD}\n- Count twice."
