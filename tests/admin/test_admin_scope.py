"""A tenant's admin in the Django admin: no form, search or error shows or takes what belongs to another tenant."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any
from uuid import uuid4

import pytest
from django import forms
from django.apps import apps
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.test import Client
from django.urls import reverse

from agentcore_site.audit.models import AuditEvent
from agentcore_site.models import SiteFact, TableSize
from agentcore_site.tenancy.models import Membership, Organization
from agentcore_site.tenancy.roles import Role
from budgets.models import Budget, BudgetSettings, ModelPrice
from experiences.models import Agent
from tests import factories
from tests.support.rounds import rounds, some
from training import demo

pytestmark = pytest.mark.django_db

NONSENSE = ["x", "99999999999999999999999", "a\x00b", str(uuid4())]
FOREIGN = ("zanzibar", "zoe-of-zanzibar")


@pytest.fixture
def carla(elsewhere: Organization) -> Any:
    """Staff and admin of one organisation, beside the people and rows of another."""
    carla = factories.UserFactory(username="carla", is_staff=True)
    factories.MembershipFactory(organization=elsewhere, user=carla, role=Role.ADMIN)
    factories.MembershipFactory(organization=elsewhere, user=factories.UserFactory(username="colleague"))
    agent = factories.AgentFactory(organization=elsewhere, name="Own agent", slug="own-agent")
    factories.ModelEndpointFactory(organization=elsewhere, name="Own models")
    Budget.objects.create(
        organization=elsewhere,
        scope="agent",
        owner_id=agent.id,
        agent_id=agent.id,
        period="month",
        period_start=date.today().replace(day=1),
    )
    ModelPrice.objects.create(
        organization=elsewhere, model="small", input_micros=1, output_micros=1, valid_from=date(2026, 1, 1)
    )
    BudgetSettings.objects.create(organization=elsewhere)
    return carla


@pytest.fixture
def foreign() -> dict[Any, list[str]]:
    """Keys of another tenant's rows, by their model."""
    other = factories.OrganizationFactory(name="Zanzibar Shipping", slug="zanzibar")
    zoe = factories.UserFactory(username="zoe-of-zanzibar", first_name="Zanzibar")
    factories.MembershipFactory(organization=other, user=zoe, role=Role.ADMIN)
    agent = factories.AgentFactory(organization=other, name="Zanzibar router")
    endpoint = factories.ModelEndpointFactory(organization=other, name="Zanzibar models")
    group = Group.objects.create(name="Zanzibar group")
    SiteFact.objects.create(name="a_fact", value="v")  # of the whole site
    TableSize.objects.create(day=date(2026, 11, 1), name="a_table", size=1)
    return {
        Organization: [str(other.pk)],
        get_user_model(): [str(zoe.pk)],
        Agent: [str(agent.pk)],
        type(endpoint): [str(endpoint.pk)],
        Group: [str(group.pk)],
    }


@pytest.fixture
def client(carla: Any) -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(carla)
    return client


def addresses(model: Any) -> Iterator[str]:
    """The add form, and the change form of each row."""
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
    yield reverse(f"{name}_add")
    for row in model._default_manager.all()[: rounds(1, 3)]:
        yield reverse(f"{name}_change", args=[row.pk])


def filled(form: Any) -> dict[str, Any]:
    """The fields that a browser sends of an unchanged form, so that only the relation can be wrong."""
    sent = {name: form[name].value() for name in form.fields}
    sent = {name: value for name, value in sent.items() if value not in (None, False)}
    return {"name": "New", "slug": "new", "model": "new", "valid_from": "2026-01-01", "role": "operator"} | sent


def snapshot() -> list[Any]:
    kept = (Organization, get_user_model(), Membership, Agent, Budget, ModelPrice, BudgetSettings, Group)
    return [sorted(map(str, model._default_manager.values_list())) for model in kept] + [AuditEvent.objects.count()]


def shows(response: Any) -> list[str]:
    text = response.content.decode().lower()
    return [name for name in FOREIGN if name in text]


MODELS = [model for model in apps.get_models() if model in admin.site._registry]
# (model, field of its form) where a field chooses a row.
CHOICES = {
    ("membership", "user"), ("membership", "organization"), ("agent", "organization"), ("agent", "endpoint"),
    ("agent", "prompt_pack"), ("agent", "reflector"),
    ("budget", "organization"), ("budget", "agent"), ("modelprice", "organization"),
    ("budgetsettings", "organization"),
    ("invitation", "organization"),
}  # fmt: skip


@pytest.mark.rounds
def test_no_form_shows_or_takes_a_row_of_another_tenant(client: Client, foreign: dict[Any, list[str]]) -> None:
    tried, choosing = set(), {name for name, _ in CHOICES}
    others = some([model for model in MODELS if model._meta.model_name not in choosing], 4)
    for model in [*(model for model in MODELS if model._meta.model_name in choosing), *others]:
        for path in addresses(model):
            page = client.get(path)
            assert page.status_code in {200, 302, 403} and shows(page) == [], path
            form = page.context["adminform"].form if page.status_code == 200 else None
            if form is None or not form.fields:
                assert client.post(path, {"name": "x"}).status_code in {302, 403}, path
                continue
            for name, field in form.fields.items():
                if isinstance(field, forms.ModelChoiceField):
                    tried.add((model._meta.model_name, name))
                    for wrong in [*foreign.get(field.queryset.model, []), *some(NONSENSE, 1)]:
                        refused(client, path, form, name, wrong)
    assert tried == CHOICES


