"""REST: budgets with their ledgers, what the money went for, and prices. Dollars are exact to a micro-dollar."""

from __future__ import annotations

from datetime import date
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet
from django_filters import rest_framework as filters
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.jobs.notifications import job_page
from agentcore_site.jobs.selectors import job_get
from agentcore_site.lib.errors import Missing
from agentcore_site.lib.links import absolute
from agentcore_site.lib.money import dollars
from agentcore_site.rest.filters import Flag
from agentcore_site.rest.money import Money, Usd, UsdIn
from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.rows import ReadViewSet
from agentcore_site.rest.shapes import Shape
from agentcore_site.rest.views import ScopedViewSet
from agentcore_site.tenancy.authentication import actor_of
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.permissions import current_organization, require
from budgets.alerts.raise_requests import raise_ask
from budgets.alerts.webhooks import webhook_secret
from budgets.forms import days_check, month_read
from budgets.models import AlertKind, Budget, BudgetAlert, EntryKind, LedgerEntry, ModelPrice, Period, Scope
from budgets.presenters.naming import agent_find
from budgets.presenters.price_list import prices_in_force, prices_of
from budgets.selectors import BY, alerts_visible, breakdown, budget_get, budgets_visible, entries_of
from budgets.services import (
    budget_change_limit,
    budget_secret_renew,
    budget_set_limit,
    budget_settings_set,
    price_set,
    settings_of,
)

BYS: Final = tuple(BY)


class BudgetOut(Shape):
    """``left`` is the limit less what is spent, on hold and owed; null without a limit."""

    id = serializers.IntegerField()
    scope = serializers.ChoiceField(choices=Scope.choices)
    owner_id = serializers.UUIDField(help_text="Of the organisation, the agent or the job.")
    agent_id = serializers.UUIDField(allow_null=True)
    job_id = serializers.UUIDField(allow_null=True)
    period = serializers.ChoiceField(choices=Period.choices)
    period_start = serializers.SerializerMethodField(help_text="First day of the month (UTC); null for a total.")
    limit = Money(allow_null=True, help_text="Null: not limited.")
    spent = Money()
    reserved = Money(help_text="On hold for calls that are under way.")
    debt = Money(help_text="Owed: what calls cost beyond their holds and the limit had no room for.")
    left = Money(allow_null=True)
    created_at = serializers.DateTimeField()

    def get_period_start(self, row: Budget) -> date | None:
        return row.period_start if row.period == Period.MONTH else None


class LimitIn(Strict):
    limit_usd = UsdIn(allow_null=True, help_text="Null: not limited.")
    note = serializers.CharField(max_length=200, required=False, allow_blank=True, help_text="Why.")


class BudgetIn(LimitIn):
    agent = serializers.CharField(
        max_length=60, required=False, help_text="The agent, by id or slug; without it, the organisation's own budget."
    )


class LedgerOut(Shape):
    """One movement of money. The sum of ``spent`` and ``debt`` over any entries is what they cost."""

    id = serializers.IntegerField()
    at = serializers.DateTimeField()
    kind = serializers.CharField(help_text="reserve, settle, charge, refund, debt or adjust.")
    agent_id = serializers.UUIDField(allow_null=True)
    job_id = serializers.UUIDField(allow_null=True)
    purpose = serializers.CharField()
    model = serializers.CharField()
    iteration = serializers.IntegerField(allow_null=True)
    rollout = serializers.CharField()
    spent = Money(source="spent_delta")
    reserved = Money(source="reserved_delta")
    debt = Money(source="debt_delta")
    cost = Money(allow_null=True)
    input_tokens = serializers.IntegerField()
    output_tokens = serializers.IntegerField()
    cached_tokens = serializers.IntegerField()
    reasoning_tokens = serializers.IntegerField()
    latency_ms = serializers.IntegerField()
    cost_source = serializers.CharField(source="source", help_text="Who said what it cost: provider, table, estimate.")
    estimated = serializers.BooleanField()
    error = serializers.CharField()


class BreakdownQuery(Strict):
    by = serializers.ChoiceField(choices=BYS, default="model")
    since = serializers.DateField(required=False)
    until = serializers.DateField(required=False)


class SpendingOut(Shape):
    key = serializers.CharField(allow_null=True, help_text="An id, a name or a day; null: of none.")
    cost = Money()
    calls = serializers.IntegerField()
    input_tokens = serializers.IntegerField()
    output_tokens = serializers.IntegerField()
    cached_tokens = serializers.IntegerField()
    estimated_calls = serializers.IntegerField(source="estimated")


class BreakdownOut(Shape):
    by = serializers.CharField()
    since = serializers.DateField(allow_null=True)
    until = serializers.DateField(allow_null=True)
    total_usd = serializers.FloatField()
    total_micros = serializers.IntegerField()
    results = SpendingOut(many=True)

    computed = {"total_usd": lambda found: dollars(_total(found)), "total_micros": lambda found: _total(found)}


