"""REST: learning loops, their turns, and the review of a turn's rows."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.lib.money import dollars
from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.rows import ReadViewSet
from agentcore_site.rest.shapes import Shape
from agentcore_site.rest.views import ScopedViewSet
from evaluation.serving.loop.filters import LoopRowFilters, LoopTurnFilters
from evaluation.serving.loop.presenters import next_of, sentence_of_turn, shown_turn
from evaluation.serving.loop.selectors import loop_of, rows_visible, spent_this_month_micros, turn_get, turns_visible
from evaluation.serving.loop.services import loop_change, rows_decide, settings_of, turn_start, turn_stop
from evaluation.serving.models import (
    DeploymentStrategy,
    LearningLoop,
    LoopRow,
    LoopTrigger,
    LoopTurn,
    RowReview,
    RowSource,
    RowState,
    TurnState,
)
from experiences.agents.api.versions import AgentVersions
from experiences.models.agent_lookup import agent_get


class LearningLoopPatch(Strict):
    on = serializers.BooleanField(required=False, help_text="Turns begin automatically, as the person who sets this.")
    after_traces = serializers.IntegerField(
        required=False, allow_null=True, min_value=1, max_value=10_000_000, help_text="Null: no number begins a turn."
    )
    judged_only = serializers.BooleanField(required=False, help_text="Only traces with feedback count.")
    daily = serializers.BooleanField(required=False, help_text="A turn begins at 02:00 UTC.")
    on_drift = serializers.BooleanField(required=False, help_text="A turn begins when production gets worse.")
    monthly_usd = serializers.FloatField(required=False, min_value=0, max_value=1_000_000)
    least_rows = serializers.IntegerField(required=False, min_value=3, max_value=10_000)
    review = serializers.ChoiceField(choices=RowReview.choices, required=False)
    preset = serializers.CharField(required=False, max_length=30, help_text="Preset of its jobs.")
    config = serializers.DictField(required=False, help_text="Settings of its jobs: differences from the preset.")
    environment_options = serializers.DictField(required=False, help_text="Options of its jobs' environment.")
    strategy = serializers.ChoiceField(
        choices=DeploymentStrategy.choices, required=False, help_text="Not a shadow, which never serves."
    )
    rule = serializers.DictField(required=False, help_text="Of its deployments; {}: the default.")


class LearningLoopOut(Shape):
    on = serializers.BooleanField()
    on_since = serializers.DateTimeField(allow_null=True)
    acts_as = serializers.CharField(source="acts_as.username", default=None, allow_null=True)
    after_traces = serializers.IntegerField(allow_null=True)
    judged_only = serializers.BooleanField()
    daily = serializers.BooleanField()
    on_drift = serializers.BooleanField()
    monthly_usd = serializers.FloatField()
    least_rows = serializers.IntegerField()
    review = serializers.ChoiceField(choices=RowReview.choices)
    preset = serializers.CharField()
    config = serializers.JSONField()
    environment_options = serializers.JSONField()
    strategy = serializers.ChoiceField(choices=DeploymentStrategy.choices)
    rule = serializers.JSONField()
    drift = serializers.JSONField(help_text="The last analysis of drift.")
    spent_usd = serializers.FloatField(help_text="By the turns that began this month.")
    next = serializers.ListField(child=serializers.CharField(), help_text="Conditions of the next turn, as sentences.")

    computed = {
        "monthly_usd": lambda row: settings_of(row)["monthly_usd"],
        "spent_usd": lambda row: dollars(spent_this_month_micros(row.agent)),
        "next": next_of,
    }


class LoopTurnOut(Shape):
    id = serializers.UUIDField()
    agent = serializers.CharField(help_text="The agent's slug.")
    number = serializers.IntegerField()
    began_by = serializers.ChoiceField(choices=LoopTrigger.choices, source="trigger")
    state = serializers.ChoiceField(choices=TurnState.choices)
    reached = serializers.ChoiceField(choices=TurnState.choices, help_text="The last state before it ended.")
    sentence = serializers.CharField(help_text="Its status, as a sentence.")
    waits_for = serializers.CharField()
    reason = serializers.CharField(help_text="Reason of its stop.")
    rows_found = serializers.IntegerField()
    rows_flagged = serializers.IntegerField()
    job = serializers.UUIDField(source="run_id", allow_null=True)
    release = serializers.UUIDField(source="release_id", allow_null=True)
    deployment = serializers.UUIDField(source="deployment_id", allow_null=True)
    gain = serializers.JSONField(help_text="The proof on held-out queries.")
    online = serializers.JSONField(help_text="By guardrail, the results of both releases in its deployment.")
    usd_per_1000_before = serializers.FloatField(allow_null=True)
    usd_per_1000_after = serializers.FloatField(allow_null=True)
    cost_usd = serializers.FloatField()
    created_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)

    computed = {
        "agent": lambda row: row.agent.slug,
        "sentence": sentence_of_turn,
        "usd_per_1000_before": lambda row: shown_turn(row).before,
        "usd_per_1000_after": lambda row: shown_turn(row).after,
        "cost_usd": lambda row: dollars(row.cost_micros),
    }


class LoopRowOut(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    trace = serializers.UUIDField(source="trace_id")
    query = serializers.CharField()
    expected = serializers.CharField(help_text="The answer to learn.")
    source = serializers.ChoiceField(choices=RowSource.choices)  # type: ignore[assignment]
    flags = serializers.ListField(child=serializers.CharField(), help_text="Reasons for a person to review it.")
    state = serializers.ChoiceField(choices=RowState.choices)
    decided_by = serializers.CharField(source="decided_by.username", default=None, allow_null=True)


class RowsDecision(Strict):
    approve = serializers.BooleanField()
    rows = serializers.ListField(
        child=serializers.IntegerField(), required=False, help_text="Default: all waiting rows."
    )


class RowsDecided(serializers.Serializer[Any]):
    decided = serializers.IntegerField(help_text="Number of rows.")


class TurnStop(Strict):
    note = serializers.CharField(default="", allow_blank=True, max_length=200)


class LearningLoopViewSet(AgentVersions):
    """Learning loops of agents: triggers of turns, budget, and review of rows."""

    queryset = LearningLoop.objects.none()
    tag = "learning loops"
    serializer_class = LearningLoopOut
    versioned = tuple(LearningLoopPatch._declared_fields)
    idempotent = ("start",)

    @extend_schema(summary="An agent's learning loop")
    def retrieve(self, request: Request, agent: str) -> Response:
        return self.answer(loop_of(agent_get(self.actor, agent)))

    @extend_schema(
        summary="Change an agent's learning loop",
        description="Who switches it on is whom its turns act as. A key needs the scopes of all that a turn does:"
        " `training:manage`, `training:start` and `training:evaluate`.",
        request=LearningLoopPatch,
    )
    def partial_update(self, request: Request, agent: str) -> Response:
        found = agent_get(self.actor, agent)
        changed = loop_change(self.actor, found, **parsed(LearningLoopPatch, request.data))
        return self.answer(changed)

    @extend_schema(summary="Begin a turn of an agent's learning loop", responses={201: LoopTurnOut})
    def start(self, request: Request, agent: str) -> Response:
        found = agent_get(self.actor, agent)
        return self.once(request, lambda: Response(LoopTurnOut(turn_start(self.actor, found)).data, status=201))


class LoopTurnViewSet(ReadViewSet):
    """Turns of learning loops: rows, job, release, deployment, cost and gain of each."""

    queryset = LoopTurn.objects.none()
    tag = "learning loops"
    serializer_class = LoopTurnOut
    filterset_class = LoopTurnFilters
    lookup_value_converter = "uuid"
    orderings = {"-created_at": "created_at"}
    versioned = ("state",)
    lists = ("List turns of learning loops", turns_visible)
    reads = ("One turn of a learning loop", turn_get)

    @extend_schema(summary="Stop a turn of a learning loop", request=TurnStop)
    @action(detail=True, methods=["post"])
    def stop(self, request: Request, pk: UUID) -> Response:
        turn_stop(self.actor, turn_get(self.actor, pk), note=parsed(TurnStop, request.data)["note"])
        return self.answer(turn_get(self.actor, pk))


class LoopRowViewSet(ScopedViewSet):
    """Rows that a turn may learn from."""

    queryset = LoopRow.objects.none()
    tag = "learning loops"
    serializer_class = LoopRowOut
    filterset_class = LoopRowFilters
    orderings = {"id": "id"}

    @extend_schema(summary="List a turn's rows")
    def list(self, request: Request, turn: UUID) -> Response:
        return self.page(rows_visible(self.actor).filter(turn=turn_get(self.actor, turn)), LoopRowOut)

    @extend_schema(summary="Approve a turn's rows, or leave them out", request=RowsDecision, responses=RowsDecided)
    def create(self, request: Request, turn: UUID) -> Response:
        found = turn_get(self.actor, turn)
        given = parsed(RowsDecision, request.data)

        def work() -> Response:
            n = rows_decide(self.actor, found, approve=given["approve"], ids=given.get("rows"))
            return Response(RowsDecided({"decided": n}).data)

        return self.once(request, work)
