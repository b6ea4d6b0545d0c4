"""A usage export against a real ledger: the page and the command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command
from django.utils import timezone

from agentcore_site.lib.money import MICROS
from agentcore_site.tenancy.models import Organization
from budgets.ledger import reserve, settle
from budgets.ledger.accounts import Chain
from budgets.meter_port import Bill
from budgets.pricing import Usage
from tests.budgets.support import hold
from tests.budgets.test_pages import at_desk
from tests.support.callers import Caller
from tests.support.pages import html

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = "/budgets/reconcile/"


@pytest.fixture
def called(chain: Chain) -> str:
    """The line of a provider's file that has the one call of the ledger: $0.60 for 100 + 10 tokens of "small"."""
    reserve(hold(chain, "a", 700_000))
    settle("a", Bill(600_000, Usage(100, 10), "table"))
    reserve(hold(chain, "b", 100_000))  # on hold: no cost yet
    return f"{timezone.now():%Y-%m-%d},small,0.60,100,10"


def table(*lines: str) -> str:
    return "\n".join(["date,model,cost,input_tokens,output_tokens", *lines, ""])


def posted(person: Any, content: str, **more: Any) -> Any:
    file = SimpleUploadedFile("usage.csv", content.encode())
    return at_desk(person).post(PAGE, {"file": file, "zone": "UTC"} | more)


def test_an_operator_sees_that_the_ledger_agrees(called: str, olivia: Any) -> None:
    page = html(posted(olivia, table(called)))
    assert "The ledger agrees with the file: $0.60 and $0.60." in page
    assert "input_tokens" in page  # the columns that were guessed


def test_each_difference_is_shown_with_its_reason(called: str, olivia: Any) -> None:
    page = html(posted(olivia, table(called.replace("0.60", "0.90"), f"{called[:10]},<b>odd</b>,1,1,1")))
    assert "the provider charged 1.5 times" in page
    assert "No call of this model went through the product" in page
    assert "&lt;b&gt;odd" in page and "<b>odd" not in page


def test_a_bad_file_is_a_form_with_the_reason(olivia: Any) -> None:
    answer = posted(olivia, "date,model,cost\nyesterday,small,1\n")
    assert (answer.status_code, "is no day; write it as 2026-11-27" in html(answer)) == (400, True)
    assert posted(olivia, table(), zone="Mars").status_code == 400
    assert at_desk(olivia).post(PAGE, {"zone": "UTC"}).status_code == 400
    assert posted(olivia, "date,cost\n2025-01-01,1\n2026-11-26,1\n").status_code == 413


def test_another_organisations_calls_are_not_compared(called: str, charlie: Any) -> None:
    assert "No call of this model went through the product" in html(posted(charlie, table(called)))


@pytest.mark.parametrize(("person", "code"), [("adam", 200), ("olivia", 200), ("dan", 403), ("stella", 403)])
def test_operators_and_admins_reconcile(request: pytest.FixtureRequest, dan: Any, person: str, code: int) -> None:
    dan.memberships.update(can_export=False)
    assert at_desk(request.getfixturevalue(person)).get(PAGE).status_code == code


def test_the_command_ends_with_1_if_lines_differ(
    called: str, acme: Organization, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "usage.csv"
    file.write_text(table(called))
    call_command("reconcile", str(file), "--organization", acme.slug, "--all")
    assert "ledger $0.60, file $0.60; equal" in capsys.readouterr().out
    file.write_text(table(called.replace("0.60", "0.30")))
    with pytest.raises(SystemExit, match="1"):
        call_command("reconcile", str(file), "--organization", acme.slug)
    assert "price differs. Tokens are equal" in capsys.readouterr().out
    for arguments in ([str(tmp_path)], [str(file), "--zone", "Mars"], [str(file), "--organization", "none"]):
        with pytest.raises(CommandError):
            call_command("reconcile", *arguments)


def test_a_month_of_calls_is_summed_by_the_database(called: str, acme: Organization) -> None:
    """Sums of a quarter of an hour are those of its entries: a call that had no answer is charged, and said."""
    from budgets.models import LedgerEntry
    from budgets.selectors import ledger_use

    LedgerEntry.objects.create(
        organization_id=acme.id, at=timezone.now(), kind="charge", model="small", spent_delta_micros=MICROS
    )
    today = timezone.now().date()
    uses = ledger_use(LedgerEntry.objects.filter(organization_id=acme.id), today, today)
    assert sum(use.cost_micros for use in uses) == 1_600_000
    assert (sum(use.calls for use in uses), sum(use.charged for use in uses)) == (2, 1)


def sent(person: Any, content: str, **more: Any) -> Any:
    file = SimpleUploadedFile("usage.csv", content.encode())
    caller = Caller(person)
    return caller.client.post("/api/v1/budgets/reconcile", {"file": file, **more}, headers=caller.headers)


def test_programs_get_the_same_comparison(called: str, olivia: Any, charlie: Any, stella: Any) -> None:
    found = sent(olivia, table(called.replace("0.60", "0.90"))).json()
    assert (found["ledger_usd"], found["provider_usd"], found["agrees"]) == (0.6, 0.9, False)
    [line] = found["lines"]
    assert (line["day"], line["model"], line["reason"]) == (called[:10], "small", "price")
    assert line["ledger"]["input_tokens"] == 100 and line["difference_usd"] == -0.3
    assert "the provider charged 1.5 times" in line["why"]
    agreed = sent(olivia, table(called)).json()
    assert agreed["agrees"] and "The ledger agrees with the file" in agreed["words"]
    other = sent(charlie, table(called)).json()  # of another organisation, whose ledger has nothing
    assert other["ledger_micros"] == 0 and other["lines"][0]["ledger"] is None
    assert sent(stella, table(called)).status_code == 403


def test_a_file_that_a_program_sends_is_refused_with_the_reason(called: str, olivia: Any) -> None:
    for content, more, word in (
        ("date,model,cost\nyesterday,small,1\n", {}, "yesterday"),
        (table(called), {"zone": "Basel"}, "Europe/Berlin"),
        (table(called), {"zones": "UTC"}, "did you mean zone"),
    ):
        answer = sent(olivia, content, **more)
        assert answer.status_code == 400 and word in answer.content.decode()
