"""Fields of an agent that can't be changed, by its kind or its jobs at work. One rule for services and the admin."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from django.db.models import Q
from django.forms.models import model_to_dict

from agentcore_site.lib.errors import Conflict, Invalid
from experiences.models import Agent, AgentRuntime, ModelEndpoint
from experiences.models.jobs_at_work import jobs_of, titles_at_work

OVER_HTTP: Final = {
    "url": "Only an agent over HTTP has an address. Leave it empty.",
    "inject_context": "Only for an agent over HTTP. Switch it off.",
}
# A job's plan, and so its budget, was made with these; and its rollouts are compared with each other. The prompt is not
# among them: a job keeps its text (experiences/lessons/job_prompt.py).
PLANNED: Final = {
    "runtime": "runtime",
    "endpoint": "endpoint",
    "model": "model",
    "reflector": "reflector's endpoint",
    "reflector_model": "reflector's model",
    "philosophy": "philosophy",
    "max_tokens": "length of an answer",
}
OF_CALLS: Final = ("philosophy", "max_tokens")  # which an agent that chooses actions does not make


def guarded_values(agent: Agent) -> dict[str, Any]:
    """The values of an agent that its changes are checked against, by name; endpoints by their ids."""
    return model_to_dict(agent, fields=[*OVER_HTTP, *PLANNED])


def agent_change_check(agent: Agent, before: Mapping[str, Any]) -> None:
    """Checks an agent against what is stored of it (``guarded_values``; nothing of a new one). What was stored before
    there was a rule may stay.

    Raises:
        Invalid: a setting is only for agents over HTTP.
        Conflict: a job of the agent that has not ended was planned with what is changed, its model for one.
    """
    now = guarded_values(agent)
    changed = {name for name, value in now.items() if name not in before or before[name] != value}
    if agent.runtime != AgentRuntime.HTTP:
        _check_over_http(agent, changed)
    if agent.runtime == AgentRuntime.ACTION:
        changed -= {*OF_CALLS}
    if before and (named := [name for name in PLANNED if name in changed]):
        _check_idle([agent.pk], " and ".join(PLANNED[name] for name in named), named)


def endpoint_model_check(endpoint: ModelEndpoint) -> None:
    """Raises:
    Conflict: a job that has not ended was planned with the model of this endpoint."""
    using = Agent.objects.filter(Q(endpoint=endpoint, model="") | Q(reflector=endpoint, reflector_model=""))
    _check_idle(using.values_list("pk", flat=True), "model", ["model"])


def _check_over_http(agent: Agent, changed: set[str]) -> None:
    given = [name for name in OVER_HTTP if getattr(agent, name) and changed & {name, "runtime"}]
    if given:
        raise Invalid(" ".join(OVER_HTTP[name] for name in given), fields={name: OVER_HTTP[name] for name in given})


def _check_idle(agents: Iterable[uuid.UUID], what: str, fields: Sequence[str]) -> None:
    # An evolution has no plan: it asks the model that the agent has then, within the month's budget.
    if titles := titles_at_work(jobs_of(agents).exclude(kind="evolution")):
        message = f"{titles}: not ended, and planned with the {what} that it has now. Let it end, or cancel it, first."
        raise Conflict(message, fields=dict.fromkeys(fields, message))
