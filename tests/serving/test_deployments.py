"""Deployments: what is served changes by them alone; a canary goes on by time and evidence, or is taken back."""

from __future__ import annotations

import random
import tomllib
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from agentcore_site.audit.models import AuditEvent
from agentcore_site.lib.errors import Conflict, Forbidden, Invalid, Missing
from agentcore_site.tenancy.actors import Actor
from experiences.models import Agent
from serving.adapters.plans import plan_of_agent
from serving.deployments.rules import DeploymentRule, Stage
from serving.deployments.services import (
    deployment_advance,
    deployment_pause,
    deployment_resume,
    deployment_roll_back,
    deployment_start,
    release_approve,
    release_restore,
    serving_change,
)
from serving.deployments.ticking import deployments_tick
from serving.feedback.services import feedback_give
from serving.gate.verdict import GateRule
from serving.gateway.calls import drawn
from serving.gateway.served import served_model
from serving.models import AgentServing, Deployment, Feedback, ProductionTrace, Release
from serving.releases.selectors import bundle_of
from serving.releases.services import release_make
from serving.traces.retention import traces_forget
from serving.traces.writing import traces_write
from tests.factories import ExperienceFactory
from tests.support.callers import Caller
from tests.support.person import unguarded

pytestmark = pytest.mark.django_db
RULE = DeploymentRule((Stage(0.10, 0, 20), Stage(0.5, 0, 20)), feedback_minutes=0)
SLOW = DeploymentRule((Stage(0.5, 0, 99_999),), feedback_minutes=60)


@pytest.fixture
def releases(operator: Actor, agent: Agent) -> list[Release]:
    """Two, of which the first is served. Nothing is asked of them."""
    serving_change(operator, agent, fallbacks=[], while_away_usd=0, gate=GateRule(safety=False))
    first = release_make(operator, agent)
    ExperienceFactory(agent=agent, handle="x0000000009")
    second = release_make(operator, agent)
    deployment_start(operator, first, strategy="immediate")
    return [first, second]


def test_its_plan_for_other_gateways_has_the_shares_of_the_sessions(
    operator: Actor, agent: Agent, releases: list[Release], olivia: Any, charlie: Any
) -> None:
    assert [(one.name, one.share) for one in plan_of_agent(agent).arms] == [("release-1", 1.0)]
    deployment_start(operator, releases[1], strategy="canary", rule=RULE)
    ramp = plan_of_agent(agent)
    assert [(one.name, one.share) for one in ramp.arms] == [("release-1", 0.9), ("release-2", 0.1)]
    assert ramp.arms[1].bundle == bundle_of(releases[1])
    told = Caller(olivia).get("agents/clerk/tensorzero").json()
    config = tomllib.loads(told["files"]["tensorzero.toml"])
    assert config["functions"]["clerk"]["experimentation"]["candidate_variants"] == {"release-1": 0.9, "release-2": 0.1}
    deployment_advance(operator, Deployment.objects.get(release=releases[1]))
    assert plan_of_agent(agent).arms[1].share == 0.5 and plan_of_agent(agent).id != ramp.id
    assert Caller(charlie).get(f"agents/{agent.pk}/tensorzero").status_code == 404
    AgentServing.objects.update(release=releases[1])  # in the middle of its last step
    assert [one.name for one in plan_of_agent(agent).arms] == ["release-2"]
    AgentServing.objects.update(release=releases[0])
    Deployment.objects.update(strategy="shadow")  # answers nobody
    assert [one.name for one in plan_of_agent(agent).arms] == ["release-1"]
    AgentServing.objects.update(release=None)
    assert Caller(olivia).get("agents/clerk/tensorzero").status_code == 409


def serves(agent: Agent) -> Release | None:
    return AgentServing.objects.get(agent=agent).release


def traffic(deployment: Deployment, n: int, *, failing: tuple[float, float], seed: int = 0) -> int:
    """So many sessions by the deployment's own draw, of which a share of (current, new) fails; how many the new release
    had until it was taken back, with a look after every ten."""
    rng = random.Random(seed)
    new = 0
    for number in range(n):
        deployment.refresh_from_db()
        if not deployment.live:
            break
        session = f"{seed}/{number}"
        is_new = drawn(deployment.salt.bytes, session) < deployment.share
        new += is_new
        row = {
            "id": str(uuid4()),
            "organization_id": str(deployment.organization_id),
            "agent_id": str(deployment.agent_id),
            "release_id": str(deployment.release_id if is_new else deployment.previous_id),
            "deployment_id": str(deployment.pk),
            "arm": "new" if is_new else "current",
            "share": deployment.share,
            "session": session,
            "model": "small",
            "status": "failed" if rng.random() < failing[is_new] else "ok",
            "safety": 0,
            "cost_micros": 10,
            "duration_ms": rng.lognormvariate(5, 0.3),
            "created_at": timezone.now().isoformat(),
        }
        traces_write([row, row])  # the same trace twice is one
        if number % 10 == 9:
            deployments_tick()
    deployments_tick()
    deployment.refresh_from_db()
    return new


