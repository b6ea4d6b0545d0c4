"""The admin's index shows the models that people edit with their figures; one search looks through all records."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.contrib import admin
from django.contrib.staticfiles import finders
from django.db import connection
from django.db.models import FloatField, Func, Value
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agentcore_site import admin_search
from agentcore_site.admin_index import FIGURES
from agentcore_site.jobs.models import Job, Status
from agentcore_site.notices.models import WebhookEndpoint
from agentcore_site.tenancy.models import ApiKey, Invitation, Membership, Organization
from agentcore_site.tenancy.roles import Role
from agentcore_site.theme import EDITED
from budgets.ledger.accounts import owners
from budgets.models import Budget, ModelPrice
from budgets.services import limit_change
from experiences.models import Agent
from tests import factories
from tests.admin.test_admin import address, boss, everything
from tests.support.pages import html
from training.models import TrainingRun

__all__ = ["boss", "everything"]
pytestmark = pytest.mark.django_db

DOLLAR = 1_000_000
INDEX, SEARCH = "/admin/", "/admin/records/"


@pytest.fixture
def carla(elsewhere: Organization) -> Client:
    """The admin of another organisation."""
    carla = factories.UserFactory(username="carla", is_staff=True, email="carla@elsewhere.example")
    factories.MembershipFactory(organization=elsewhere, user=carla, role=Role.ADMIN)
    client = Client()
    client.force_login(carla)
    return client


def cards(client: Client) -> dict[str, Any]:
    return {card.name: card for card in client.get(INDEX).context["cards"]}


def test_index_has_ten_models_with_figures_and_folds_the_records(boss: Client, everything: TrainingRun) -> None:
    page = boss.get(INDEX)
    assert len(page.context["cards"]) == len(EDITED) == 10 and set(FIGURES) == set(EDITED)
    folded = [model["model"] for app in page.context["records"] for model in app["models"]]
    assert len(folded) + 10 == len(admin.site._registry) and Budget not in folded
    shown = html(page)
    assert shown.index("house-cards") < shown.index('<details class="house-records">')
    for card in page.context["cards"]:
        assert f'href="{card.url}"' in shown and card.figure in shown and card.note in shown


def test_figures_are_those_of_the_rows(boss: Client, acme: Organization, agent: Agent, adam: Any) -> None:
    now = timezone.now()
    limit_change(None, owners(acme.id)[0], 20 * DOLLAR)
    Budget.objects.filter(scope="organization").update(spent_micros=3_120_000)
    used_up = owners(acme.id, agent.id)[1]
    limit_change(None, used_up, 0)
    for status in (Status.RUNNING, Status.RUNNING, Status.QUEUED, Status.COMPLETED):
        Job.objects.create(organization=acme, kind="training", status=status)
    factories.AgentFactory(organization=acme, archived_at=now)
    factories.ModelEndpointFactory(organization=acme)
    day = now.date()
    for model, valid_from, free in (("a", day, False), ("b", day, True), ("c", day + timedelta(days=2), False)):
        ModelPrice.objects.create(
            organization=acme, model=model, valid_from=valid_from, input_micros=1, output_micros=1, free=free
        )
    for n, (expires, used) in enumerate(((now + timedelta(days=1), now), (now - timedelta(days=1), None))):
        ApiKey.objects.create(
            organization=acme, user=adam, name="k", prefix="p", digest=str(n), expires_at=expires, last_used_at=used
        )
    for n, days in enumerate((1, -1)):
        Invitation.objects.create(
            organization=acme, email=f"{n}@example.org", digest=str(n), expires_at=now + timedelta(days=days)
        )
    for name, failing in (("x", None), ("y", now)):
        WebhookEndpoint.objects.create(
            organization=acme, name=name, url="https://example.org", sealed_secret="s", failing_since=failing
        )
    found = cards(boss)
    assert (found["Budgets"].figure, found["Budgets"].share) == ("$3.12 of $20.00", pytest.approx(0.156))
    assert found["Budgets"].note == "spent this month; 1 budget used up"
    assert (found["Jobs"].figure, found["Jobs"].note) == ("2 running", "1 queued, 0 paused")
    assert (found["Agents"].figure, found["Agents"].note) == ("1", "in use, 1 archived")
    assert found["Model endpoints"].figure == "1"
    assert (found["Model prices"].figure, found["Model prices"].note) == ("2", "models with a price, 1 of them free")
    assert (found["API keys"].figure, found["API keys"].note) == ("1", "valid, 1 used in 30 days")
    assert (found["Invitations"].figure, found["Invitations"].note) == ("1", "open, 1 expired without an answer")
    assert (found["Webhook endpoints"].figure, found["Webhook endpoints"].note) == ("2", "on, 1 of them failing")
    admins = Membership.objects.filter(role=Role.ADMIN).count()
    assert found["Memberships"].figure == f"{Membership.objects.count()}"
    assert found["Memberships"].note == f"members, {admins} of them admins"


def test_figures_of_an_organisations_admin_are_their_own(
    carla: Client, everything: TrainingRun, elsewhere: Organization
) -> None:
    found = cards(carla)
    assert found["Agents"].figure == "0" and found["Jobs"].figure == "0 running" and found["Budgets"].figure == "$0.00"
    assert found["Organisations"].figure == "1" and found["Memberships"].figure == "1"
    assert everything.agent.name not in html(carla.get(INDEX))


def test_index_asks_one_statement_for_each_figure(boss: Client, everything: TrainingRun) -> None:
    with CaptureQueriesContext(connection) as few:
        boss.get(INDEX)
    for _ in range(3):
        factories.AgentFactory(organization=everything.organization)
        factories.MembershipFactory(organization=everything.organization, user=factories.UserFactory())
    with CaptureQueriesContext(connection) as more:
        boss.get(INDEX)
    assert len(more) == len(few) <= 18, [one["sql"][:120] for one in more]


def test_staff_without_rights_read_why_the_index_is_empty() -> None:
    client = Client()
    client.force_login(factories.UserFactory(username="helper", is_staff=True))
    assert "may not see or edit anything here" in html(client.get(INDEX))


def test_menu_folds_records_unless_one_is_open(boss: Client, everything: TrainingRun) -> None:
    assert '<details class="house-menu">' in html(boss.get(address(Agent, "changelist")))
    opened = html(boss.get("/admin/budgets/ledgerentry/"))
    assert '<details class="house-menu" open>' in opened
    assert re.search(r'href="/admin/budgets/ledgerentry/"\s+aria-current="page"', opened)


# -- the search --------------------------------------------------------------------------------------------------------


def found(client: Client, term: str) -> dict[str, list[str]]:
    page = client.get(SEARCH, {"q": term})
    assert page.status_code == 200
    return {group.title: [hit.title for hit in group.hits] for group in page.context["search"].groups}


def test_search_finds_rows_of_all_models_by_name_mail_and_id(boss: Client, everything: TrainingRun) -> None:
    hits = found(boss, everything.agent.slug)
    assert everything.agent.name in hits["Agents"] and len(hits) > 3
    assert next(iter(hits)) == "Agents"  # what people edit comes first
    by_id = found(boss, str(everything.job_id))
    assert "Jobs" in by_id and "Ledger entries" in by_id and "Trajectories" in by_id and "Training runs" in by_id
    assert "Invitations" in found(boss, "new@example.org")
    assert found(boss, str(everything.agent_id))["Agents"] == [everything.agent.name]


def test_hits_open(boss: Client, everything: TrainingRun) -> None:
    groups = boss.get(SEARCH, {"q": str(everything.job_id)}).context["search"].groups
    for group in groups:
        assert boss.get(group.hits[0].url).status_code == 200, group.title


def test_search_shows_five_hits_of_a_model_and_the_way_to_all(boss: Client, acme: Organization) -> None:
    for n in range(7):
        factories.AgentFactory(organization=acme, name=f"Courier {n}")
    page = boss.get(SEARCH, {"q": "courier"})
    [group] = page.context["search"].groups
    assert len(group.hits) == 5 and group.all_url in html(page)
    assert len(boss.get(group.all_url).context["cl"].result_list) == 7


def test_search_stays_within_the_persons_organisations(
    carla: Client, everything: TrainingRun, elsewhere: Organization
) -> None:
    own = factories.AgentFactory(organization=elsewhere, name="Own courier")
    for term in (everything.agent.slug, str(everything.job_id), str(everything.agent_id), "question", "adam"):
        assert found(carla, term) == {}, term
    assert found(carla, "courier") == {"Agents": [own.name]}
    assert "Memberships" in found(carla, "carla@elsewhere.example")


def test_search_takes_few_statements(boss: Client, everything: TrainingRun) -> None:
    searched = boss.get(SEARCH, {"q": "olivia"}).context["search"].searched
    with CaptureQueriesContext(connection) as asked:
        boss.get(SEARCH, {"q": everything.agent.slug})
    assert len(asked) <= searched + 25, [one["sql"][:160] for one in asked]


def test_search_says_what_is_wrong_with_a_text_and_when_it_found_nothing(boss: Client) -> None:
    assert "Finds records of all models" in html(boss.get(SEARCH))
    nothing = html(boss.get(SEARCH, {"q": "<b>nowhere"}))
    assert "Nothing found for “&lt;b&gt;nowhere”" in nothing
    short, long = boss.get(SEARCH, {"q": "a"}), boss.get(SEARCH, {"q": "a" * 201})
    assert short.status_code == long.status_code == 400
    assert "Type at least 2 characters" in html(short) and "this text has 201" in html(long)
    assert boss.get(SEARCH, {"q": "a\x00b"}).status_code == 400
    assert boss.get(SEARCH, {"q": "99999999999999999999"}).status_code == 200
    assert found(boss, str(uuid4())) == {}


def test_a_list_that_takes_too_long_is_named_and_holds_up_no_other(
    boss: Client, everything: TrainingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = admin.site._registry[Agent]
    slow = Func(Value(2.0), function="pg_sleep", output_field=FloatField())
    read = page.get_queryset
    monkeypatch.setattr(page, "get_queryset", lambda request: read(request).annotate(slow=slow))
    monkeypatch.setattr(admin_search, "MODEL_MS", 50)
    answer = boss.get(SEARCH, {"q": everything.agent.slug})
    search = answer.context["search"]
    assert "Agents" in search.late and "Agents" in html(answer).split("took too long in:")[1][:200]
    assert [group.title for group in search.groups if group.title == "Training runs"] == ["Training runs"]


def test_people_without_the_admin_do_not_search(client: Client, olivia: Any) -> None:
    client.force_login(olivia)
    assert client.get(SEARCH, {"q": "agent"}).status_code == 302


def test_menus_search_leads_to_the_records(boss: Client) -> None:
    shown = html(boss.get("/admin/search/", {"s": "cou & rier"}))
    assert f'href="{SEARCH}?q=cou%20%26%20rier"' in shown


def test_tokens_of_the_admin_are_those_of_the_console() -> None:
    style, console = (Path(str(finders.find(f"css/{one}.css"))).read_text() for one in ("admin", "console"))
    tokens = re.findall(r"^  (--[\w-]+: light-dark\(.*\);)$", style, re.M)
    assert len(tokens) > 15
    for token in tokens:
        assert token in console, token
