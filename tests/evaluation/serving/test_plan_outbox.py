"""The agent's webhook receives each change of the serving releases; the timeline shows failed deliveries."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from agentcore_site.lib.backoff import MOST_TRIES
from agentcore_site.lib.errors import Invalid
from agentcore_site.tenancy.actors import Actor
from evaluation.serving.adapters.outbox import plans_send
from evaluation.serving.adapters.webhook import serving_secret
from evaluation.serving.deployments.services import (
    deployment_advance,
    deployment_roll_back,
    deployment_start,
    release_restore,
    serving_change,
)
from evaluation.serving.gate.verdict import GateRule
from evaluation.serving.models import AgentServing, Deployment, PlanDelivery, Release
from evaluation.serving.tasks import plans
from experiences.models import Agent
from tests.evaluation.serving.test_adapters import PlanReceiver, receiver
from tests.evaluation.serving.test_deployments import RULE, releases
from tests.support.pages import html

__all__ = ["receiver", "releases"]
pytestmark = pytest.mark.django_db
NO_GATE = {"fallbacks": [], "while_away_usd": 0, "gate": GateRule(safety=False)}


def shares(server: PlanReceiver) -> list[dict[str, float]]:
    messages = [json.loads(body)["data"]["arms"] for _, body in server.came]
    return [{one["name"]: one["share"] for one in arms} for arms in messages]


def lines(deployment: Deployment) -> list[tuple[str, str]]:
    return list(deployment.events.filter(kind__in=("told", "untold")).order_by("id").values_list("kind", "note"))


def test_each_change_is_sent_once_with_the_state_then_served(
    operator: Actor, agent: Agent, releases: list[Release], receiver: PlanReceiver
) -> None:
    serving_change(operator, agent, **NO_GATE, webhook_url=receiver.url)
    assert plans() == 1 and plans() == 0
    ramp = deployment_start(operator, releases[1], strategy="canary", rule=RULE)
    assert plans_send() == 1
    deployment_advance(operator, ramp)
    assert plans_send() == 1
    deployment_advance(operator, ramp)
    release_restore(operator, agent)
    assert PlanDelivery.objects.filter(settled_at=None).count() > 1
    assert plans_send() == 1  # all later changes are sent as one
    acting = releases[1].bundle | {"servers": [{"id": "1", "name": "shop", "tools": ["refund"]}]}
    twice = Release(agent=releases[1].agent, organization=releases[1].organization, bundle=acting)
    with pytest.raises(Invalid, match="would act twice for one request"):
        deployment_start(operator, twice, strategy="shadow", rule=RULE)
    shadow = deployment_start(operator, releases[1], strategy="shadow", rule=RULE)
    deployment_roll_back(operator, shadow)
    assert plans_send() == 0  # a shadow answers no caller
    ramp = deployment_start(operator, releases[1], strategy="canary", rule=RULE)
    deployment_roll_back(operator, ramp)
    assert plans_send() == 1
    first, second = {"release-1": 1.0}, {"release-1": 0.9, "release-2": 0.1}
    assert shares(receiver) == [first, second, {"release-1": 0.5, "release-2": 0.5}, first, first]
    ids = [{name.lower(): value for name, value in one.items()}["webhook-id"] for one, _ in receiver.came]
    assert len(set(ids)) == 5  # also where the same release serves it again
    assert lines(ramp) == [("told", "")]
    serving_change(operator, agent, **NO_GATE)
    deployment_start(operator, releases[1], strategy="immediate")
    assert not PlanDelivery.objects.filter(settled_at=None).exists()


def test_a_refused_delivery_is_in_the_timeline_and_is_tried_again(
    operator: Actor, agent: Agent, releases: list[Release], receiver: PlanReceiver, console: Client
) -> None:
    serving_change(operator, agent, **NO_GATE, webhook_url=receiver.url)
    plans_send()
    receiver.status = 500
    ramp = deployment_start(operator, releases[1], strategy="canary", rule=RULE)
    assert plans_send() == 0 == plans_send()  # it waits a minute
    assert len(receiver.came) == 2
    for _ in range(MOST_TRIES):
        PlanDelivery.objects.update(try_after=timezone.now())
        plans_send()
    assert len(receiver.came) == 1 + MOST_TRIES  # and no more
    refused = "The webhook of clerk did not take it: It answered 500."
    assert [(kind, note.startswith(refused)) for kind, note in lines(ramp)] == [("untold", True)] * 2
    assert lines(ramp)[1][1].endswith("given up.")
    page = html(console.get(f"/deployments/{ramp.pk}/"))
    assert "Webhook not notified" in page and "It answered 500. It is tried again." in page
    receiver.status = 200
    PlanDelivery.objects.update(tries=3, try_after=timezone.now())
    assert plans_send() == 1 and lines(ramp)[-1] == ("told", "")


def test_the_address_is_set_on_the_page_which_shows_the_secret_to_those_who_deploy(
    operator: Actor, agent: Agent, stella: Any, console: Client, receiver: PlanReceiver, settings: Any
) -> None:
    path, secret = f"/agents/{agent.pk}/serving/", serving_secret(agent.organization_id)
    sent = {"while_away_usd": "0", "margin": "5", "most_unsafe": "10", "webhook_url": receiver.url}
    assert secret not in console.get(path).content.decode()
    assert console.post(path, sent).status_code == 302
    assert AgentServing.objects.get(agent=agent).webhook_url == receiver.url
    page = console.get(path)
    assert secret in page.content.decode() and "no-store" in page["Cache-Control"]
    viewer = Client()
    viewer.force_login(stella)
    assert secret not in viewer.get(path).content.decode()
    settings.OUTBOUND_ALLOW = ()
    refused = console.post(path, sent | {"webhook_url": "http://127.0.0.1:1/"})
    assert refused.status_code == 400 and "private network" in html(refused)
    with pytest.raises(Invalid):
        serving_change(operator, agent, **NO_GATE, webhook_url="ftp://nope")
