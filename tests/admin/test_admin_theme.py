"""The Django admin looks and speaks as the console does, and who opens it is a right of roles."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, Permission
from django.contrib.staticfiles import finders
from django.test import Client

from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.role_groups import group_name
from agentcore_site.tenancy.roles import Role, withheld
from agentcore_site.theme import HEADINGS, heading_of
from budgets.models import Budget
from tests import factories
from tests.admin.test_admin import OURS, address, boss, everything
from tests.support.rounds import one_in, rounds
from training.models import TrainingRun

__all__ = ["boss", "everything"]
pytestmark = pytest.mark.django_db

TIME = re.compile(r"\b\d{1,2} [A-Z][a-z]{2} \d{4}, \d\d:\d\d UTC")
OTHER_TIMES = re.compile(r"\b\d{1,2}(:\d\d)? [ap]\.m\.|\b(noon|midnight)\b|\b[A-Z][a-z]{2,3}\. \d{1,2}, \d{4}")


def test_every_model_is_listed_under_a_plain_heading(boss: Client, everything: TrainingRun) -> None:
    assert list(HEADINGS) == ["People", "Jobs", "Money", "Learning", "Serving", "System"]
    assert {heading_of(model) for model in admin.site._registry} == set(HEADINGS)
    shown = boss.get("/admin/")
    listed = shown.context["available_apps"]
    assert [one["name"] for one in listed] == list(HEADINGS)
    by_name = {one["name"]: [model["object_name"] for model in one["models"]] for one in listed}
    assert "Budget" in by_name["Money"] and "Membership" in by_name["People"] and "Job" in by_name["Jobs"]
    assert "Experience" in by_name["Learning"] and "Release" in by_name["Serving"] and "AuditEvent" in by_name["System"]
    assert "trajectorys" not in shown.content.decode()
    for names in by_name.values():
        assert len(names) == len(set(names))


def test_the_list_of_models_is_filtered(boss: Client, everything: TrainingRun) -> None:
    assert 'id="nav-filter"' in boss.get("/admin/").content.decode()
    result = boss.get("/admin/search/", {"s": "ledger"}).content.decode()
    assert "/admin/budgets/ledgerentry/" in result and "Money" in result and "/admin/jobs/job/" not in result
    by_heading = boss.get("/admin/search/", {"s": "money"}).content.decode()
    assert "/admin/budgets/budget/" in by_heading and "/admin/budgets/modelprice/" in by_heading


@pytest.mark.rounds
def test_admin_spells_organisation_one_way_and_writes_times_in_one_form(boss: Client, everything: TrainingRun) -> None:
    times = 0
    for model in one_in(6, OURS):
        first = model._default_manager.first()
        for page in (address(model, "changelist"), address(model, "change", first.pk)):  # type: ignore[union-attr]
            body = boss.get(page).content.decode()
            named = [one[0] for one in re.finditer(r"<(th|label|h1|h2|h3|title|caption)\b.*?</\1>", body, re.S)]
            said = [one for one in named if re.search(r"\b[Oo]rganizations?\b", re.sub(r"<[^>]*>", " ", one))]
            assert said == [], page
            words = re.sub(r"<(script|style|textarea|pre|code|option)\b.*?</\1>|<[^>]*>", " ", body, flags=re.S)
            assert [words[max(one.start() - 60, 0) : one.end()] for one in OTHER_TIMES.finditer(words)] == [], page
            times += len(TIME.findall(words))
    assert times > rounds(3, 40)


def test_a_job_s_budget_has_no_day_of_1970(boss: Client, everything: TrainingRun) -> None:
    row = Budget.objects.filter(scope="job").first()
    assert row is not None
    for page in (address(Budget, "changelist"), address(Budget, "change", row.pk)):
        shown = boss.get(page).content.decode()
        assert "1970" not in shown and "in all" in shown, page


def test_its_colours_are_the_consoles_and_the_page_has_no_inline_style(boss: Client) -> None:
    shown = boss.get("/admin/").content.decode()
    assert "css/admin.css" in shown
    style, console = (Path(str(finders.find(f"css/{one}.css"))).read_text() for one in ("admin", "console"))
    for name in ("primary-600: #2a5bb0", "base-50: #f6f6f4", "primary-500: #8ab4f8", "base-900: #191a1d"):
        assert name in style and name.rpartition(" ")[2] in console, name
    assert "oklch" not in style and ":root:root" in style  # stronger than what the theme writes into the page


def test_the_permission_to_open_the_admin_belongs_to_roles(everything: TrainingRun, acme: Organization) -> None:
    chief = factories.UserFactory(username="chief", is_staff=True)
    factories.MembershipFactory(organization=acme, user=chief, role=Role.ADMIN)
    client = Client()
    client.force_login(chief)
    assert client.get(address(Budget, "changelist")).status_code == 200
    group = Group.objects.get(name=group_name("admin"))
    group.permissions.remove(Permission.objects.get(codename="admin.open"))
    assert client.get(address(Budget, "changelist")).status_code == 403
    # What opens it lets change all that is there: other roles don't get it.
    assert "admins' alone" in withheld("operator", "admin.open")
