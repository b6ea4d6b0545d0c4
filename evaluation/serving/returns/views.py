"""Page of an agent's return by month."""

from __future__ import annotations

import math
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from agentcore_site.console.pages import page, query_params
from agentcore_site.tenancy.actors import Actor
from evaluation.serving.returns.arithmetic import ASSUMPTIONS
from evaluation.serving.returns.selectors import MOST_VALUE_USD, returns_of
from experiences.models.agent_lookup import agent_get

NO_AMOUNT: Final = f"The worth is an amount of dollars from 0 to {MOST_VALUE_USD:,}. Only savings are counted here."


@page
def returns(request: HttpRequest, actor: Actor, agent_id: Any) -> HttpResponse:
    agent = agent_get(actor, agent_id)
    (given,) = query_params(request, "value")
    value_usd = _value(given)
    found = returns_of([agent.pk], value_usd=value_usd or 0.0).get(agent.pk, {})
    context = {"agent": agent, "months": found.items(), "value": given, "assumptions": ASSUMPTIONS}
    context["problem"] = NO_AMOUNT if value_usd is None else ""
    return render(request, "serving/returns.html", context)


def _value(text: str) -> float | None:
    """Dollars; None where the text is no amount that is taken."""
    try:
        value = float(text.removeprefix("$") or 0)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= MOST_VALUE_USD else None
