"""Mails are in an outbox: none is lost, none is sent twice, and none reports an event that did not happen."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.db import transaction
from django.utils import timezone

from agentcore_site.lib.backoff import MOST_TRIES
from agentcore_site.settings import CELERY_BEAT_SCHEDULE
from agentcore_site.tenancy.mails import mail_queue, mail_send, mails_due, mails_send
from agentcore_site.tenancy.models import Mail, Organization
from agentcore_site.tenancy.tasks import mails

pytestmark = pytest.mark.django_db
LETTER: dict[str, Any] = {"to": ["bob@example.org"], "subject": "Hello", "body": "Your link: https://x/secret"}


def due_again() -> None:
    Mail.objects.update(try_after=timezone.now() - timedelta(seconds=1))


def test_a_mail_is_sent_once_and_its_text_is_not_kept(acme: Organization) -> None:
    mail_queue(acme, **LETTER)
    assert mail.outbox == []  # nothing is sent in the request itself
    assert mails() == 1 and mails() == 0
    [letter] = mail.outbox
    assert (letter.to, letter.subject, letter.body) == (["bob@example.org"], "Hello", LETTER["body"])
    row = Mail.objects.get()
    assert row.sent_at and row.body == "" and row.error == ""


def test_a_mail_of_a_rolled_back_transaction_is_not_sent(acme: Organization) -> None:
    with pytest.raises(RuntimeError), transaction.atomic():
        mail_queue(acme, **LETTER)
        raise RuntimeError
    assert mails_send() == 0 and mail.outbox == []


def test_a_key_queues_one_mail_and_no_address_queues_none(acme: Organization, elsewhere: Organization) -> None:
    assert mail_queue(acme, **LETTER, key="alert 1") is not None
    assert mail_queue(acme, **LETTER, key="alert 1") is None
    assert mail_queue(elsewhere, **LETTER, key="alert 1") is not None
    assert mail_queue(acme, **LETTER | {"to": ["", ""]}) is None
    assert Mail.objects.count() == 2


def test_a_mail_server_that_is_away_is_asked_again_later_and_later(acme: Organization, settings: Any) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 1
    mail_queue(acme, **LETTER)
    waits = []
    for tries in range(1, 4):
        assert mails_send() == 0
        row = Mail.objects.get()
        assert row.tries == tries and row.error.startswith("ConnectionRefusedError") and row.sent_at is None
        assert list(mails_due()) == []
        waits.append(row.try_after - timezone.now())
        due_again()
    assert waits == sorted(waits) and waits[2] > 3 * waits[0]
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    assert mails_send() == 1 and len(mail.outbox) == 1


def test_outbox_gives_up_after_ten_tries_and_leaves_the_reason(acme: Organization) -> None:
    mail_queue(acme, **LETTER)
    Mail.objects.update(tries=MOST_TRIES, error="ConnectionRefusedError")
    assert mails_send() == 0 and Mail.objects.get().error


def test_one_bad_mail_holds_up_no_other(acme: Organization) -> None:
    mail_queue(acme, **LETTER | {"to": ["bob@example.org\nBcc: eve@example.org"]})
    mail_queue(acme, **LETTER)
    assert mails_send() == 1 and mail.outbox[0].to == ["bob@example.org"]
    assert Mail.objects.get(sent_at=None).error.startswith("BadHeaderError")


def test_two_workers_send_a_mail_once(acme: Organization) -> None:
    mail_queue(acme, **LETTER)
    one, same = Mail.objects.get(), Mail.objects.get()
    assert mail_send(one) and not mail_send(same)
    assert len(mail.outbox) == 1


def test_blind_copies_hide_their_recipients(acme: Organization) -> None:
    mail_queue(acme, **LETTER | {"to": ["a@example.org", "b@example.org"]}, blind=True)
    mails_send()
    [letter] = mail.outbox
    assert letter.to == [] and letter.bcc == ["a@example.org", "b@example.org"]


def test_sent_mails_are_deleted_after_a_month_and_the_beat_sends(acme: Organization) -> None:
    mail_queue(acme, **LETTER)
    mails_send()
    Mail.objects.update(sent_at=timezone.now() - timedelta(days=31))
    mails_send()
    assert not Mail.objects.exists()
    assert CELERY_BEAT_SCHEDULE["tenancy.mails"]["schedule"] <= 10


def test_the_admin_shows_the_status_and_never_the_text(acme: Organization, adam: Any, client: Any) -> None:
    mail_queue(acme, **LETTER)
    client.force_login(adam)
    listed = client.get("/admin/tenancy/mail/").content.decode()
    assert "Hello" in listed and "waiting" in listed and "secret" not in listed
    page = client.get(f"/admin/tenancy/mail/{Mail.objects.get().id}/change/").content.decode()
    assert "bob@example.org" in page and "secret" not in page
