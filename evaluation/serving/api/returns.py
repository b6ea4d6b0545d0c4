"""REST: the return on what an agent's learning cost, by month."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.views import ScopedViewSet
from evaluation.serving.models import Release
from evaluation.serving.returns.arithmetic import ASSUMPTIONS
from evaluation.serving.returns.selectors import MONTHS, MOST_VALUE_USD, returns_of
from experiences.models.agent_lookup import agent_get


class ReturnsQuery(Strict):
    months = serializers.IntegerField(default=MONTHS, min_value=1, max_value=60, help_text="This one and those before.")
    value_usd = serializers.FloatField(
        default=0.0, min_value=0, max_value=MOST_VALUE_USD, help_text="What one more right answer is worth."
    )


class AmountOut(serializers.Serializer[Any]):
    value = serializers.FloatField()
    low = serializers.FloatField(allow_null=True, help_text="Null where its measurement has no interval.")
    high = serializers.FloatField(allow_null=True)


class MonthReturnOut(serializers.Serializer[Any]):
    month = serializers.DateField(help_text="Its first day.")
    cost_usd = serializers.FloatField(source="found.cost", help_text="Of all calls but the answers to users.")
    serving_usd = serializers.FloatField(source="found.serving", help_text="Of the answers to users.")
    queries = serializers.IntegerField(source="found.queries", help_text="Answered by its releases.")
    saved_usd = AmountOut(source="found.saved")
    gained_usd = AmountOut(source="found.gained")
    multiple = AmountOut(
        source="found.multiple", allow_null=True, help_text="Return in units of the cost; null where nothing was paid"
        " or measured.",
    )  # fmt: skip
    measured = serializers.BooleanField(source="found.measured", help_text="Whether a saving or gain was measured.")


class ReturnsOut(serializers.Serializer[Any]):
    agent = serializers.CharField(help_text="The agent's slug.")
    value_usd = serializers.FloatField()
    months = MonthReturnOut(many=True)
    assumptions = serializers.ListField(child=serializers.CharField())


class ReturnsViewSet(ScopedViewSet):
    """Return on learning: savings and gains of an agent's releases against what its learning cost."""

    queryset = Release.objects.none()
    tag = "agents"
    serializer_class = ReturnsOut
    known_query = {"retrieve": ("months", "value_usd")}

    @extend_schema(summary="An agent's return by month", parameters=[ReturnsQuery])
    def retrieve(self, request: Request, agent: str) -> Response:
        found = agent_get(self.actor, agent)
        asked = parsed(ReturnsQuery, request.query_params.dict())
        by_month = returns_of([found.pk], **asked).get(found.pk, {})
        months = [{"month": month, "found": one} for month, one in by_month.items()]
        shown = {"agent": found.slug, "value_usd": asked["value_usd"], "months": months, "assumptions": ASSUMPTIONS}
        return Response(ReturnsOut(shown).data)
