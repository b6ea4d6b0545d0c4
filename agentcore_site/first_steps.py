"""The steps to an organisation's first job, each with its state: agent, queries, model, launch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import urlencode

from django.urls import reverse

from agentcore_site.lib.errors import Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.permissions import who_may
from experiences.agents.selectors import datasets_visible
from experiences.models import Agent, AgentRuntime
from experiences.models.agent_lookup import agents_visible
from training.estimates.planning import model_price
from training.selectors.runs import runs_visible

OF_DATASET = "dataset"  # the environment that brings no queries of its own


@dataclass(frozen=True, slots=True)
class FirstStep:
    """``text``: its state, or the next action. ``label`` and ``url``: of the page for the action; "" if the step is
    done, or the person may not do it."""

    title: str
    done: bool
    text: str
    label: str = ""
    url: str = ""


def first_steps(actor: Actor, organization: Organization) -> list[FirstStep]:
    """The steps, in their order, for the agent that was made last; none after a training job was launched."""
    if runs_visible(actor).filter(organization=organization).exists():
        return []
    agent = agents_visible(actor).filter(organization=organization).order_by("-created_at").first()
    return [
        _agent(actor, organization, agent),
        _queries(actor, organization, agent),
        _model(actor, organization, agent),
        _launch(actor, organization, agent),
    ]


def _agent(actor: Actor, organization: Organization, agent: Agent | None) -> FirstStep:
    if agent is not None:
        return FirstStep("An agent", True, f"{agent.name}, in the environment {agent.environment}.")
    text = "An agent acts in an environment, which says how well it did. The demo agent needs no key and no network."
    return _open(actor, organization, "agent.edit", "An agent", text, "Make an agent", "experiences:agent_new")


def _queries(actor: Actor, organization: Organization, agent: Agent | None) -> FirstStep:
    title = "Queries to learn from"
    if agent is not None and agent.environment != OF_DATASET:
        return FirstStep(title, True, "The agent's environment brings its own. A dataset of yours may replace them.")
    known = datasets_visible(actor).filter(organization=organization, archived_at=None).order_by("-created_at").first()
    if known is not None:
        return FirstStep(title, True, f"{known.name}: {known.size:,} rows.")
    text = "Questions with the answers that are right, as a file. Some are kept apart for the proof."
    return _open(actor, organization, "dataset.edit", title, text, "Upload a dataset", "training:dataset_new")


def _model(actor: Actor, organization: Organization, agent: Agent | None) -> FirstStep:
    title = "A model, and its price"
    text = "An agent of a language model calls an endpoint; by its model's price each launch says what it costs."
    if agent is not None and agent.runtime == AgentRuntime.ACTION:
        return FirstStep(title, True, "None is called: the agent's own policy learns on this server, at no cost.")
    if agent is not None:
        try:
            model_price(agent)
        except Invalid as error:
            text = error.message
        else:
            return FirstStep(title, True, "Its endpoint is set, and the price of its model is known.")
        if agent.endpoint is not None:
            step = _open(actor, organization, "price.edit", title, text, "Set a price", "budgets:price_set")
            model = urlencode({"model": agent.model or agent.endpoint.model})
            return replace(step, url=f"{step.url}?{model}") if step.url else step
    return _open(actor, organization, "endpoint.edit", title, text, "Add an endpoint", "experiences:endpoint_new")


def _launch(actor: Actor, organization: Organization, agent: Agent | None) -> FirstStep:
    title, text = "The first job", "The form shows what it would cost and what it could prove, before anything starts."
    if agent is None:
        return FirstStep(title, False, text)
    step = _open(actor, organization, "run.start", title, text, "Launch training", "training:launch")
    return FirstStep(title, False, step.text, step.label, f"{step.url}?agent={agent.pk}" if step.url else "")


def _open(actor: Actor, organization: Organization, action: str, title: str, text: str, *to: str) -> FirstStep:
    """A step to be done: a link for people with the right, else a sentence about who has it."""
    label, name = to
    if not actor.may(action, organization.pk):
        return FirstStep(title, False, f"{text} {who_may(action)}")
    return FirstStep(title, False, text, label, reverse(name))
