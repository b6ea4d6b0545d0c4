"""REST addresses of what the console had alone: the audit log's webhook, encryption, asking for a higher budget, the
secret of alerts, how an agent is served. The same services, so the same refusals and lines of the audit log."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore_site.audit.models import AuditEvent
from agentcore_site.audit_export.models import AuditStream
from agentcore_site.audit_export.sending import stream_secret
from agentcore_site.encryption.models import DataKey
from agentcore_site.jobs.models import Job, Reason, Status
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Mail, Organization
from budgets.alerts.webhooks import webhook_secret
from budgets.ledger import Hold, reserve, settle
from budgets.ledger.accounts import chain_open
from budgets.models import Budget, BudgetSettings
from evaluation.serving.models import AgentServing
from experiences.models import Agent
from tests.budgets.support import bill
from tests.factories import ModelEndpointFactory
from tests.support.callers import Caller
from tests.support.rows import queued_run

pytestmark = pytest.mark.django_db

NOWHERE = "http://127.0.0.1:1/log"


def test_the_audit_log_s_webhook_is_set_tested_moved_and_removed(adam: Any, dan: Any, acme: Organization) -> None:
    caller = Caller(adam)
    assert caller.get("audit-webhook").status_code == 404
    made = caller.post("audit-webhook", {"url": NOWHERE})
    assert made.status_code == 201 and made.json()["secret"] == stream_secret(acme.pk, 1)
    assert caller.post("audit-webhook", {"url": NOWHERE}).status_code == 409
    shown = caller.get("audit-webhook").json()
    assert "secret" not in shown and (shown["url"], shown["sent_lines"], shown["paused"]) == (NOWHERE, 0, False)
    assert shown["waiting_lines"] >= 1
    refused = caller.post("audit-webhook/test")
    assert refused.status_code == 409 and "did not take the test" in refused.json()["detail"]
    moved = caller.patch("audit-webhook", {"url": f"{NOWHERE}/2", "paused": True}).json()
    assert (moved["url"], moved["paused"]) == (f"{NOWHERE}/2", True)
    assert (
        caller.post("audit-webhook/restart", {"beginning": False}).json()["waiting_lines"] < shown["waiting_lines"] + 9
    )
    renewed = caller.post("audit-webhook/secret").json()
    assert renewed["secret"] == stream_secret(acme.pk, 2) and renewed["secret_version"] == 2
    assert Caller(dan).get("audit-webhook").status_code == 403
    assert caller.delete("audit-webhook").status_code == 204 and not AuditStream.objects.exists()
    did = set(AuditEvent.objects.filter(action__startswith="audit_stream.").values_list("action", flat=True))
    names = ("set", "tested", "paused", "restarted", "secret_made", "removed")
    assert did == {f"audit_stream.{one}" for one in names}


def test_encryption_is_switched_on_and_off_by_rest(adam: Any, olivia: Any, acme: Organization) -> None:
    caller = Caller(adam)
    assert caller.get("encryption").json()["on"] is False
    assert caller.post("encryption/end").status_code == 409
    on = caller.post("encryption/rotate").json()
    assert on["on"] and on["keys"][0]["version"] == 1 and on["keys"][0]["active"]
    job = Job.objects.get(pk=on["job_id"])
    assert (job.kind, job.organization_id) == ("encryption", acme.pk)
    assert caller.post("encryption/rotate").status_code == 409  # that job is under way
    assert caller.post("encryption/stop").json()["job_id"] is None
    assert caller.post("encryption/rotate").json()["keys"][0]["version"] == 2
    assert DataKey.objects.filter(organization=acme).count() == 2
    assert Caller(olivia).get("encryption").status_code == 403
    assert Caller(olivia).post("encryption/rotate").status_code == 403


def test_a_program_asks_for_a_higher_budget(adam: Any, olivia: Any, operator: Actor, agent: Agent) -> None:
    adam.email = "adam@example.org"
    adam.save()
    run = queued_run(operator, agent)
    caller = Caller(olivia)
    refused = caller.post(f"jobs/{run.pk}/raise-request")
    assert refused.status_code == 409 and "Resume it" in refused.json()["detail"]
    chain = chain_open(run.organization_id, agent_id=agent.pk, job_id=run.pk)
    Budget.objects.filter(pk=chain.job_budget).update(limit_micros=1_000)
    reserve(Hold("a", chain, 1_000, "training", "small"))
    settle("a", bill(1_000))
    Job.objects.filter(pk=run.pk).update(status=Status.PAUSED, status_reason=Reason.BUDGET_EXCEEDED)
    response = caller.post(f"jobs/{run.pk}/raise-request")
    assert response.status_code == 200 and response.json() == {"asked": ["adam"]}, response.json()
    body = Mail.objects.get().body  # to who may raise it
    assert f"/budgets/{chain.job_budget}/#limit" in body, body
    again = caller.post(f"jobs/{run.pk}/raise-request")
    assert again.status_code == 429 and int(again["Retry-After"]) > 3_000


def test_the_secret_that_signs_alerts_is_renewed_and_shown_once(adam: Any, olivia: Any, acme: Organization) -> None:
    caller = Caller(adam)
    before = BudgetSettings(organization=acme).secret_version
    made = caller.post("budget-settings/secret").json()
    row = BudgetSettings.objects.get(organization=acme)
    assert row.secret_version == before + 1 and made["secret"] == webhook_secret(acme.pk, row.secret_version)
    assert "secret" not in caller.get("budget-settings").json()
    assert Caller(olivia).post("budget-settings/secret").status_code == 403


def test_serving_settings_are_read_and_changed(olivia: Any, stella: Any, agent: Agent) -> None:
    caller = Caller(olivia)
    other = ModelEndpointFactory(organization=agent.organization)
    plain = caller.get(f"agents/{agent.slug}/serving").json()
    assert plain["fallbacks"] == [] and plain["release_id"] is None and plain["gate"]["approval"] is False
    given = {"fallbacks": [str(other.pk)], "while_away_usd": 0.5, "webhook_url": NOWHERE, "gate": {"approval": True}}
    made = caller.patch(f"agents/{agent.slug}/serving", given)
    assert made.status_code == 200 and made.json()["gate"] == plain["gate"] | {"approval": True}, made.json()
    # What is not given stays.
    kept = caller.patch(f"agents/{agent.slug}/serving", {"gate": {"margin": 0.02}}).json()
    assert kept["gate"]["approval"] is True and kept["while_away_usd"] == 0.5 and kept["webhook_url"] == NOWHERE
    assert AgentServing.objects.get(agent=agent).fallbacks == [other.pk]
    wrong = caller.patch(f"agents/{agent.slug}/serving", {"gate": {"margin": 7}})
    assert wrong.status_code == 400 and "margin" in wrong.json()["detail"]
    # Who only looks reads the rule and not the address.
    shown = Caller(stella).get(f"agents/{agent.slug}/serving").json()
    assert shown["gate"]["margin"] == 0.02 and shown["webhook_url"] == ""
    assert Caller(stella).patch(f"agents/{agent.slug}/serving", {"while_away_usd": 1}).status_code == 403
