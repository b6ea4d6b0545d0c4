"""REST: alerts of budgets, and where they are sent."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django_filters import rest_framework as filters
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.lib.errors import Missing
from agentcore_site.rest.filters import Flag
from agentcore_site.rest.money import Money, Usd, UsdIn
from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.shapes import Shape
from agentcore_site.rest.views import ScopedViewSet
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.permissions import current_organization, require
from budgets.alerts.webhooks import webhook_secret
from budgets.models import AlertKind, Budget, BudgetAlert
from budgets.selectors import alerts_visible
from budgets.services import budget_secret_renew, budget_settings_set, settings_of


class AlertOut(Shape):
    id = serializers.UUIDField()
    budget_id = serializers.IntegerField()
    alert_kind = serializers.ChoiceField(choices=AlertKind.choices, source="kind")
    threshold = serializers.IntegerField(help_text="Per cent of the limit: 75, 90 or 100; 0 for other kinds.")
    limit = Money(help_text="That it was, 0 where there was none.")
    spent = Money()
    excess = Money(help_text="By which a bill was above its hold.")
    created_at = serializers.DateTimeField()
    mailed_at = serializers.DateTimeField(allow_null=True)
    posted_at = serializers.DateTimeField(allow_null=True, help_text="To the webhook.")
    delivered_at = serializers.DateTimeField(allow_null=True, help_text="Null: it is tried again.")
    error = serializers.CharField(help_text="Why the last try failed.")


class AlertFilters(filters.FilterSet):
    alert_kind = filters.ChoiceFilter(field_name="kind", choices=AlertKind.choices)
    budget = filters.NumberFilter(field_name="budget_id", min_value=1, max_value=2**31 - 1)
    delivered = Flag(
        field_name="delivered_at", lookup_expr="isnull", exclude=True, help_text="Only delivered, or only waiting ones."
    )

    class Meta:
        model = BudgetAlert
        fields: list[str] = []


class AlertViewSet(ScopedViewSet):
    """Alerts of budgets for admins: a share of a limit is spent, or a bill was above its hold."""

    queryset = BudgetAlert.objects.none()
    tag = "budgets"
    serializer_class = AlertOut
    filterset_class = AlertFilters
    lookup_value_converter = "uuid"

    @extend_schema(summary="List alerts of budgets")
    def list(self, request: Request) -> Response:
        return self.page(alerts_visible(self.actor), AlertOut)

    @extend_schema(summary="One alert of a budget")
    def retrieve(self, request: Request, pk: UUID) -> Response:
        row = alerts_visible(self.actor).filter(id=pk).first()
        if row is None:
            raise Missing(f"There is no alert {pk}.")
        return self.answer(row)


class BudgetSettingsOut(serializers.Serializer[Any]):
    email_admins = serializers.BooleanField(help_text="Whether alerts are mailed to the admins.")
    webhook_url = serializers.CharField(help_text="Receives each alert as a signed POST of JSON; empty: none.")
    most_per_minute_usd = Usd(source="most_per_minute_micros", allow_null=True, help_text="Null: not limited.")


class BudgetSettingsPatch(Strict):
    email_admins = serializers.BooleanField(required=False)
    webhook_url = serializers.CharField(max_length=500, required=False, allow_blank=True)
    most_per_minute_usd = UsdIn(required=False, allow_null=True, help_text="Of all calls together. Null: not limited.")


class NewBudgetSecretOut(serializers.Serializer[Any]):
    secret = serializers.CharField(help_text="Shown this once.")


class BudgetSettingsViewSet(ScopedViewSet):
    """Destinations of the organisation's alerts, and its rate of spending. For those who may edit budgets."""

    queryset = Budget.objects.none()
    tag = "budgets"
    serializer_class = BudgetSettingsOut
    lookup_field = ""  # one of an organisation
    versioned = tuple(BudgetSettingsOut._declared_fields)
    shown_once = {"secret": "secret"}

    def version_row(self, **place: Any) -> QuerySet[Any]:
        return Organization._base_manager.filter(pk=current_organization(self.actor).pk)

    @extend_schema(summary="The settings of alerts and of the spending rate")
    def retrieve(self, request: Request) -> Response:
        organization = current_organization(self.actor)
        require(self.actor, "budget.edit", organization)
        return self.answer(settings_of(organization))

    @extend_schema(
        summary="Change the settings of alerts and of the spending rate",
        description="What is not given stays.",
        request=BudgetSettingsPatch,
    )
    def partial_update(self, request: Request) -> Response:
        organization, given = current_organization(self.actor), parsed(BudgetSettingsPatch, request.data)
        require(self.actor, "budget.edit", organization)
        now = settings_of(organization)
        made = budget_settings_set(
            self.actor,
            organization,
            email_admins=given.get("email_admins", now.email_admins),
            webhook_url=given.get("webhook_url", now.webhook_url),
            most_per_minute_micros=given.get("most_per_minute_usd", now.most_per_minute_micros),
        )
        return self.answer(made)

    @extend_schema(
        summary="Make another secret that signs alerts",
        description="What is sent from now on is signed by it.",
        responses=NewBudgetSecretOut,
    )
    def secret(self, request: Request) -> Response:
        organization = current_organization(self.actor)
        require(self.actor, "budget.edit", organization)

        def work() -> Response:
            made = budget_secret_renew(self.actor, organization)
            shown = {"secret": webhook_secret(organization.id, made.secret_version)}
            return Response(NewBudgetSecretOut(shown).data)

        return self.once(request, work)
