"""Candidates of the playground: agents as they are now, releases, checkpoints, and models of endpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from agentcore_site.lib.errors import DomainError, Invalid
from agentcore_site.tenancy.actors import Actor
from budgets.metering.price_book import DatabasePriceBook
from evaluation.serving.gateway.served_models import ServedModel, ServedRelease, endpoint_served, served_bundle
from evaluation.serving.models import AgentServing
from evaluation.serving.releases.bundle import Bundle
from evaluation.serving.releases.bundle_builder import bundle_of_agent, bundle_of_checkpoint
from evaluation.serving.releases.selectors import bundle_of, release_get, releases_visible
from experiences.agents.selectors import endpoint_get, endpoints_visible
from experiences.models import Agent, AgentRuntime
from experiences.models.agent_lookup import OFFERED, agent_get, agents_visible
from training.selectors.runs import checkpoints_visible
from training.services.checkpoints import checkpoint_of

AGENT: Final = "agent"
RELEASE: Final = "release"
CHECKPOINT: Final = "checkpoint"
MODEL: Final = "model"
Choices = list[tuple[str, list[tuple[str, str]]]]


@dataclass(frozen=True)
class Candidate:
    """Something that answers. ``value``: its kind and id, as a form sends them. ``prompt``: a system prompt in place of
    its own; "" for none."""

    value: str
    prompt: str = ""


@dataclass(frozen=True)
class Candidates:
    """The choices of an actor, as groups of values and labels."""

    agents: Sequence[tuple[str, str]]
    releases: Sequence[tuple[str, str]]
    checkpoints: Sequence[tuple[str, str]]
    models: Sequence[tuple[str, str]]

    @property
    def choices(self) -> Choices:
        groups = (
            ("Agents, as they are now", self.agents),
            ("Releases", self.releases),
            ("Checkpoints", self.checkpoints),
            ("Models", self.models),
        )
        return [(name, list(rows)) for name, rows in groups if rows]

    @property
    def any(self) -> bool:
        return bool(self.choices)


def candidates_offered(actor: Actor) -> Candidates:
    """The first agents and models by name, and the newest releases and checkpoints.

    Raises:
        Forbidden: the actor's role does not work with endpoints.
    """
    agents = agents_visible(actor).filter(runtime=AgentRuntime.LLM).select_related(None).only("id", "name")
    releases = releases_visible(actor).filter(agent__archived_at=None).exclude(agent__runtime=AgentRuntime.HTTP)
    named = releases.order_by("-created_at").values_list("id", "agent__name", "number")[:OFFERED]
    trained = checkpoints_visible(actor).filter(agent__archived_at=None).exclude(agent__runtime=AgentRuntime.HTTP)
    newest = trained.order_by("-created_at").only("id", "run_id", "iteration", "agent__name")[:OFFERED]
    models = endpoints_visible(actor).exclude(model="").order_by("name", "id").values_list("id", "name", "model")
    return Candidates(
        [(f"{AGENT}:{one.pk}", one.name) for one in agents.order_by("name", "id")[:OFFERED]],
        [(f"{RELEASE}:{pk}", f"{name}, release {number}") for pk, name, number in named],
        [(f"{CHECKPOINT}:{one.pk}", f"{one.agent.name}, {one.label}") for one in newest],
        [(f"{MODEL}:{pk}", f"{model} at {name}") for pk, name, model in models[:OFFERED]],
    )


def candidate_model(actor: Actor, candidate: Candidate) -> ServedModel:
    """The model or release that the gateway calls for a candidate.

    Raises:
        Missing, Forbidden: it is not the actor's.
        Invalid: it is no candidate, or can't be called.
    """
    kind, _, row_id = candidate.value.partition(":")
    if kind == AGENT:
        found = _agent(agent_get(actor, row_id), candidate.prompt)
    elif kind == RELEASE:
        found = _release(actor, row_id, candidate.prompt)
    elif kind == CHECKPOINT:
        found = _checkpoint(actor, row_id, candidate.prompt)
    elif kind == MODEL:
        endpoint = endpoint_get(actor, row_id)
        if endpoint.archived_at is not None or not endpoint.model:
            raise Invalid(f"The endpoint {endpoint.name} is archived or names no model. Choose another one.")
        found = endpoint_served(endpoint, endpoint.model, endpoint.model)
    else:
        raise Invalid("Choose an agent, a release, a checkpoint or a model.")
    if fault := found.fault or (found.current.fault if found.current is not None else ""):
        raise Invalid(f"It can't be called: {fault}")
    return found


def candidate_label(model: ServedModel, candidate: Candidate) -> str:
    """Its name above an answer."""
    return f"{model.name}, edited prompt" if candidate.prompt else model.name


def _agent(agent: Agent, prompt: str) -> ServedModel:
    bundle = _made(bundle_of_agent, agent)
    return _served(agent, f"{agent.name}, as it is now", agent.pk, 0, bundle, prompt)


def _release(actor: Actor, release_id: str, prompt: str) -> ServedModel:
    release = release_get(actor, release_id)
    agent = agent_get(actor, release.agent_id)
    return _served(
        agent, f"{agent.name}, release {release.number}", release.pk, release.number, bundle_of(release), prompt
    )


def _checkpoint(actor: Actor, checkpoint_id: str, prompt: str) -> ServedModel:
    """The agent as a release of the checkpoint would serve it now."""
    checkpoint = checkpoint_of(actor, checkpoint_id)
    agent = agent_get(actor, checkpoint.agent_id)
    bundle = _made(bundle_of_checkpoint, checkpoint)
    return _served(agent, f"{agent.name}, {checkpoint.label}", checkpoint.pk, 0, bundle, prompt)


def _made(make: Callable[[Any], Bundle], row: Any) -> Bundle:
    """Raises Invalid."""
    try:
        return make(row)
    except DomainError as error:
        raise Invalid(f"It can't be called: {error.message}") from error


def _served(agent: Agent, name: str, row_id: UUID, number: int, bundle: Bundle, prompt: str) -> ServedModel:
    if agent.archived_at is not None:
        raise Invalid(f"{agent.name} is archived. Choose another agent.")
    serving = AgentServing.objects.filter(agent=agent).first()
    serving = serving or AgentServing(agent=agent, organization_id=agent.organization_id)
    shown = replace(bundle, system=prompt) if prompt else bundle
    return ServedModel(
        name,
        agent.organization_id,
        agent.pk,
        records=agent.collects,
        current=served_bundle(agent, ServedRelease(row_id, number, shown), serving),
        prices=DatabasePriceBook.load(agent.organization_id),
    )
