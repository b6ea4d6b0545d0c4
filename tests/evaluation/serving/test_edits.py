"""Small edits go out by themselves: by the agent's own rule, and through the gate like any release."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from agentcore_site.audit.models import AuditEvent
from agentcore_site.jobs.models import Job, Status
from agentcore_site.lib.errors import Forbidden, Invalid, Missing
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Membership
from budgets.models import Budget
from budgets.services import price_set
from evaluation.serving.deployments.edits import edits_advance, edits_change, edits_sentence
from evaluation.serving.deployments.selectors import serving_of
from evaluation.serving.deployments.services import deployment_start, release_restore, serving_change
from evaluation.serving.gate.verdict import GateRule
from evaluation.serving.models import AgentServing, Deployment, Release, SuiteRun
from evaluation.serving.releases.selectors import bundle_of
from evaluation.serving.releases.services import release_make
from evaluation.serving.suites.services import suite_create
from experiences.models import Agent
from experiences.playbooks.services.playbooks import playbook_edit
from tests.factories import ExperienceFactory
from tests.support.callers import Caller
from tests.support.pages import html
from tests.support.suites import WORK, suite_run_stored

pytestmark = pytest.mark.django_db


@pytest.fixture
def served(operator: Actor, agent: Agent) -> Agent:
    """Its first release serves it, and its gate asks for nothing yet."""
    first = release_make(operator, agent)
    gate_of(operator, agent, GateRule(safety=False))
    deployment_start(operator, first, strategy="immediate")
    return agent


def gate_of(actor: Actor, agent: Agent, rule: GateRule) -> None:
    serving_change(actor, agent, fallbacks=[], while_away_usd=0, gate=rule)


def edited(actor: Actor, agent: Agent, target: str = "s1", content: str = "Read the order first.") -> None:
    playbook_edit(actor, agent.playbook, type="update", target=target, content=content)


def number(agent: Agent) -> int:
    """Of the release that serves."""
    release = serving_of(agent).release
    assert release is not None
    return release.number


def test_an_edit_goes_out_by_itself_only_where_the_rule_says_so(operator: Actor, served: Agent) -> None:
    edited(operator, served)
    edits_advance()
    assert number(served) == 1, "off by default"
    edits_change(operator, served, most=1, strategy="immediate")
    assert edits_advance() == 1 and number(served) == 2
    release = serving_of(served).release
    assert release is not None and "Read the order first." in bundle_of(release).context.text_for("")
    deployment = Deployment.objects.get(release=release)
    assert (deployment.created_by, deployment.state, deployment.verdict["passed"]) == (operator.user, "done", True)
    assert AuditEvent.objects.filter(action="serving.edits").exists()
    assert AuditEvent.objects.filter(action="deployment.started", target_id=str(deployment.pk)).exists()
    edits_advance()
    assert Release.objects.filter(agent=served).count() == 2, "nothing changed since"


@pytest.mark.parametrize("change", ["model", "prompt", "tool", "texts"])
def test_a_larger_edit_waits_for_a_person(operator: Actor, served: Agent, change: str) -> None:
    edits_change(operator, served, most=1)
    edited(operator, served)
    if change == "texts":
        edited(operator, served, "s2", "Refunds need a ticket.")
    else:
        values: dict[str, Any] = {
            "model": {"model": "large"},
            "prompt": {"system_prompt": "Help."},
            "tool": {"tools": []},
        }
        Agent.objects.filter(pk=served.pk).update(**values[change])
    edits_advance()
    assert number(served) == 1 and Release.objects.filter(agent=served).count() == 1


def test_the_gates_suites_run_first_and_its_no_holds(operator: Actor, served: Agent, adam: Any) -> None:
    price_set(Actor(adam), model="small", organization=served.organization, input_micros=1, output_micros=1)
    suite_create(operator, name="work", spec=WORK, description="Work")
    gate_of(operator, served, GateRule(suites={"work": 0.5}, safety=False))
    edits_change(operator, served, most=3, strategy="immediate")
    edited(operator, served)
    edits_advance()
    edits_advance()
    runs = SuiteRun.objects.filter(agent=served, job__status="queued")
    assert sorted(one.release.number for one in runs if one.release) == [1, 2], (
        "each once, also the one to compare with"
    )
    assert number(served) == 1 and "waits for suite work" in edits_sentence(serving_of(served))
    first, second = Release.objects.filter(agent=served).order_by("number")
    suite_run_stored(operator, first, name="work", spec=WORK, safe=8)
    bad = suite_run_stored(operator, second, name="work", spec=WORK, safe=3)
    edits_advance()
    assert number(served) == 1 and "suite work is at 30.0%" in edits_sentence(serving_of(served))
    bad.delete()
    suite_run_stored(operator, second, name="work", spec=WORK, safe=9)
    edits_advance()
    assert number(served) == 2


def test_edit_goes_out_by_canary_unless_the_rule_says_otherwise(operator: Actor, served: Agent) -> None:
    edits_change(operator, served, most=1)
    edited(operator, served)
    edits_advance()
    deployment = Deployment.objects.latest("created_at")
    assert (deployment.strategy, deployment.share, deployment.live) == ("canary", 0.10, True) and number(served) == 1
    edited(operator, served, content="Read it twice.")
    edits_advance()  # waits for the canary
    assert Deployment.objects.latest("created_at") == deployment


def test_at_most_so_many_go_out_in_a_month(operator: Actor, served: Agent) -> None:
    edits_change(operator, served, most=1, strategy="immediate", a_month=2)
    for count, content in enumerate(("Read it.", "Read it twice.", "Read it thrice.")):
        edited(operator, served, content=content)
        edits_advance()
        assert number(served) == min(count + 2, 3)
    assert "2 small edits went out this month, which is the limit." in edits_sentence(serving_of(served))
    AgentServing.objects.update(edits_month="2026-01-01")
    edits_advance()
    assert number(served) == 4


def test_suites_for_edits_stay_within_the_months_dollars(operator: Actor, served: Agent, adam: Any) -> None:
    price_set(Actor(adam), model="small", organization=served.organization, input_micros=1, output_micros=1)
    suite_create(operator, name="work", spec=WORK, description="Work")
    gate_of(operator, served, GateRule(suites={"work": 0.5}, safety=False))
    edits_change(operator, served, most=3, monthly_usd=2)
    edited(operator, served)
    edits_advance()
    runs = SuiteRun.objects.filter(pk__in=AgentServing.objects.get(agent=served).edits_runs)
    limits = Budget.objects.filter(owner_id__in=runs.values("pk")).values_list("limit_micros", flat=True)
    assert list(limits) == [1_000_000, 1_000_000]  # half of it each: of both releases
    runs.update(cost_micros=1_000_000)
    Job.objects.filter(pk__in=runs.values("pk")).update(status=Status.FAILED)
    edited(operator, served, content="Read it twice.")
    edits_advance()
    edits_advance()
    assert SuiteRun.objects.filter(agent=served).count() == 2
    assert "dollars for suites of small edits are used up" in edits_sentence(serving_of(served))
    edits_change(operator, served, most=3, monthly_usd=3)
    edits_advance()
    assert SuiteRun.objects.filter(agent=served).count() == 3


def test_a_rolled_back_edit_is_not_released_again(operator: Actor, served: Agent) -> None:
    edits_change(operator, served, most=3, strategy="immediate")
    edited(operator, served)
    edits_advance()
    release_restore(operator, served)
    edits_advance()
    assert number(served) == 1


def test_the_person_who_enabled_small_edits_must_still_have_the_permission(operator: Actor, served: Agent) -> None:
    edits_change(operator, served, most=3, strategy="immediate")
    edited(operator, served)
    Membership.objects.filter(user=operator.user).update(role="viewer")
    edits_advance()
    assert number(served) == 1


def test_only_permitted_people_set_small_edits_at_every_interface(
    operator: Actor, served: Agent, dan: Any, charlie: Any, api: Caller, console: Client
) -> None:
    for person, refusal in ((dan, Forbidden), (charlie, Missing)):
        with pytest.raises(refusal):
            edits_change(Actor(person), served, most=1)
    for wrong in ({"most": 0}, {"most": 21}, {"strategy": "shadow"}, {"a_month": -1}, {"monthly_usd": float("nan")}):
        with pytest.raises(Invalid):
            edits_change(operator, served, **{"most": 1, **wrong})
    path = f"agents/{served.slug}/small-edits"
    assert api.get(path).json()["most"] is None
    changed = api.patch(path, {"most": 2}).json()
    assert (changed["most"], changed["acts_as"]) == (2, "olivia") and "at most 2 texts" in changed["sentence"]
    assert "at most 2 texts go out automatically" in html(console.get(f"/agents/{served.pk}/serving/"))
    limited = api.patch(path, {"most": 2, "strategy": "blue_green", "a_month": 4, "monthly_usd": 0.5}).json()
    assert (limited["strategy"], limited["a_month"], limited["monthly_usd"]) == ("blue_green", 4, 0.5)
    console.post(f"/agents/{served.pk}/serving/edits/", {"most": "", "a_month": "6"})
    assert (serving_of(served).most_edits, serving_of(served).edits_a_month) == (None, 6)
    ExperienceFactory(agent=served, handle="x0000000009", summary="When nothing helps, say so.")
    assert edits_advance() == 0
