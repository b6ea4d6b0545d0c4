"""Webhooks: every committed event arrives, by one id, signed, also when a process dies; and none before its commit."""

from __future__ import annotations

import json
import random
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from agentcore_site.audit.models import AuditEvent
from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import Job, Reason, Status
from agentcore_site.lib.errors import Conflict, Forbidden, Invalid, Missing
from agentcore_site.lib.retention import rules
from agentcore_site.notices import delivery
from agentcore_site.notices.delivery import WAITS, deliveries_make
from agentcore_site.notices.events import event_record
from agentcore_site.notices.fan_out import events_fan_out
from agentcore_site.notices.models import (
    EndpointFormat,
    Notice,
    SiteEvent,
    WebhookAttempt,
    WebhookDelivery,
    WebhookEndpoint,
)
from agentcore_site.notices.selectors import delivery_get, endpoint_get, endpoints_visible
from agentcore_site.notices.services import (
    delivery_again,
    endpoint_create,
    endpoint_remove,
    endpoint_rotate,
    endpoint_test,
    endpoint_update,
)
from agentcore_site.tenancy.mails import mails_send
from agentcore_site.tenancy.models import Organization
from tests.support.callers import Caller
from tests.support.pages import html
from tests.support.receiver import WebhookReceiver
from tests.support.respawning import respawning
from tests.support.rounds import rounds
from tests.support.workers import eventually

pytestmark = pytest.mark.django_db(transaction=True)
KILLS, ARRIVED = rounds((5, 12), (12, 30))
SENDER = (
    "from agentcore_site.notices.delivery import deliveries_make; "
    "from agentcore_site.notices.fan_out import events_fan_out"
)


def event_of(organization: Organization, n: int = 0, type: str = "job.failed", **extra: Any) -> SiteEvent:
    return event_record(organization, type, text=f"Job {n} failed.", data={"n": n}, path="/jobs/1/", **extra)


def due_now() -> None:
    """As if the time of the next try had come."""
    WebhookDelivery.objects.update(try_after=timezone.now() - timedelta(seconds=1))


def sent() -> int:
    events_fan_out()
    return deliveries_make()


def test_an_event_arrives_once_signed_as_the_standard_says(
    adam: Any, acme: Organization, elsewhere: Organization, receiver: WebhookReceiver, settings: Any
) -> None:
    settings.PUBLIC_URL = "https://agentcore.example.org"
    made = endpoint_create(adam, acme, url=receiver.url, name="ours", types=["job.failed"])
    one = event_of(acme)
    event_of(acme, type="job.completed")  # not asked for
    event_of(elsewhere)  # another's
    assert sent() == 1 and sent() == 0
    [(headers, body)] = receiver.came
    read = Webhook(made.secret).verify(body, headers)
    assert headers["webhook-id"] == str(one.pk)
    assert (read["type"], read["timestamp"]) == ("job.failed", one.created_at.isoformat())
    expected = {"n": 0, "organization": "acme", "text": "Job 0 failed.", "url": "https://agentcore.example.org/jobs/1/"}
    assert read["data"] == expected
    with pytest.raises(WebhookVerificationError):
        Webhook(made.secret).verify(body + b" ", headers)
    attempt = WebhookAttempt.objects.get()
    assert (attempt.status, attempt.error, attempt.next_at) == (200, "", None)
    assert attempt.answer.startswith("noted by") and "jo@" not in attempt.answer  # without personal data


def test_a_rolled_back_event_is_not_sent_and_a_late_commit_is(
    adam: Any, acme: Organization, receiver: WebhookReceiver
) -> None:
    endpoint_create(adam, acme, url=receiver.url, name="ours")
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        event_of(acme)
        raise ZeroDivisionError
    assert sent() == 0
    held, go_on = threading.Event(), threading.Event()

    def late() -> None:
        with transaction.atomic():
            event_of(acme, 1)
            held.set()
            go_on.wait(10)
        connection.close()

    thread = threading.Thread(target=late)
    thread.start()
    held.wait(10)
    event_of(acme, 2)
    assert sent() == 1  # the later one, before the earlier one committed
    go_on.set()
    thread.join()
    assert sent() == 1 and [one["data"]["n"] for one in receiver.bodies().values()] == [2, 1]


