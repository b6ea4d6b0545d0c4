"""Pages of the dashboards, and the data of each chart as CSV."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from agentcore_site.console.pages import page, query_params
from agentcore_site.lib.errors import Missing
from agentcore_site.tenancy.actors import Actor
from evaluation.warehouse.dashboards import DASHBOARDS, TRAINING
from evaluation.warehouse.presenters import ROWS, chart_csv, chart_views, summary
from evaluation.warehouse.selectors import (
    DEFAULT_PERIOD,
    PERIODS,
    PURPOSES,
    DashboardFigures,
    dashboard_figures,
    dashboard_get,
    question,
)
from experiences.models.agent_lookup import agents_offered, agents_visible


@page
def dashboard(request: HttpRequest, actor: Actor, key: str = TRAINING.key) -> HttpResponse:
    found = _asked(request, actor, key, most=ROWS)
    period, agent, purpose = query_params(request, "period", "agent", "purpose")
    views = chart_views(found)
    context = {
        "dashboard": found.dashboard,
        "dashboards": DASHBOARDS.values(),
        "figures": found,
        "summary": summary(found),
        "pictures": [view for view in views if view.shown.chart.shape != "table"],
        "tables": [view for view in views if view.shown.chart.shape == "table"],
        "any": any(view.rows for view in views),
        "narrowed": bool(agent or purpose or period),
        "period": period or DEFAULT_PERIOD,
        "periods": [(name, title) for name, (title, _) in PERIODS.items()],
        "purpose": purpose,
        "purposes": PURPOSES,
        "agent": found.asked.agent,
        "agents": agents_offered(agents_visible(actor)),
    }
    return render(request, "warehouse/dashboard.html", context)


@page
def chart_data(request: HttpRequest, actor: Actor, key: str, chart: str) -> HttpResponse:
    found = _asked(request, actor, key)
    shown = next((one for one in found.charts if one.chart.key == chart), None)
    if shown is None:
        raise Missing("There is no such chart.")
    response = HttpResponse(b"".join(chart_csv(found, shown)), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{key}-{chart}.csv"'
    return response


def _asked(request: HttpRequest, actor: Actor, key: str, most: int | None = None) -> DashboardFigures:
    period, agent, purpose = query_params(request, "period", "agent", "purpose")
    chosen = dashboard_get(key)
    return dashboard_figures(chosen, question(actor, period=period, agent=agent, purpose=purpose), most=most)