def refused(client: Client, path: str, form: Any, name: str, wrong: str) -> None:
    before = snapshot()
    answer = client.post(path, filled(form) | {name: wrong})
    where = (path, name, wrong, answer.status_code)
    assert answer.status_code == 200, where
    assert shows(answer) == [], where
    assert name in answer.context["adminform"].form.errors, where
    assert snapshot() == before, where
    if len(wrong) < 3 or wrong[0].isdigit():
        response = client.get(path, {name: wrong})  # what a link may fill in beforehand
        assert response.status_code == 200 and shows(response) == [], where


@pytest.mark.rounds
def test_no_search_filter_or_list_of_choices_shows_another_tenant(
    client: Client, foreign: dict[Any, list[str]]
) -> None:
    for model in some(MODELS, 4):
        where = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
        assert shows(client.get(where)) == [], where
        assert shows(client.get(where, {"q": "anzib"})) == [], where
        for field in model._meta.get_fields():
            if not getattr(field, "many_to_one", False) or field.related_model is None:
                continue
            known = foreign.get(field.related_model, [str(uuid4())])[0]
            response = client.get(where, {f"{field.name}__id__exact": known})
            assert response.status_code in {200, 302, 400, 403} and shows(response) == [], (where, field.name)
            values = {
                "app_label": model._meta.app_label,
                "model_name": model._meta.model_name,
                "field_name": field.name,
            }
            response = client.get(reverse("admin:autocomplete"), values | {"term": "z"})
            assert response.status_code in {200, 403, 404} and shows(response) == [], (values, response.status_code)
    nul = {"app_label": "experiences", "model_name": "agent", "field_name": "organization", "term": "a\x00b"}
    assert client.get(reverse("admin:autocomplete"), nul).status_code == 400


def test_accounts_and_groups_belong_to_the_site_even_with_a_permission_given_by_hand(
    client: Client, carla: Any, foreign: dict[Any, list[str]]
) -> None:
    """A change of an account could make it a superuser: no permission of Django's opens accounts to a tenant."""
    carla.user_permissions.set(Permission.objects.filter(content_type__app_label="auth"))
    zoe = foreign[get_user_model()][0]
    for path in (
        reverse("admin:auth_user_changelist"),
        reverse("admin:auth_user_add"),
        reverse("admin:auth_user_change", args=[zoe]),
        reverse("admin:auth_user_change", args=[carla.pk]),
        reverse("admin:auth_user_password_change", args=[zoe]),
        reverse("admin:auth_group_add"),  # the groups of roles are seen (tests/tenancy/test_role_groups.py)
    ):
        for answer in (client.get(path), client.post(path, {"is_superuser": "on", "username": "carla"})):
            assert answer.status_code in {302, 403} and shows(answer) == [], path
    carla.refresh_from_db()
    assert not carla.is_superuser


def test_an_admin_makes_memberships_only_of_people_of_their_organisation(
    client: Client, carla: Any, foreign: dict[Any, list[str]], elsewhere: Organization
) -> None:
    second = factories.OrganizationFactory(name="Second of hers")
    factories.MembershipFactory(organization=second, user=carla, role=Role.ADMIN)
    colleague = get_user_model().objects.get(username="colleague")
    values = {"organization": str(second.pk), "role": Role.OPERATOR}
    add = reverse("admin:tenancy_membership_add")
    assert client.post(add, values | {"user": foreign[get_user_model()][0]}).status_code == 200
    assert client.post(add, values | {"user": colleague.pk}).status_code == 302
    row = Membership.objects.get(organization=second, user=colleague)
    # Whose membership it is, and where, is not changed afterwards: that would be another person's, made unasked.
    change = reverse("admin:tenancy_membership_change", args=[row.pk])
    assert (
        client.post(
            change, values | {"user": carla.pk, "organization": str(elsewhere.pk), "role": Role.ADMIN}
        ).status_code
        == 302
    )
    row.refresh_from_db()
    assert (row.user_id, row.organization_id, row.role) == (colleague.pk, second.pk, Role.ADMIN)


def test_the_demos_admin_is_no_superuser_and_sees_one_organisation() -> None:
    demo.seed()
    assert not get_user_model().objects.filter(is_superuser=True).exists()
    browser = Client()
    browser.force_login(get_user_model().objects.get(username="adam"))
    listed = browser.get(reverse("admin:tenancy_organization_changelist")).content.decode()
    assert "Acme Research" in listed and "Elsewhere Ltd" not in listed
    assert browser.get(reverse("admin:index")).status_code == 200
    assert browser.get(reverse("admin:auth_user_changelist")).status_code == 403
