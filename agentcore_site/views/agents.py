"""Pages of agents, with the runs, evaluations and checkpoints that belong to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from agentcore_site.agent_summaries import agent_summaries
from agentcore_site.console.pages import Listing, Sort, allowed, listing, matching, page, query_params
from agentcore_site.tenancy.actors import Actor
from evaluation.selectors import evaluations_visible
from experiences.agents.presenters import AgentOut
from experiences.lessons.presenters import overview_of
from experiences.models import Agent
from experiences.models.agent_lookup import agent_get, agents_visible
from experiences.playbooks.presenters.items import playbook_summary
from training.presenters.summaries import agent_rows, success_sparks
from training.selectors.runs import checkpoints_visible, run_verdict, runs_visible

SORTS = (
    Sort("name", "name", "name", descending=False),
    Sort("newest", "newest first", "created_at"),
    Sort("changed", "last changed", "updated_at"),
)
SHOWN = 10


def agents_listed(
    request: HttpRequest, rows: QuerySet[Agent], sorts: Sequence[Sort], *, of: QuerySet[Agent], **more: Any
) -> Listing:
    """A list of agents, searched as each of them is."""
    [query] = query_params(request, "q")
    found = matching(rows, query, "name", "slug", "description")
    return listing(request, found, sorts, one="agent", of=of, **more)


@page
def agents(request: HttpRequest, actor: Actor) -> HttpResponse:
    [show] = query_params(request, "show")
    everything = agents_visible(actor, archived=True).prefetch_related("tool_servers")  # which its CSV has
    rows = everything.exclude(archived_at=None) if show == "archived" else everything.filter(archived_at=None)
    found = agents_listed(request, rows, SORTS, of=everything, columns=AgentOut)
    shown = {"show": show if show == "archived" else "", "shows": ["archived"]}
    return render(request, "agents/agents.html", {"listing": found, "rows": agent_rows(found.rows), **shown})


@page
def agent(request: HttpRequest, actor: Actor, ref: str) -> HttpResponse:
    found = agent_get(actor, ref)
    runs = list(runs_visible(actor).filter(agent=found).order_by("-job__created_at")[:SHOWN])
    sparks = success_sparks(runs)
    proven = [run for run in runs if run.verdict.get("verdict")]
    may, [summary] = allowed(actor, found.organization_id), agent_summaries([found])
    unreleased = summary.release is None and summary.coming is None and found.archived_at is None
    context = {
        "agent": found,
        "summary": summary,
        "next_release": "deployment.edit" in may and unreleased and any(gain.proven for gain in summary.gains[:1]),
        "may": may,
        "runs": [{"run": run, "verdict": run_verdict(run), "spark": sparks[run.pk]} for run in runs],
        "n_runs": runs_visible(actor).filter(agent=found).count(),
        "active": next((run for run in runs if run.job.active), None),
        "proven": proven[0] if proven else None,
        "evaluations": list(evaluations_visible(actor).filter(agent=found).order_by("-job__created_at")[:SHOWN]),
        "checkpoints": list(checkpoints_visible(actor).filter(agent=found).order_by("-created_at")[:SHOWN]),
        "learned": overview_of(actor, found.pk),
        "production": playbook_summary(actor, found.pk),
        "n_checkpoints": checkpoints_visible(actor).filter(agent=found).count(),
    }
    return render(request, "agents/agent.html", context)