def test_a_release_made_changes_nothing_and_one_deployed_is_served(operator: Actor, releases: list[Release]) -> None:
    first, second = releases
    assert serves(first.agent) == first
    name = f"agent:{first.agent.slug}"
    assert served_model(first.organization_id, name).current.number == 1  # type: ignore[union-attr]
    deployment_start(operator, second, strategy="immediate", note="better")
    assert served_model(first.organization_id, name).current.number == 2  # type: ignore[union-attr]
    release_restore(operator, first.agent)
    assert serves(first.agent) == first
    events = list(AuditEvent.objects.filter(action__startswith="deployment.").values_list("action", flat=True))
    assert events.count("deployment.started") == events.count("deployment.done") == 3


def test_what_can_not_be_deployed_says_why(
    operator: Actor, dan: Any, charlie: Any, releases: list[Release], agent: Agent
) -> None:
    first, second = releases
    for actor, error in ((Actor(dan), Forbidden), (Actor(charlie), Missing)):
        with pytest.raises(error):
            deployment_start(actor, second, strategy="immediate")
    with pytest.raises(Conflict, match="serves Support clerk already"):
        deployment_start(operator, first, strategy="immediate")
    with pytest.raises(Invalid, match="A strategy is one of"):
        deployment_start(operator, second, strategy="all at once")
    deployment_start(operator, second, strategy="canary", rule=RULE)
    with pytest.raises(Conflict, match="is on its way"):
        deployment_start(operator, second, strategy="immediate")
    AgentServing.objects.update(release=None)
    Deployment.objects.all().delete()
    with pytest.raises(Invalid, match="nothing to compare with"):
        deployment_start(operator, second, strategy="canary")


def test_a_canary_that_does_no_worse_goes_up_and_is_served(operator: Actor, releases: list[Release]) -> None:
    deployment = deployment_start(operator, releases[1], strategy="canary", rule=RULE)
    traffic(deployment, 400, failing=(0.05, 0.05))
    assert deployment.state == "done" and serves(deployment.agent) == releases[1]
    assert [(one.kind, one.share) for one in deployment.events.all()] == [
        ("started", 0.10), ("advanced", 0.5), ("done", 1.0)
    ]  # fmt: skip
    assert all(one.by is None for one in deployment.events.all()[1:])


def test_a_canary_that_always_fails_is_taken_back_at_once(operator: Actor, releases: list[Release]) -> None:
    rule = DeploymentRule((Stage(0.25, 0, 1_000),))
    deployment = deployment_start(operator, releases[1], strategy="canary", rule=rule)
    new = traffic(deployment, 400, failing=(0.05, 1.0))
    assert deployment.state == "rolled_back" and serves(deployment.agent) == releases[0]
    assert new < 15 and deployment.share == 0
    assert "fails more often" in deployment.reason
    assert served_model(deployment.organization_id, f"agent:{deployment.agent.slug}").new is None
    assert AuditEvent.objects.get(action="deployment.rolled_back").actor == "system"


def test_people_pause_advance_and_take_back(operator: Actor, releases: list[Release]) -> None:
    deployment = deployment_start(operator, releases[1], strategy="canary", rule=RULE)
    deployment_pause(operator, deployment)
    traffic(deployment, 300, failing=(0.0, 0.0))
    assert (deployment.state, deployment.share) == ("paused", 0.10)  # time and evidence were there
    with pytest.raises(Conflict, match="is paused"):
        deployment_pause(operator, deployment)
    deployment_resume(operator, deployment)
    deployment_advance(operator, deployment, note="in a hurry")
    deployment.refresh_from_db()
    assert deployment.share == 0.5
    deployment_roll_back(operator, deployment, note="a complaint")
    deployment.refresh_from_db()
    assert (deployment.state, deployment.reason) == ("rolled_back", "a complaint")
    with pytest.raises(Conflict, match="has ended"):
        deployment_advance(operator, deployment)


def test_a_paused_canary_is_still_taken_back(operator: Actor, releases: list[Release]) -> None:
    deployment = deployment_start(
        operator, releases[1], strategy="canary", rule=DeploymentRule((Stage(0.5, 0, 9_999),))
    )
    deployment_pause(operator, deployment)
    traffic(deployment, 100, failing=(0.0, 1.0))
    assert deployment.state == "rolled_back"


def test_a_reward_counts_when_there_was_time_for_it(operator: Actor, releases: list[Release]) -> None:
    deployment = deployment_start(operator, releases[1], strategy="canary", rule=SLOW)
    traffic(deployment, 400, failing=(0.0, 0.0))
    rng = random.Random(1)
    for one in ProductionTrace.objects.all():
        one.reward = float(rng.random() < (0.4 if one.arm == "new" else 0.9))
        one.save(update_fields=["reward"])
    deployments_tick()
    deployment.refresh_from_db()
    assert deployment.live  # nobody had time to press thumbs
    deployment.observations.update(at=timezone.now() - timedelta(hours=2))
    deployments_tick()
    deployment.refresh_from_db()
    assert deployment.state == "rolled_back" and "earns less" in deployment.reason


