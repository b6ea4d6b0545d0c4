"""Texts of lists and logs: unknown filters, actions in words with a link, money in people's notation."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from agentcore_site.audit.action_texts import ACTIONS, action_words
from agentcore_site.audit.models import AuditEvent
from agentcore_site.audit.services import record
from agentcore_site.lib.money_format import apart, exact, money, usd
from agentcore_site.templatetags import figures
from agentcore_site.tenancy.actors import Actor
from budgets.meter_port import BudgetRefused
from experiences.models import Agent
from tests.console.conftest import SignIn
from tests.console.test_lists import jobs
from tests.factories import AgentFactory
from tests.support.pages import html
from tests.support.rounds import one_in
from tests.test_doors import values
from training.models import TrainingRun

__all__ = ["values"]  # a fixture: a row of everything
LISTS = (
    "/jobs/", "/agents/", "/trajectories/", "/evaluations/", "/suites/", "/releases/", "/deployments/", "/traces/",
    "/keys/", "/events/", "/events/dead-letters/", "/events/trainings/", "/checkpoints/", "/datasets/", "/exports/",
    "/archives/", "/webhooks/", "/notices/", "/share-links/", "/experiences/", "/playbooks/", "/reviews/",
    "/prompt-packs/", "/endpoints/", "/tool-servers/", "/budgets/", "/budgets/prices/", "/audit/", "/system/",
)  # fmt: skip
ROOT = Path(__file__).resolve().parents[2]
APPS = ("agentcore_site", "budgets", "experiences", "training", "evaluation")


# -- filters that a list doesn't know ----------------------------------------------------------------------------------


@pytest.mark.django_db
def test_no_list_ignores_an_unknown_filter_in_silence(adam: Any, signed_in: SignIn, values: dict[str, Any]) -> None:
    client = signed_in(adam)
    asked = 0
    for address in LISTS:
        plain, odd = html(client.get(address)), html(client.get(f"{address}?sort=newest&colour=red&cursor=x"))
        assert "This list has no filter" not in plain, address
        if 'id="list"' not in plain:
            continue  # nothing was ever there, so that nothing is narrowed
        asked += 1
        assert "This list has no filter “colour”." in odd, address
        assert f'href="{address}?sort=newest">Remove it from the address' in odd, address
    assert asked >= 22


@pytest.mark.django_db
def test_a_list_without_a_search_says_that_the_search_was_ignored(
    adam: Any, signed_in: SignIn, values: dict[str, Any], run: TrainingRun
) -> None:
    client = signed_in(adam)
    searched, unsearched = set(), set()
    playbook, budget = f"/agents/{run.agent_id}/playbook/?tab=versions", f"/budgets/{values['budget_id']}/"
    for address in (*LISTS, playbook, budget):
        page = html(client.get(f"{address}{'&' if '?' in address else '?'}q=nothing+is+called+so"))
        if 'id="list"' in page or address in (playbook, budget):
            offers = 'name="q" value="nothing is called so"' in page
            assert offers is ("This list has no filter “q”." not in page), address
            (searched if offers else unsearched).add(address)
    assert unsearched == {"/checkpoints/", playbook, budget} and len(searched) >= 20
    assert client.get("/checkpoints/?as=csv&q=x").status_code == 400


@pytest.mark.django_db
@pytest.mark.rounds
def test_each_filter_that_a_page_offers_is_known_to_that_page(
    adam: Any, signed_in: SignIn, values: dict[str, Any]
) -> None:
    client = signed_in(adam)
    for address in one_in(4, LISTS):
        offered = re.findall(r'<a class="chip" href="(\?[^"]+)"', html(client.get(address)))
        for one in offered:
            if "as=csv" not in one:
                shown = html(client.get(address + one.replace("&amp;", "&")))
                assert "This list has no filter" not in shown, address + one


@pytest.mark.django_db
def test_the_same_list_as_csv_refuses_such_a_filter(console: Client, run: TrainingRun) -> None:
    answer = console.get("/jobs/?as=csv&outcome=failed&colour=red")
    assert answer.status_code == 400 and "no filters “outcome” and “colour”" in html(answer)
    assert console.get("/jobs/?as=csv&status=completed").status_code == 200


# -- the audit log -----------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_the_audit_log_says_what_was_done_and_leads_there(
    adam: Any, signed_in: SignIn, run: TrainingRun, agent: Agent
) -> None:
    gone = AgentFactory(organization=agent.organization, name="Gone")
    record(Actor(adam), "agent.archived", gone)
    record(Actor(adam), "budget.changed")
    gone.delete()
    client = signed_in(adam)
    shown = html(client.get("/audit/"))
    assert '<span title="run.started">started a training job</span>' in shown and ">run.started<" not in shown
    assert '<span title="budget.changed">changed a budget</span>' in shown
    assert f'href="/jobs/{run.pk}/"' in shown
    assert ">API key</a>" in shown and ">Budget</a>" in shown
    # What is gone is named, and leads nowhere.
    assert "Gone" in shown and f"/agents/{gone.pk}/" not in shown
    # The words are found, the code is in the CSV.
    page = html(client.get("/audit/?q=changed+a+budget"))
    assert "changed a budget" in page and "started a training job" not in page
    csv = b"".join(client.get("/audit/?as=csv")).decode()
    assert "budget.changed" in csv and "changed a budget" not in csv


@pytest.mark.django_db
def test_lines_of_the_audit_log_lead_to_rows_of_the_reader_only(
    adam: Any, charlie: Any, signed_in: SignIn, run: TrainingRun
) -> None:
    record(Actor(adam), "agent.tested", AgentFactory(name="Foreign"), organization=run.organization_id)
    foreign = AuditEvent.objects.get(action="agent.tested").target_id
    assert f"/agents/{foreign}/" not in html(signed_in(adam).get("/audit/"))


@pytest.mark.django_db
def test_fifty_lines_cost_the_questions_of_one(
    adam: Any, signed_in: SignIn, operator: Actor, agent: Agent, django_assert_max_num_queries: Any
) -> None:
    client = signed_in(adam)
    jobs(operator, agent, [f"run {n}" for n in range(12)])
    client.get("/audit/")
    with django_assert_max_num_queries(30):
        assert html(client.get("/audit/")).count("started a training job") == 12


def test_every_action_that_is_recorded_has_words() -> None:
    assert [one for one in sorted(_recorded()) if one not in ACTIONS] == []
    assert action_words("flux_capacitor.charged") == "charged (flux capacitor)"


def _recorded() -> set[str]:
    """The actions in the calls of ``record`` and ``archive``, where they are written out."""
    names = set()
    for path in (one for app in APPS for one in (ROOT / app).rglob("*.py")):
        for call in (one for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, ast.Call)):
            if getattr(call.func, "id", "") in ("record", "archive"):
                texts = (getattr(one, "value", None) for one in call.args)
                names |= {one for one in texts if isinstance(one, str) and re.fullmatch(r"[a-z_]+\.[a-z_]+", one)}
    assert len(names) > 80
    return names


# -- money -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amount", "said", "whole"),
    [
        (148_083, "$0.15", "$0.148083"),
        (0, "$0.00", "$0.00"),
        (155, "$0.000155", "$0.000155"),
        (9_999, "$0.009999", "$0.009999"),
        (10_000, "$0.01", "$0.01"),
        (1_234_567_891, "$1,234.57", "$1,234.567891"),
        (-1_500_000, "−$1.50", "−$1.50"),
    ],
)
def test_money_is_rounded_on_pages_and_exact_in_the_ledger(amount: int, said: str, whole: str) -> None:
    assert (money(amount), exact(amount)) == (said, whole)


def test_an_average_under_a_cent_has_four_significant_digits() -> None:
    assert usd(0.000_148_083) == "$0.0001481" and usd(0.004) == "$0.004" and usd(-0.004) == "−$0.004"


def test_amounts_that_are_compared_never_read_the_same() -> None:
    assert apart(148_083, 2_000_000) == ["$0.15", "$2.00"]
    assert apart(148_083, 147_999) == ["$0.148083", "$0.147999"]
    assert "it may cost $0.148083 and $0.147999 of" in str(BudgetRefused("job", 147_999, 0, 0, 148_083))


def test_the_exact_amount_is_shown_on_hover() -> None:
    assert figures.money(148_083) == '<span title="$0.148083">$0.15</span>'
    assert figures.money(150_000) == "$0.15" and figures.money_text(148_083) == "$0.15"