def test_a_failed_delivery_is_tried_again_with_growing_delays_and_then_given_up(
    adam: Any, acme: Organization, receiver: WebhookReceiver
) -> None:
    endpoint_create(adam, acme, url=receiver.url, name="ours")
    receiver.moods = ["lost"]
    event_of(acme)
    for wait in WAITS:
        assert sent() == 0
        row = WebhookDelivery.objects.get()
        assert 0.85 * wait < (row.try_after - timezone.now()).total_seconds() < 1.15 * wait and row.waits
        before = len(receiver.came)
        assert sent() == 0 and len(receiver.came) == before  # not before its time
        due_now()
    assert sent() == 0
    row = WebhookDelivery.objects.get()
    assert row.given_up_at and row.tries == len(WAITS) + 1 == len(receiver.came) and len(receiver.bodies()) == 1
    due_now()
    assert sent() == 0 and len(receiver.came) == len(WAITS) + 1
    receiver.moods = ["taken"]
    delivery_again(adam, delivery_get(adam, row.pk))
    assert sent() == 1 and len(receiver.bodies()) == 1  # by the same id
    assert WebhookEndpoint.objects.get().failing_since is None


def test_an_endpoint_that_fails_for_days_or_is_gone_is_switched_off_and_its_owner_notified(
    adam: Any, olivia: Any, acme: Organization, receiver: WebhookReceiver
) -> None:
    made = endpoint_create(adam, acme, url=receiver.url, name="ours")
    receiver.moods = ["refused"]
    event_of(acme)
    sent()
    WebhookEndpoint.objects.update(failing_since=timezone.now() - timedelta(days=6))
    due_now()
    sent()
    row = WebhookEndpoint.objects.get()
    assert not row.on and row.off_reason == "It took nothing for 5 days."
    events_fan_out()
    assert [one.user for one in Notice.objects.filter(event__type="webhook.switched_off")] == [adam]
    assert mails_send() == 1 and "switched off" in mail.outbox[0].subject and mail.outbox[0].bcc == [adam.email]
    event_of(acme, 1)
    due_now()
    assert sent() == 0 and WebhookAttempt.objects.count() == 2
    receiver.moods = ["taken"]
    endpoint_update(adam, made.endpoint, on=True)
    assert sent() == 1  # what waited; what happened meanwhile was not for it
    receiver.moods = ["gone"]
    event_of(acme, 2)
    sent()
    assert not WebhookEndpoint.objects.get().on
    own = endpoint_create(olivia, acme, url=receiver.url, name="mine", own=True)
    event_of(acme, 3, owner=olivia)
    sent()
    assert not WebhookEndpoint.objects.get(pk=own.endpoint.pk).on
    assert mails_send() == 2 and mail.outbox[-1].bcc == [olivia.email]


