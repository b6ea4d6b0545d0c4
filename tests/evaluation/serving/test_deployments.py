"""Deployments: what is served changes by them alone; a canary goes on by time and evidence, or is taken back."""

from __future__ import annotations

import random
import tomllib
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db.models import F
from django.test import Client
from django.utils import timezone
from django.utils.html import escape

from agentcore_site.audit.models import AuditEvent
from agentcore_site.lib.errors import Conflict, Forbidden, Invalid, Missing
from agentcore_site.lib.retention import rows_delete
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Mail
from evaluation.serving.adapters.plans import plan_of_agent
from evaluation.serving.deployments.advance import deployments_advance, waits_for
from evaluation.serving.deployments.presenters import sentence_of, shown_deployment
from evaluation.serving.deployments.rules import YOU, DeploymentRule, Stage
from evaluation.serving.deployments.services import (
    deployment_advance,
    deployment_pause,
    deployment_resume,
    deployment_roll_back,
    deployment_start,
    release_approve,
    release_restore,
    serving_change,
)
from evaluation.serving.deployments.sessions import sessions_of
from evaluation.serving.feedback.services import feedback_give
from evaluation.serving.gate.verdict import GateRule
from evaluation.serving.gateway.calls import drawn
from evaluation.serving.gateway.served_models import served_model
from evaluation.serving.models import AgentServing, Deployment, Feedback, ProductionTrace, Release
from evaluation.serving.releases.selectors import bundle_of
from evaluation.serving.releases.services import release_make
from evaluation.serving.traces.retention import observations, traces
from evaluation.serving.traces.writing import traces_write
from experiences.models import Agent
from experiences.rollouts.rewards.composite import WEIGHTS
from tests.factories import ExperienceFactory
from tests.support.callers import Caller
from tests.support.pages import html
from tests.support.person import unguarded

pytestmark = pytest.mark.django_db
RULE = DeploymentRule((Stage(0.10, 0, 20), Stage(0.5, 0, 20)), feedback_minutes=0, margin=None)
SHOWN = DeploymentRule((Stage(0.5, 0, 20),), feedback_minutes=10, margin=0.2)
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
    answer = Caller(olivia).get("agents/clerk/tensorzero").json()
    config = tomllib.loads(answer["files"]["tensorzero.toml"])
    assert config["functions"]["clerk"]["experimentation"]["candidate_variants"] == {"release-1": 0.9, "release-2": 0.1}
    deployment_advance(operator, Deployment.objects.get(release=releases[1]))
    assert plan_of_agent(agent).arms[1].share == 0.5 and plan_of_agent(agent).id != ramp.id
    assert Caller(charlie).get(f"agents/{agent.pk}/tensorzero").status_code == 404
    AgentServing.objects.update(release=releases[1])  # in the middle of its last step
    assert [one.name for one in plan_of_agent(agent).arms] == ["release-2"]
    AgentServing.objects.update(release=releases[0])
    Deployment.objects.update(strategy="shadow")  # answers no caller
    assert [one.name for one in plan_of_agent(agent).arms] == ["release-1"]
    AgentServing.objects.update(release=None)
    assert Caller(olivia).get("agents/clerk/tensorzero").status_code == 409


def serves(agent: Agent) -> Release | None:
    return AgentServing.objects.get(agent=agent).release


def traffic(
    deployment: Deployment, n: int, *, failing: tuple[float, float], seed: int = 0, unsafe: bool = False
) -> int:
    """So many sessions by the deployment's own draw, of which a share of (current, new) fails; how many the new release
    had until it was taken back, with a look after every ten. ``unsafe``: each answer of the new one has a finding."""
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
            "safety": int(unsafe and is_new),
            "cost_micros": 10,
            "duration_ms": rng.lognormvariate(5, 0.3),
            "created_at": timezone.now().isoformat(),
        }
        traces_write([row, row])  # the same trace twice is one
        if number % 10 == 9:
            deployments_advance()
    deployments_advance()
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


