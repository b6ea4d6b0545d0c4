"""Alerts leave once, by e-mail and by a signed webhook, and are tried again until they have."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.core import mail
from django.utils import timezone

from agentcore_site.lib.errors import Forbidden, Invalid
from agentcore_site.outbound.webhooks import WebhookFailed
from agentcore_site.tenancy.mails import mails_send
from agentcore_site.tenancy.models import Mail, Organization
from budgets.alerts.delivery import MOST_TRIES, alert_deliver, alerts_due
from budgets.alerts.webhooks import SIGNATURE, signature, webhook_post, webhook_secret
from budgets.ledger import reserve, settle
from budgets.ledger.accounts import Chain
from budgets.models import Budget, BudgetAlert, BudgetSettings, Reservation
from budgets.services import budget_settings_set
from budgets.tasks import sweep
from tests.budgets.support import balances, bill, expire, hold, limits_set

pytestmark = pytest.mark.django_db

CENT = 10_000


@dataclass
class Receiver:
    """A receiver's server: answers with ``answers``, then with 200, and keeps the requests."""

    url: str = ""
    answers: list[int] = field(default_factory=list)
    came: list[tuple[dict[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    here = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            here.came.append((dict(self.headers), body))
            status = here.answers.pop(0) if here.answers else 200
            self.send_response(status)
            self.send_header("Location", here.url + "elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    here.url = f"http://localhost:{server.server_address[1]}/hook?x=1"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield here
    server.shutdown()
    server.server_close()


@pytest.fixture
def alert(chain: Chain) -> BudgetAlert:
    """The job spent $0.80 of its $1."""
    reserve(hold(chain, "a", 80 * CENT))
    settle("a", bill(80 * CENT))
    return BudgetAlert.objects.get()


def due_again(alert: BudgetAlert) -> None:
    BudgetAlert.objects.filter(id=alert.id).update(try_after=timezone.now() - timedelta(seconds=1))
    alert.refresh_from_db()


def test_the_admins_get_a_mail_once(alert: BudgetAlert, adam: Any, olivia: Any) -> None:
    assert sweep() == (0, 1)
    assert sweep() == (0, 0)
    assert mails_send() == 1 and mails_send() == 0
    [message] = mail.outbox
    assert message.bcc == ["adam@example.com"] and message.to == []
    assert message.subject == "The budget of job Router is 80 % spent: $0.80 of $1.00"
    assert f"\nOn this site: /budgets/{alert.budget_id}/#limit\n" in message.body
    alert.refresh_from_db()
    assert alert.mailed_at and alert.delivered_at and not alert.posted_at


@pytest.mark.parametrize(
    ("spent_micros", "limit_micros", "said"),
    [
        (54_000, 60_000, "90 % spent: $0.054 of $0.06"),
        (47_500, 60_000, "79 % spent: $0.0475 of $0.06"),
        (900_000, 1_000_000, "90 % spent: $0.90 of $1.00"),
        (999_999, 1_000_000, "99 % spent: $0.999999 of $1.00"),
    ],
)
def test_the_percentage_of_a_letter_is_that_of_its_amounts(
    chain: Chain, adam: Any, spent_micros: int, limit_micros: int, said: str
) -> None:
    limits_set(chain, None, None, limit_micros)
    reserve(hold(chain, "a", spent_micros))
    settle("a", bill(spent_micros))
    assert alert_deliver(BudgetAlert.objects.latest("threshold")) and Mail.objects.latest("created_at")
    assert Mail.objects.latest("created_at").subject == f"The budget of job Router is {said}"


def test_the_webhook_gets_what_its_secret_signs(
    alert: BudgetAlert, receiver: Receiver, acme: Organization, adam: Any
) -> None:
    budget_settings_set(adam, acme, webhook_url=receiver.url, email_admins=False)
    assert sweep() == (0, 1)
    [(headers, body)] = receiver.came
    assert mails_send() == 0
    notice = json.loads(body)
    assert (notice["type"], notice["threshold_percent"], notice["spent_micros"], notice["limit_micros"]) == (
        "budget.alert", 75, 80 * CENT, 100 * CENT,
    )  # fmt: skip
    assert (notice["id"], notice["scope"], notice["organization"]) == (str(alert.id), "job", "acme")
    at = int(headers[SIGNATURE].split(",")[0].removeprefix("t="))
    assert headers[SIGNATURE] == signature(webhook_secret(acme.id, 1), body, at)
    assert headers[SIGNATURE] != signature(webhook_secret(acme.id, 2), body, at)
    assert headers["Host"].startswith("localhost:")


def test_a_webhook_that_fails_is_tried_again_and_the_mail_is_not_sent_twice(
    alert: BudgetAlert, receiver: Receiver, acme: Organization, adam: Any
) -> None:
    receiver.answers = [500, 302]
    budget_settings_set(adam, acme, webhook_url=receiver.url)
    assert sweep() == (0, 0)
    alert.refresh_from_db()
    assert (alert.error, alert.tries) == ("webhook: It answered 500.", 1)
    assert alert.try_after > timezone.now() and list(alerts_due()) == []
    due_again(alert)
    assert not alert_deliver(alert)  # a redirection is not followed
    due_again(alert)
    assert alert_deliver(alert)
    assert len(receiver.came) == 3 and Mail.objects.count() == 1
    assert len({json.loads(body)["id"] for _, body in receiver.came}) == 1


def spent_of(chain: Chain, limits: tuple[int | None, int | None, int | None]) -> BudgetAlert:
    """The one alert after $0.80 were spent under these limits, outermost first."""
    limits_set(chain, *limits)
    reserve(hold(chain, "a", 80 * CENT))
    settle("a", bill(80 * CENT))
    return BudgetAlert.objects.get()


@pytest.mark.parametrize(
    ("scope", "whose"), [("organization", "Acme Research"), ("agent", "the agent Router"), ("job", "job Router")]
)
def test_an_alert_names_the_owner_of_the_budget_by_mail_and_by_webhook(
    chain: Chain, receiver: Receiver, acme: Organization, adam: Any, agent: Any, scope: str, whose: str
) -> None:
    type(agent).objects.filter(id=agent.id).update(name="Router")
    place = ["organization", "agent", "job"].index(scope)
    alert = spent_of(chain, tuple(100 * CENT if n == place else None for n in range(3)))  # type: ignore[arg-type]
    budget_settings_set(adam, acme, webhook_url=receiver.url)
    assert sweep() == (0, 1) and mails_send() == 1
    line = f"The budget of {whose} is 80 % spent: $0.80 of $1.00"
    [message] = mail.outbox
    assert message.subject == line
    says = "Raise its limit, then resume it" if scope == "job" else "when the next month begins, or once the limit is"
    assert says in message.body
    [(_, body)] = receiver.came
    notice = json.loads(body)
    assert (notice["text"], notice["scope"], notice["kind"]) == (line, scope, "threshold")
    assert (notice["owner_id"], whose.endswith(notice["owner_name"])) == (str(alert.budget.owner_id), True)


def test_a_bill_above_its_hold_reaches_the_admins(chain: Chain, adam: Any) -> None:
    reserve(hold(chain, "a", 10 * CENT))
    settle("a", bill(13 * CENT))
    assert sweep() == (0, 1) and mails_send() == 1
    [message] = mail.outbox
    assert message.subject == "A call on the budget of Acme Research cost $0.03 more than was held for it"
    assert "compare its bill" in message.body


def test_two_sweeps_deliver_an_alert_once(alert: BudgetAlert, adam: Any) -> None:
    other = BudgetAlert.objects.get(id=alert.id)
    assert alert_deliver(alert)
    assert not alert_deliver(other)
    assert Mail.objects.count() == 1


def test_delivery_gives_up_after_ten_tries_and_leaves_the_reason(alert: BudgetAlert) -> None:
    BudgetAlert.objects.filter(id=alert.id).update(tries=MOST_TRIES, error="webhook: It answered 500.")
    assert list(alerts_due()) == []


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/", "http://localhost/", "http://[::1]/", "http://169.254.169.254/latest", "http://10.0.0.1/",
        "http://0.0.0.0/", "http://[::ffff:127.0.0.1]/", "http://100.64.0.1/",
    ],
)  # fmt: skip
def test_a_webhook_never_reaches_a_private_address(url: str, settings: Any) -> None:
    settings.OUTBOUND_ALLOW = ()
    with pytest.raises(WebhookFailed, match=r"private network|never called"):
        webhook_post(url, {}, secret="s")


def test_only_admins_say_where_alerts_go_and_only_to_web_addresses(acme: Organization, adam: Any, olivia: Any) -> None:
    with pytest.raises(Forbidden):
        budget_settings_set(olivia, acme, webhook_url="https://example.com/")
    for wrong in ("ftp://example.com/", "javascript:alert(1)", "https://", "https://user:secret@example.com/", "x"):
        with pytest.raises(Invalid):
            budget_settings_set(adam, acme, webhook_url=wrong)
    assert not BudgetSettings.objects.exists()


def test_the_sweep_charges_unsettled_holds(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("budgets.tasks.BATCH", 2)
    for n in range(5):
        reserve(hold(chain, str(n), CENT))
    expire("0", "1", "2", "3", "4")
    assert sweep()[0] == 5
    assert balances(chain) == [(5 * CENT, 0, 0)] * 3
    assert set(Reservation.objects.values_list("state", flat=True)) == {"charged"}


def test_a_budget_knows_what_is_left(chain: Chain) -> None:
    budget = Budget(limit_micros=100, spent_micros=30, reserved_micros=20, debt_micros=0)
    assert (budget.left_micros, budget.share) == (50, 0.3)
    assert (Budget(limit_micros=None).left_micros, Budget(limit_micros=None).share, Budget(limit_micros=0).share) == (
        None,
        None,
        1.0,
    )
