"""REST: the dashboards' figures."""

from __future__ import annotations

from typing import Any, Final

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.rest.views import ScopedViewSet
from evaluation.warehouse.dashboards import DASHBOARDS
from evaluation.warehouse.models import HourlyMeasure
from evaluation.warehouse.presenters import chart_rows
from evaluation.warehouse.selectors import DEFAULT_PERIOD, PERIODS, PURPOSES, dashboard_figures, dashboard_get, question

QUERY: Final = ("period", "agent", "purpose")


class ChartColumnOut(serializers.Serializer[Any]):
    key = serializers.CharField()
    title = serializers.CharField()
    unit = serializers.CharField(
        help_text="moment, text, agent (an id), count, number, share, points (of shares), usd or seconds."
    )


class DashboardChartOut(serializers.Serializer[Any]):
    key = serializers.CharField(source="chart.key")
    title = serializers.CharField(source="chart.title")
    note = serializers.CharField(source="chart.note")
    columns = ChartColumnOut(many=True)
    rows = serializers.SerializerMethodField(help_text="One object a row, by the columns' keys.")

    def get_rows(self, shown: Any) -> list[dict[str, Any]]:
        return list(chart_rows(shown))


class DashboardOut(serializers.Serializer[Any]):
    dashboard = serializers.CharField(source="dashboard.key")
    title = serializers.CharField(source="dashboard.title")
    figures_from = serializers.CharField(source="source", help_text="warehouse or rollups.")
    behind_seconds = serializers.FloatField(help_text="How long the oldest row waits that is not in it.")
    since = serializers.DateTimeField(source="asked.since")
    charts = DashboardChartOut(many=True)


class DashboardViewSet(ScopedViewSet):
    """Figures of what agents lived, by the hour or day."""

    queryset = HourlyMeasure.objects.none()
    tag = "dashboards"
    serializer_class = DashboardOut
    lookup_field = "key"
    known_query = {"retrieve": QUERY}

    @extend_schema(
        summary="A dashboard's figures",
        parameters=[
            OpenApiParameter("key", enum=list(DASHBOARDS), location="path"),
            OpenApiParameter("period", enum=list(PERIODS), default=DEFAULT_PERIOD),
            OpenApiParameter("agent", description="One agent, by id or slug."),
            OpenApiParameter("purpose", enum=[name for name, _ in PURPOSES]),
        ],
    )
    def retrieve(self, request: Request, key: str) -> Response:
        asked = {name: request.query_params.get(name, "") for name in QUERY}
        found = dashboard_figures(dashboard_get(key), question(self.actor, **asked))
        return self.answer(found)