def test_a_refused_deployment_gives_its_reason(
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


def test_a_canary_whose_answers_have_safety_findings_is_taken_back(operator: Actor, releases: list[Release]) -> None:
    deployment = deployment_start(
        operator, releases[1], strategy="canary", rule=DeploymentRule((Stage(0.5, 0, 1_000),))
    )
    assert traffic(deployment, 400, failing=(0.0, 0.0), unsafe=True) < 100
    assert deployment.state == "rolled_back" and serves(deployment.agent) == releases[0]
    assert "has more safety findings" in deployment.reason


def test_a_canary_that_always_fails_is_taken_back_at_once(operator: Actor, releases: list[Release]) -> None:
    rule = DeploymentRule((Stage(0.25, 0, 1_000),))
    deployment = deployment_start(operator, releases[1], strategy="canary", rule=rule)
    new = traffic(deployment, 400, failing=(0.05, 1.0))
    assert deployment.state == "rolled_back" and serves(deployment.agent) == releases[0]
    assert new < 15 and deployment.share == 0
    assert "fails more often" in deployment.reason
    assert served_model(deployment.organization_id, f"agent:{deployment.agent.slug}").new is None
    assert AuditEvent.objects.get(action="deployment.rolled_back").actor == "system"


def test_the_measure_that_decided_comes_first_in_words_that_need_no_statistics(
    operator: Actor, olivia: Any, releases: list[Release]
) -> None:
    rule = DeploymentRule((Stage(0.25, 0, 1_000),))
    deployment = deployment_start(operator, releases[1], strategy="canary", rule=rule)
    # By other draws the first ten sessions may decide: one analysis makes no curve.
    Deployment.objects.filter(pk=deployment.pk).update(salt=UUID(int=9))
    traffic(deployment, 400, failing=(0.0, 1.0))
    shown = shown_deployment(deployment)
    assert deployment.state == "rolled_back" and shown.figure is not None
    first, *others = shown.rows
    assert first.name == "failures" and first.decided and first.tone == "bad" and first.e_value >= 20
    assert not any(row.decided for row in others)
    assert "too little data" not in [row.interval for row in shown.rows]
    assert shown.decision.startswith("Failed requests: 100.0 % with the new release, 0.0 % with the current one.")
    assert f"at most 1 of {shown.e_value:,.0f} canaries" in shown.decision
    assert [row[2] for row in shown.figure.rows] == [20.0] * len(shown.figure.rows)
    assert shown.figure.rows[-1][1] >= 20 > shown.figure.rows[0][1]
    client = Client()
    client.force_login(olivia)
    page = html(client.get(f"/deployments/{deployment.pk}/"))
    assert escape(shown.decision) in page and "data-log" in page and "js/figures" in page


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


def rewarded(deployment: Deployment, current: float, new: float) -> None:
    """Every answer gets its reward: of each arm's answers this share is 1, evenly spread. Which answers an arm has is
    by the deployment's own salt: rewards by lot would now and then prove what is not so."""
    owed = {"new": 0.0, "current": 0.0}
    for one in ProductionTrace.objects.filter(deployment_id=deployment.pk).order_by("created_at", "pk"):
        owed[one.arm] += new if one.arm == "new" else current
        one.reward = float(owed[one.arm] >= 0.999)
        owed[one.arm] -= one.reward
        one.components = {"raw": {"completion": one.reward, "feedback": None}, "weights": dict(WEIGHTS)}
        one.save(update_fields=["reward", "components"])


def past(deployment: Deployment, hours: float = 2) -> None:
    """Its stage and its sessions began so long ago."""
    ago = timedelta(hours=hours)
    deployment.observations.update(at=F("at") - ago)
    with unguarded():
        ProductionTrace.objects.filter(deployment_id=deployment.pk).update(created_at=F("created_at") - ago)
    Deployment.objects.filter(pk=deployment.pk).update(step_began_at=F("step_began_at") - ago)


def advanced(deployment: Deployment) -> Deployment:
    deployments_advance()
    return Deployment.objects.get(pk=deployment.pk)


def test_a_reward_counts_as_soon_as_the_reward_is_computed(operator: Actor, releases: list[Release]) -> None:
    deployment = deployment_start(operator, releases[1], strategy="canary", rule=SLOW)
    traffic(deployment, 400, failing=(0.0, 0.0))
    assert not deployment.observations.exclude(reward_counted_at=None).exists()
    rewarded(deployment, 0.9, 0.4)
    deployment = advanced(deployment)
    assert deployment.state == "rolled_back" and "earns less" in deployment.reason
    assert not deployment.observations.filter(reward_counted_at=None).exists()


def test_feedback_counts_at_once_and_once_for_a_session(operator: Actor, releases: list[Release]) -> None:
    deployment = deployment_start(operator, releases[1], strategy="canary", rule=SLOW)
    traffic(deployment, 20, failing=(0.0, 0.0))
    rewarded(deployment, 1.0, 1.0)
    advanced(deployment)
    first, second = ProductionTrace.objects.order_by("pk")[:2]
    feedback_give(operator, first, metric="thumbs", value="down")
    found = advanced(deployment).monitor["differences"]["session_reward"]
    assert found["n"] == 1 and found["total"] != 0  # the mean reward as it is with this feedback
    feedback_give(operator, first, metric="stars", value=1)
    feedback_give(operator, second, metric="thumbs", value="up")
    assert advanced(deployment).monitor["differences"]["session_reward"]["n"] == 2
    past(deployment)
    assert advanced(deployment).monitor["differences"]["session_reward"]["n"] == 20
    assert advanced(deployment).monitor["differences"]["session_failures"]["n"] == 20


def test_a_session_is_one_observation_with_all_its_requests(operator: Actor, releases: list[Release]) -> None:
    """The new release breaks at a session's second request: first requests show nothing, whole sessions do."""
    deployment = deployment_start(operator, releases[1], strategy="canary", rule=SHOWN)
    traffic(deployment, 60, failing=(0.0, 0.0))
    first = ProductionTrace.objects.filter(deployment_id=deployment.pk)
    later = [
        ProductionTrace(**{**values, "id": uuid4(), "status": "failed" if values["arm"] == "new" else "ok"})
        for values in first.values()
        for _ in range(3)
    ]
    ProductionTrace.objects.bulk_create(later)
    late = deployment.observations.filter(new=True).order_by("at")[0]
    other = ProductionTrace.objects.filter(session=late.session, status="failed")[0]
    with unguarded():  # too late to be of the session, and one that another release answered
        ProductionTrace.objects.filter(pk=other.pk).update(created_at=late.at + timedelta(minutes=11))
    known = sessions_of(deployment, list(deployment.observations.all()), timedelta(minutes=10))
    assert {(one.requests, one.failures) for one in known.values()} == {(4, 0), (4, 3), (3, 2)}
    assert advanced(deployment).live  # first requests alone
    past(deployment)
    deployment = advanced(deployment)
    assert deployment.state == "rolled_back"
    assert "fails more often in the course of a session" in deployment.reason
    assert deployment.monitor["evidence"]["failures"]["logs"] == pytest.approx([0.0] * 3, abs=1.5)


def test_a_canary_advances_once_the_canary_is_shown_to_be_no_worse(operator: Actor, releases: list[Release]) -> None:
    deployment = deployment_start(operator, releases[1], strategy="canary", rule=SHOWN)
    traffic(deployment, 60, failing=(0.0, 0.0))
    rewarded(deployment, 1.0, 1.0)
    waits = waits_for(advanced(deployment), SHOWN)
    assert waits == "evidence that failures are no worse by more than 20 points"  # nothing has settled
    past(deployment)
    deployment = advanced(deployment)
    assert deployment.state == "done" and deployment.events.get(kind="done").note == ""
    shown = shown_deployment(deployment).no_worse
    assert [(one.name, one.shown) for one in shown] == [("failures", True), ("score", True)]


def test_one_that_is_worse_or_not_known_waits_and_then_a_person_is_asked_once(
    operator: Actor, releases: list[Release], adam: Any, dan: Any
) -> None:
    deployment = deployment_start(operator, releases[1], strategy="canary", rule=SHOWN)
    traffic(deployment, 60, failing=(0.0, 0.0))
    rewarded(deployment, 0.8, 0.7)  # as many failures, worse answers
    past(deployment)
    deployment = advanced(deployment)
    assert waits_for(deployment, SHOWN) == "evidence that scores are no worse by more than 20 points"
    assert (deployment.state, deployment.share, deployment.asked_at) == ("running", 0.5, None)
    past(deployment, hours=24)
    assert advanced(deployment).asked_at is not None
    deployment = advanced(deployment)
    assert (deployment.state, deployment.share) == ("running", 0.5)
    event = deployment.events.get(kind="asked")
    assert event.note == "Not shown within 24 h to be worse by less than 20 points."
    mail = Mail.objects.get()
    assert set(mail.recipients) == {operator.user.email, adam.email} and str(deployment.pk) in mail.body
    assert "waits for a person" in sentence_of(deployment) and waits_for(deployment, SHOWN) == YOU
    deployment_advance(operator, deployment, note="good enough")
    deployment.refresh_from_db()
    assert (deployment.state, deployment.events.get(kind="done").note) == ("done", "good enough")


def test_a_canary_without_evidence_in_time_is_promoted_where_its_rule_says_so(
    operator: Actor, releases: list[Release]
) -> None:
    rule = replace(SHOWN, when_over="promote")
    deployment = deployment_start(operator, releases[1], strategy="canary", rule=rule)
    traffic(deployment, 60, failing=(0.0, 0.0))
    rewarded(deployment, 0.8, 0.7)
    past(deployment, hours=25)
    deployment = advanced(deployment)
    assert deployment.state == "done" and "Not shown within 24 h" in deployment.events.get(kind="done").note
    assert not Mail.objects.exists()


def test_blue_green_is_switched_by_hand_watched_and_taken_back(operator: Actor, releases: list[Release]) -> None:
    deployment = deployment_start(operator, releases[1], strategy="blue_green")
    deployments_advance()
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


def test_the_gate_refuses_in_a_sentence_and_an_admin_may_override_the_gate(
    operator: Actor, adam: Any, releases: list[Release], agent: Agent
) -> None:
    second = releases[1]
    serving_change(operator, agent, fallbacks=[], while_away_usd=0, gate=GateRule({"coding": 0.8}))
    with pytest.raises(
        Conflict, match=r"The gate refuses\. The release may not be deployed: suite coding was not run with it; 1 more"
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
    with pytest.raises(Conflict, match="no person has approved it"):
        deployment_start(operator, second, strategy="canary")
    with pytest.raises(Conflict, match="You made this release"):
        release_approve(operator, second)
    release_approve(Actor(adam), second)
    assert (
        deployment_start(operator, second, strategy="canary")
        .verdict["sentence"]
        .startswith("The release may be deployed")
    )


def test_a_session_keeps_its_arm_and_arms_have_their_stated_shares() -> None:
    salt = bytes(16)
    sessions = [f"s-{number}" for number in range(20_000)]
    at = {session: drawn(salt, session) for session in sessions}
    assert at == {session: drawn(salt, session) for session in sessions}
    for share in (0.1, 0.25, 0.5):
        assert abs(sum(one < share for one in at.values()) / len(at) - share) < 0.01
    other = sum((drawn(bytes([1] * 16), one) < 0.1) == (at[one] < 0.1) for one in sessions) / len(sessions)
    assert abs(other - 0.82) < 0.02  # another deployment draws again


def test_an_invalid_rule_is_refused_with_its_mistake() -> None:
    for stages in ((), (Stage(0.5), Stage(0.25)), (Stage(1.0),), (Stage(0.1, -1),), (Stage(0.1, 1, 0),)):
        with pytest.raises(ValueError, match=r"stages|Minutes|stage"):
            DeploymentRule(stages)
    for wrong in ({"margin": 0.0}, {"margin": 1.0}, {"when_over": "wait"}, {"patience_minutes": -1}):
        with pytest.raises(ValueError, match=r"margin|patience|Minutes"):
            DeploymentRule(**wrong)
    assert DeploymentRule.from_json(RULE.as_json()) == RULE
    older = {name: value for name, value in RULE.as_json().items() if name not in ("margin", "when_over")}
    assert DeploymentRule.from_json(older) == RULE  # of before there was a margin
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
    assert (rows_delete(traces()), rows_delete(observations())) == (1, 0)
    assert ProductionTrace.objects.count() == 4 and not Feedback.objects.exists()
    deployment_roll_back(operator, deployment)
    assert (rows_delete(traces()), rows_delete(observations())) == (0, 5)
