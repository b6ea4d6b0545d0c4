"""Page of an agent's return by month."""

from __future__ import annotations

import math
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from agentcore_site.console.pages import page, query_params
from agentcore_site.tenancy.actors import Actor
from evaluation.serving.returns.arithmetic import ASSUMPTIONS
from evaluation.serving.returns.selectors import MOST_VALUE_USD, returns_of
from experiences.models.agent_lookup import agent_get


@page
def returns(request: HttpRequest, actor: Actor, agent_id: Any) -> HttpResponse:
    agent = agent_get(actor, agent_id)
    value_usd = _value(*query_params(request, "value"))
    found = returns_of([agent.pk], value_usd=value_usd).get(agent.pk, {})
    context = {"agent": agent, "months": found.items(), "value": value_usd or "", "assumptions": ASSUMPTIONS}
    return render(request, "serving/returns.html", context)


def _value(text: str) -> float:
    """Dollars; 0 where the text is no amount."""
    try:
        value = float(text.removeprefix("$") or 0)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) and 0 <= value <= MOST_VALUE_USD else 0.0
