"""REST: budgets with their ledgers, the spending on each job, agent and model, and requests to raise a budget."""

from __future__ import annotations

from datetime import date
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet
from django_filters import rest_framework as filters
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.jobs.selectors import job_get
from agentcore_site.lib.links import absolute
from agentcore_site.lib.money import dollars
from agentcore_site.rest.money import Money, UsdIn
from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.rows import ReadViewSet
from agentcore_site.rest.shapes import Shape
from agentcore_site.rest.views import ScopedViewSet
from agentcore_site.tenancy.authentication import actor_of
from agentcore_site.tenancy.permissions import current_organization, require
from budgets.alerts.raise_requests import raise_ask
from budgets.forms import days_check, month_read
from budgets.models import Budget, EntryKind, LedgerEntry, Period, Scope
from budgets.presenters.naming import agent_find
from budgets.presenters.shapes import BudgetOut
from budgets.selectors import BY, breakdown, budget_get, budgets_visible, entries_of
from budgets.services import budget_change_limit, budget_set_limit

BYS: Final = tuple(BY)


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
    spent = Money(source="spent_delta_micros")
    reserved = Money(source="reserved_delta_micros")
    debt = Money(source="debt_delta_micros")
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

    computed = {
        "total_usd": lambda found: dollars(_total_micros(found)),
        "total_micros": lambda found: _total_micros(found),
    }


def _total_micros(found: dict[str, Any]) -> int:
    return sum(result.cost_micros for result in found["results"])


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


class BudgetViewSet(ReadViewSet):
    queryset = Budget.objects.none()
    tag = "budgets"
    serializer_class = BudgetOut
    filterset_class = BudgetFilters
    lookup_value_converter = "int"
    tiebreak = "id"
    orderings = {"-created_at": "created_at", "spent": "spent_micros"}
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
                limit_micros=values["limit_usd"],
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
        summary="Spending by category",
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
            people = raise_ask(self.actor, found, link=partial(absolute, request))
            return self.answer({"asked": [person.username for person in people]})

        return self.once(request, work)