def test_an_old_and_a_new_secret_both_sign_for_a_day(adam: Any, acme: Organization, receiver: WebhookReceiver) -> None:
    old = endpoint_create(adam, acme, url=receiver.url, name="ours")
    new = endpoint_rotate(adam, old.endpoint)
    event_of(acme)
    sent()
    [(headers, body)] = receiver.came
    assert Webhook(old.secret).verify(body, headers) == Webhook(new.secret).verify(body, headers)
    WebhookEndpoint.objects.update(former_until=timezone.now() - timedelta(seconds=1))
    event_of(acme, 1)
    sent()
    headers, body = receiver.came[1]
    Webhook(new.secret).verify(body, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(old.secret).verify(body, headers)
    assert new.secret not in json.dumps(list(WebhookEndpoint.objects.values()), default=str)


def test_one_slow_or_dead_endpoint_keeps_no_other_waiting(
    adam: Any, acme: Organization, receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "TIMEOUT_SECONDS", 2.0)
    endpoint_create(adam, acme, url="http://127.0.0.1:1/", name="dead")
    endpoint_create(adam, acme, url=receiver.url, name="ours")
    for n in range(40):
        event_of(acme, n)
    began = time.monotonic()
    assert sent() == 40 and time.monotonic() - began < 20
    assert len(receiver.bodies()) == 40


def test_addresses_inside_are_refused_when_saved_and_when_called(
    adam: Any, acme: Organization, receiver: WebhookReceiver, settings: Any
) -> None:
    for url in ("http://169.254.169.254/latest", "ftp://example.org", "http://2130706433/"):
        with pytest.raises(Invalid):
            endpoint_create(adam, acme, url=url, name="x")
    made = endpoint_create(adam, acme, url=receiver.url, name="ours")
    settings.OUTBOUND_ALLOW = ()  # the operator took the private network out
    done = endpoint_test(adam, made.endpoint)
    assert "private network" in done.problem and receiver.came == []


def test_a_page_is_never_quoted(adam: Any, acme: Organization, receiver: WebhookReceiver, olivia: Any) -> None:
    endpoint_create(adam, acme, url=receiver.url, name="ours")
    endpoint_create(olivia, acme, url=receiver.url, name="mine", own=True)
    receiver.moods = ["page"]
    event_of(acme)
    sent()
    receiver.moods = ["taken"]
    event_of(acme, owner=olivia)
    sent()
    quoted = WebhookAttempt.objects.exclude(answer="").select_related("delivery__endpoint")
    assert [one.delivery.endpoint.name for one in quoted] == ["ours"]


def test_chats_get_a_sentence_and_their_address_is_kept_secret(
    adam: Any, acme: Organization, receiver: WebhookReceiver
) -> None:
    secret_url = f"{receiver.url}/T000/secret"
    slack = endpoint_create(adam, acme, url=secret_url, name="chat", format=EndpointFormat.SLACK)
    endpoint_create(adam, acme, url=f"{receiver.url}/teams", name="teams", format=EndpointFormat.TEAMS)
    event_record(acme, "job.paused", text="It paused.", data={"how": "Raise it."}, path="/budgets/of-job/1/")
    assert sent() == 2
    values = {body["text"]: body for _, raw in receiver.came for body in [json.loads(raw)]}
    assert set(values) == {"It paused.\nRaise it.\n/budgets/of-job/1/"}
    assert "secret" not in json.dumps(list(WebhookEndpoint.objects.values()), default=str).replace("_secret", "")
    assert slack.secret == "" and not any("webhook-signature" in headers for headers, _ in receiver.came)
    with pytest.raises(Conflict, match="Change the address"):
        endpoint_rotate(adam, slack.endpoint)


def test_only_those_who_may_edit_see_or_change_an_organisations_webhooks_and_a_person_their_own(
    adam: Any, olivia: Any, stella: Any, charlie: Any, acme: Organization, receiver: WebhookReceiver
) -> None:
    made = endpoint_create(adam, acme, url=receiver.url, name="ours").endpoint
    own = endpoint_create(stella, acme, url=receiver.url, name="mine", own=True).endpoint
    for person in (olivia, stella):
        with pytest.raises(Forbidden):
            endpoint_create(person, acme, url=receiver.url, name="x")
        with pytest.raises(Forbidden):
            endpoint_get(person, made.pk)
    for person in (charlie, adam, olivia):
        with pytest.raises(Missing):
            endpoint_get(person, own.pk)
    with pytest.raises(Missing):
        endpoint_remove(charlie, made)
    assert list(endpoints_visible(stella)) == [own] and list(endpoints_visible(charlie)) == []
    event_of(acme, owner=olivia)
    event_of(acme, 1, owner=stella)
    assert sent() == 3  # the organisation's gets both
    stella.memberships.all().delete()
    event_of(acme, 2, owner=stella)
    assert sent() == 1  # a member who left receives nothing
    actions = set(AuditEvent.objects.filter(action__startswith="webhook.").values_list("action", flat=True))
    assert actions == {"webhook.created"}


def test_a_job_sends_events_of_start_pause_for_money_with_a_remedy_failure_and_completion(
    adam: Any, olivia: Any, acme: Organization, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentcore_site.jobs.kinds import kinds
    from agentcore_site.jobs.lease import Lease
    from tests.jobs.test_lifecycle import Counting

    monkeypatch.setitem(kinds._items, "counting", Counting())
    with transaction.atomic():
        job = lifecycle.submit(olivia, kind="counting", organization=acme, title="Router, long")

    def turn(status: str, reason: str) -> SiteEvent:
        held = lifecycle.claim(job.pk)
        assert held is not None
        with Lease(held) as lease:
            lifecycle.finish(held, lease, status=status, reason=reason, error="Why.")
        return SiteEvent.objects.latest("created_at")

    paused = turn(Status.PAUSED, Reason.BUDGET_EXCEEDED)
    assert SiteEvent.objects.filter(type="job.started").count() == 1
    assert (paused.type, paused.owner, paused.path) == ("job.paused", olivia, f"/jobs/{job.pk}/")
    assert paused.data["degraded"] and paused.data["reason"] == "budget_exceeded"
    assert "Raise its budget" in paused.data["how"] and "the budget is used up" in paused.text
    lifecycle.resume(olivia, Job.objects.get(pk=job.pk))
    failed = turn(Status.FAILED, Reason.ERROR)
    assert (failed.type, failed.data["error"]) == ("job.failed", "Why.")
    lifecycle.resume(olivia, Job.objects.get(pk=job.pk))
    assert turn(Status.COMPLETED, Reason.ALL_ITERATIONS).type == "job.completed"
    assert SiteEvent.objects.filter(type="job.started").count() == 1  # once, however often it went on
    events_fan_out()
    bell = Notice.objects.order_by("event__created_at").values_list("user__username", "event__type")
    assert list(bell) == [("olivia", "job.paused"), ("olivia", "job.failed"), ("olivia", "job.completed")]


def test_the_page_makes_a_webhook_shows_the_secret_once_sends_a_test_and_shows_the_log(
    adam: Any, acme: Organization, receiver: WebhookReceiver
) -> None:
    console = Client()
    console.force_login(adam)
    assert "No webhook yet" in html(console.get("/webhooks/"))
    made = console.post("/webhooks/new/", {"name": "ours", "url": receiver.url, "format": "standard"})
    row = WebhookEndpoint.objects.get()
    page = f"/webhooks/{row.pk}/"
    assert "whsec_" in html(made) and "no-store" in made["Cache-Control"]
    assert "whsec_" not in html(console.get(page))
    assert "accepted the test in" in html(console.post(f"{page}test/", follow=True))
    receiver.moods = ["refused"]
    shown = html(console.post(f"{page}test/", follow=True))
    assert "did not accept the test: It answered 500." in shown and ">failed" in shown and "webhook.test" in shown
    again = WebhookDelivery.objects.filter(taken_at=None).get()
    receiver.moods = ["taken"]
    console.post(f"/webhooks/deliveries/{again.pk}/again/")
    assert deliveries_make() == 1
    assert "whsec_" in html(console.post(f"{page}secret/"))
    assert console.post(page, {"name": "ours", "url": "ftp://nope"}).status_code == 400
    console.post(page, {"name": "renamed", "url": receiver.url, "types": ["job.failed"]})
    row.refresh_from_db()
    assert (row.name, row.types) == ("renamed", ["job.failed"])
    console.post(f"{page}off/")
    assert ">off<" in html(console.get("/webhooks/"))
    console.post(f"{page}remove/")
    assert not WebhookEndpoint.objects.exists() and console.get(page).status_code == 404
    actions = AuditEvent.objects.filter(action__startswith="webhook.").order_by("number")
    assert [one.action for one in actions] == [
        "webhook.created", "webhook.tested", "webhook.tested", "webhook.sent_again", "webhook.secret_made",
        "webhook.changed", "webhook.changed", "webhook.removed",
    ]  # fmt: skip


def test_programs_do_the_same_by_rest(adam: Any, olivia: Any, receiver: WebhookReceiver) -> None:
    api = Caller(adam)
    made = api.post("webhooks", {"name": "ours", "url": receiver.url, "types": ["job.failed"]}).json()
    assert made["secret"].startswith("whsec_") and "secret" not in api.get(f"webhooks/{made['id']}").json()
    done = api.post(f"webhooks/{made['id']}/test").json()
    assert done["ok"] and done["status"] == 200
    [log] = api.get(f"webhooks/{made['id']}/deliveries").json()["results"]
    assert log["type"] == "webhook.test" and log["attempts"][0]["status"] == 200
    assert api.post(f"webhook-deliveries/{log['id']}/again").status_code == 204
    assert deliveries_make() == 1
    assert len(api.get(f"webhook-deliveries/{log['id']}").json()["attempts"]) == 2
    assert api.post(f"webhooks/{made['id']}/rotate").json()["secret"] != made["secret"]
    assert api.post("webhooks", {"name": "x", "url": receiver.url, "types": ["nonsense"]}).status_code == 400
    assert Caller(olivia).get("webhooks").json()["results"] == []
    assert Caller(olivia).get(f"webhooks/{made['id']}").status_code == 403


def test_the_log_is_deleted_by_age_and_unsent_events_stay(
    adam: Any, acme: Organization, receiver: WebhookReceiver
) -> None:
    endpoint_create(adam, acme, url=receiver.url, name="ours")
    event_of(acme)
    sent()
    waits = event_of(acme, 1)
    WebhookAttempt.objects.update(at=timezone.now() - timedelta(days=31))
    SiteEvent.objects.update(created_at=timezone.now() - timedelta(days=91))
    for name in ("attempts of webhooks", "events that were told"):
        rule = rules.get(name)
        assert rule.age is not None and rule.age() == 1
    assert [one.pk for one in SiteEvent.objects.all()] == [waits.pk] and not WebhookDelivery.objects.exists()


@pytest.mark.thorough(reason="senders are killed")
def test_every_committed_event_arrives_by_one_id_though_senders_are_killed_and_the_receiver_fails(
    adam: Any, acme: Organization, receiver: WebhookReceiver
) -> None:
    endpoint_create(adam, acme, url=receiver.url, name="ours")
    receiver.moods = ["taken"] * 4 + ["refused", "lost", "cut", "slow"]
    over = threading.Event()
    committed: list[str] = []
    undone: list[str] = []

    def write(seed: int) -> None:
        draw = random.Random(seed)
        while not over.is_set():
            try:
                with transaction.atomic():
                    one = str(event_of(acme, draw.randint(0, 99)).pk)
                    time.sleep(draw.random() / 20)  # so that transactions end in another order than they began
                    if draw.random() < 0.2:
                        raise InterruptedError
                committed.append(one)
            except InterruptedError:
                undone.append(one)
        connection.close()

    writers = [threading.Thread(target=write, args=[seed]) for seed in range(2)]
    with respawning(SENDER, "events_fan_out(); deliveries_make()") as sender:
        try:
            for thread in writers:
                thread.start()
            kills, ends = 0, time.monotonic() + 60
            while kills < KILLS or (len(receiver.bodies()) < ARRIVED and time.monotonic() < ends):
                time.sleep(random.random() / 2)
                sender.kill()
                kills += 1
                due_now()  # its lease is over
        finally:
            over.set()
            for thread in writers:
                thread.join()
        receiver.moods = ["taken"]

        def all_arrived() -> bool:
            due_now()
            return set(committed) <= set(receiver.bodies())

        eventually(all_arrived, seconds=60, why="all events")
    came = [headers["webhook-id"] for headers, _ in receiver.came]
    assert set(came) == set(committed) and undone and not set(came) & set(undone)
    assert len(came) > len(set(came)) >= ARRIVED  # some came twice, by the same id
    assert SiteEvent.objects.filter(pk__in=committed).count() == len(committed)