def test_blue_green_is_switched_by_hand_watched_and_taken_back(operator: Actor, releases: list[Release]) -> None:
    deployment = deployment_start(operator, releases[1], strategy="blue_green")
    deployments_tick()
    assert served_model(deployment.organization_id, f"agent:{deployment.agent.slug}").share == 0
    deployment_advance(operator, deployment)
    deployment.refresh_from_db()
    assert (deployment.share, serves(deployment.agent)) == (1.0, releases[0])
    traffic(deployment, 100, failing=(0.0, 0.02))
    assert deployment.live
    deployment_roll_back(operator, deployment)
    again = deployment_start(operator, releases[1], strategy="blue_green")
    deployment_advance(operator, again)
    assert traffic(again, 200, failing=(0.0, 0.5), seed=1) <= 30
    assert again.state == "rolled_back" and serves(deployment.agent) == releases[0]


def test_the_gate_says_no_in_a_sentence_and_an_admin_may_override_it(
    operator: Actor, adam: Any, releases: list[Release], agent: Agent
) -> None:
    second = releases[1]
    serving_change(operator, agent, fallbacks=[], while_away_usd=0, gate=GateRule({"coding": 0.8}))
    with pytest.raises(
        Conflict, match=r"The gate says no\. It may not go out: suite coding was not run with it; 1 more"
    ):
        deployment_start(operator, second, strategy="immediate")
    with pytest.raises(Forbidden, match="Only an admin"):
        deployment_start(operator, second, strategy="immediate", override="it is urgent")
    made = deployment_start(Actor(adam), second, strategy="immediate", override="it is urgent")
    assert [one.kind for one in made.events.all()] == ["started", "done", "overridden"]
    assert AuditEvent.objects.get(action="deployment.overridden").after["note"] == "it is urgent"


def test_a_second_person_approves_a_release(operator: Actor, adam: Any, releases: list[Release], agent: Agent) -> None:
    second = releases[1]
    serving_change(operator, agent, fallbacks=[], while_away_usd=0, gate=GateRule(safety=False, approval=True))
    with pytest.raises(Conflict, match="nobody has approved it"):
        deployment_start(operator, second, strategy="canary")
    with pytest.raises(Conflict, match="You made this release"):
        release_approve(operator, second)
    release_approve(Actor(adam), second)
    assert deployment_start(operator, second, strategy="canary").verdict["sentence"].startswith("It may go out")


def test_a_session_stays_where_it_is_and_shares_are_as_they_say() -> None:
    salt = bytes(16)
    sessions = [f"s-{number}" for number in range(20_000)]
    at = {session: drawn(salt, session) for session in sessions}
    assert at == {session: drawn(salt, session) for session in sessions}
    for share in (0.1, 0.25, 0.5):
        assert abs(sum(one < share for one in at.values()) / len(at) - share) < 0.01
    other = sum((drawn(bytes([1] * 16), one) < 0.1) == (at[one] < 0.1) for one in sessions) / len(sessions)
    assert abs(other - 0.82) < 0.02  # another deployment draws anew


def test_a_rule_says_what_is_wrong_with_it() -> None:
    for stages in ((), (Stage(0.5), Stage(0.25)), (Stage(1.0),), (Stage(0.1, -1),), (Stage(0.1, 1, 0),)):
        with pytest.raises(ValueError, match=r"stages|Minutes|stage"):
            DeploymentRule(stages)
    assert DeploymentRule.from_json(RULE.as_json()) == RULE
    assert RULE.waits_for(0, minutes=0, sessions=20) == ""
    waits = DeploymentRule((Stage(0.1, 10, 50),)).waits_for(0, minutes=1, sessions=20)
    assert waits == "9 min more and 30 more of 50 sessions of the new release"


def test_old_traces_go_with_their_feedback_and_what_a_live_canary_counts_stays(
    operator: Actor, releases: list[Release]
) -> None:
    deployment = deployment_start(operator, releases[1], strategy="canary", rule=SLOW)
    traffic(deployment, 5, failing=(0.0, 0.0))
    old = ProductionTrace.objects.order_by("pk").first()
    assert old is not None
    feedback_give(operator, old, metric="thumbs", value="up")
    long_ago = timezone.now() - timedelta(days=31)
    with unguarded():
        ProductionTrace.objects.filter(pk=old.pk).update(created_at=long_ago)
    deployment.observations.update(at=long_ago)
    assert traces_forget() == {"traces": 1, "observations": 0}
    assert ProductionTrace.objects.count() == 4 and not Feedback.objects.exists()
    deployment_roll_back(operator, deployment)
    assert traces_forget() == {"traces": 0, "observations": 5}