def _total(found: dict[str, Any]) -> int:
    return sum(result.cost for result in found["results"])


class PriceOut(Shape):
    """Prices are per million tokens."""

    id = serializers.IntegerField()
    model = serializers.CharField()
    own = serializers.SerializerMethodField(help_text="Your organisation's own; else it is for all.")
    valid_from = serializers.DateField()
    free = serializers.BooleanField()
    input = Money()
    cached_input = Money(allow_null=True, help_text="Null: priced as input.")
    output = Money()
    per_call = Money()
    price_source = serializers.CharField(source="source")
    updated_at = serializers.DateTimeField()

    def get_own(self, row: ModelPrice) -> bool:
        return row.organization_id is not None


class PriceIn(Strict):
    model = serializers.CharField(max_length=200)
    free = serializers.BooleanField(default=False, help_text="Its calls are counted and cost nothing.")
    input_usd = UsdIn(required=False, help_text="Per million prompt tokens; needed unless the model is free.")
    cached_input_usd = UsdIn(required=False, allow_null=True, help_text="Of cached ones; null: priced as input.")
    output_usd = UsdIn(required=False, help_text="Per million answer tokens; needed unless the model is free.")
    per_call_usd = UsdIn(default=0, help_text="For each call.")
    valid_from = serializers.DateField(required=False, help_text="From today on, unless given.")
    price_source = serializers.CharField(max_length=200, required=False, allow_blank=True, help_text="Where it stands.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        missing = [name for name in ("input_usd", "output_usd") if not attrs["free"] and name not in attrs]
        if missing:
            raise serializers.ValidationError(dict.fromkeys(missing, "Give a price, or say that the model is free."))
        return attrs


class BudgetFilters(filters.FilterSet):
    scope = filters.ChoiceFilter(choices=Scope.choices)
    agent = filters.CharFilter(method="of_agent", help_text="The agent, by id or slug; its own and its jobs' budgets.")
    job = filters.UUIDFilter(field_name="job_id")
    month = filters.CharFilter(method="of_month", help_text="Budgets of one month (UTC), e.g. 2026-11.")

    class Meta:
        model = Budget
        fields: list[str] = []

    def of_agent(self, rows: QuerySet[Budget], name: str, value: str) -> QuerySet[Budget]:
        return rows.filter(agent_id=agent_find(actor_of(self.request), value).id)

    def of_month(self, rows: QuerySet[Budget], name: str, value: str) -> QuerySet[Budget]:
        return rows.filter(period=Period.MONTH, period_start=month_read(value))


class LedgerFilters(filters.FilterSet):
    kind = filters.ChoiceFilter(choices=EntryKind.choices)
    model = filters.CharFilter()
    purpose = filters.CharFilter()

    class Meta:
        model = LedgerEntry
        fields: list[str] = []


class PriceFilters(filters.FilterSet):
    model = filters.CharFilter(help_text="One model, by its whole name.")
    search = filters.CharFilter(field_name="model", lookup_expr="icontains", help_text="Text in the model's name.")
    history = Flag(method="as_it_is", help_text="Past and future prices too, not only those in force today.")

    class Meta:
        model = ModelPrice
        fields: list[str] = []

    def as_it_is(self, rows: QuerySet[ModelPrice], name: str, value: Any) -> QuerySet[ModelPrice]:
        return rows  # the view has chosen the rows by it


class BudgetViewSet(ReadViewSet):
    queryset = Budget.objects.none()
    tag = "budgets"
    serializer_class = BudgetOut
    filterset_class = BudgetFilters
    lookup_value_converter = "int"
    tiebreak = "id"
    orderings = {"-created_at": "created_at", "spent": "spent"}
    known_query = {"breakdown": ("by", "since", "until")}
    versioned = ("limit_micros",)
    lists = ("List budgets", budgets_visible)
    reads = ("One budget", budget_get)

    @extend_schema(summary="Set the limit of the organisation or of an agent", request=BudgetIn)
    def create(self, request: Request) -> Response:
        """From this month on, also where nothing was spent yet. A job's limit is set with its launch."""
        organization = current_organization(self.actor)
        require(self.actor, "budget.edit", organization)
        values = parsed(BudgetIn, request.data)
        agent = agent_find(self.actor, values["agent"]) if "agent" in values else None

        return self.made(
            request,
            lambda: budget_set_limit(
                self.actor,
                organization=agent.organization_id if agent else organization,
                agent_id=agent.id if agent else None,
                limit=values["limit_usd"],
                note=values.get("note", ""),
            ),
        )

    @extend_schema(summary="Set a budget's limit", request=LimitIn)
    def partial_update(self, request: Request, pk: int) -> Response:
        """From now on. Not below what is spent and on hold; not of a month that is over."""
        budget = budget_get(self.actor, pk)
        require(self.actor, "budget.edit", budget.organization_id)
        values = parsed(LimitIn, request.data)
        changed = budget_change_limit(self.actor, budget, values["limit_usd"], note=values.get("note", ""))
        return self.answer(changed)

    @extend_schema(
        summary="What the money went for",
        description="By day in order of time, else the most expensive first. The total is what the budgets booked.",
        parameters=[
            OpenApiParameter("by", str, enum=BYS, default="model"),
            OpenApiParameter("since", date, description="The first day (UTC), included."),
            OpenApiParameter("until", date, description="The last day (UTC), included."),
        ],
        responses=BreakdownOut,
    )
    @action(detail=False, pagination_class=None)
    def breakdown(self, request: Request) -> Response:
        organization = current_organization(self.actor)
        require(self.actor, "budget.view", organization)
        asked = parsed(BreakdownQuery, request.query_params.dict())
        days_check(asked.get("since"), asked.get("until"))
        rows = breakdown(self.actor, organization_id=organization.id, **asked)
        return Response(BreakdownOut(asked | {"results": rows}).data)


class LedgerViewSet(ScopedViewSet):
    queryset = LedgerEntry.objects.none()
    tag = "budgets"
    serializer_class = LedgerOut
    filterset_class = LedgerFilters
    orderings = {"-at": "at"}
    tiebreak = "id"

    @extend_schema(summary="A budget's ledger")
    def list(self, request: Request, budget: int) -> Response:
        return self.page(entries_of(self.actor, budget_get(self.actor, budget)), LedgerOut)


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


OWN_PRICE: Final = OpenApiExample(
    "An own price",
    {"model": "gpt-4o-mini", "input_usd": 0.15, "cached_input_usd": 0.075, "output_usd": 0.6},
    request_only=True,
)
SELF_HOSTED: Final = OpenApiExample("A model of your own", {"model": "qwen-local", "free": True}, request_only=True)


class PriceViewSet(ScopedViewSet):
    queryset = ModelPrice.objects.none()
    tag = "prices"
    serializer_class = PriceOut
    filterset_class = PriceFilters
    orderings = {"model": "model", "valid_from": "valid_from"}
    tiebreak = "id"
    lookup_value_converter = "int"

    @extend_schema(summary="What models cost")
    def list(self, request: Request) -> Response:
        organization = current_organization(self.actor)
        require(self.actor, "budget.view", organization)
        everything = request.query_params.get("history", "").strip().lower() in {"true", "1"}
        rows = (prices_of if everything else prices_in_force)(self.actor, organization.id)
        return self.page(rows, PriceOut)

    @extend_schema(summary="One price")
    def retrieve(self, request: Request, pk: int) -> Response:
        organization = current_organization(self.actor)
        require(self.actor, "budget.view", organization)
        row = prices_of(self.actor, organization.id).filter(id=pk).first()
        if row is None:
            raise Missing("There is no such price.")
        return self.answer(row)

    @extend_schema(
        summary="Set your organisation's price of a model", request=PriceIn, examples=[OWN_PRICE, SELF_HOSTED]
    )
    def create(self, request: Request) -> Response:
        """The same day corrects its price; another day is another row."""
        organization = current_organization(self.actor)
        require(self.actor, "price.edit", organization)
        asked = parsed(PriceIn, request.data)
        values = {name.removesuffix("_usd").removeprefix("price_"): value for name, value in asked.items()}
        return self.made(request, lambda: price_set(self.actor, organization=organization, **values))


class BudgetSettingsOut(serializers.Serializer[Any]):
    email_admins = serializers.BooleanField(help_text="Whether alerts are mailed to the admins.")
    webhook_url = serializers.CharField(help_text="Gets each alert as a signed POST of JSON; empty: none.")
    most_per_minute_usd = Usd(source="most_per_minute", allow_null=True, help_text="Null: not limited.")


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

    @extend_schema(summary="Where alerts go")
    def retrieve(self, request: Request) -> Response:
        organization = current_organization(self.actor)
        require(self.actor, "budget.edit", organization)
        return self.answer(settings_of(organization))

    @extend_schema(
        summary="Change where alerts go, and how fast is spent",
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
            most_per_minute=given.get("most_per_minute_usd", now.most_per_minute),
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


class RaiseAskedOut(serializers.Serializer[Any]):
    asked = serializers.ListField(child=serializers.CharField(), help_text="The people who are mailed.")


class RaiseRequestViewSet(ScopedViewSet):
    queryset = Budget.objects.none()
    tag = "budgets"
    serializer_class = RaiseAskedOut

    @extend_schema(summary="Ask for a higher budget", responses=RaiseAskedOut)
    def create(self, request: Request, job: UUID) -> Response:
        """Mails those who may raise the budget that stopped the job; once an hour, at most."""
        found = job_get(self.actor, job)

        def work() -> Response:
            people = raise_ask(self.actor, found, link=absolute(request, job_page(found)))
            return self.answer({"asked": [person.username for person in people]})

        return self.once(request, work)
