"""Models and agents that the gateway serves by name, read from the database."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import orjson
from django.core.exceptions import ObjectDoesNotExist

from agentcore_site.lib.errors import DomainError
from agentcore_site.lib.registry import UnknownName
from agentcore_site.lib.row_scope import only
from budgets.llm.types import Endpoint
from budgets.metering.price_book import DatabasePriceBook
from evaluation.serving.gateway.action import ActionAgent
from evaluation.serving.models import LIVE, AgentServing, Deployment, DeploymentStrategy, Release
from evaluation.serving.releases.bundle import Bundle
from evaluation.serving.releases.bundle_agent import endpoint_now, tools_of
from experiences.agents.endpoint_config import BadEndpoint, endpoint_value
from experiences.agents.toolset_of import AgentTools
from experiences.models import Agent, AgentRuntime, ModelEndpoint
from experiences.rollouts.environments import environments
from training.checkpoint_bytes import checkpoint_load
from training.learners import policy_of
from training.models import PolicyCheckpoint

AGENT: Final = "agent:"


@dataclass(frozen=True)
class Upstream:
    """An endpoint with a model. Equal ``key``s have equal settings and share a client.

    ``priced`` is the model's name in the price book."""

    key: str
    name: str
    endpoint: Endpoint
    priced: str


@dataclass(frozen=True)
class ServedRelease:
    """A release that answers: by ``upstreams``, called in order, or by ``action``. ``tools`` makes those that it calls
    by itself, with a ``pool`` of connections. ``fault``: the reason why it can't."""

    id: uuid.UUID
    number: int
    bundle: Bundle
    upstreams: tuple[Upstream, ...] = ()
    action: ActionAgent | None = None
    tools: Callable[..., AgentTools] | None = None
    fault: str = ""


@dataclass(frozen=True)
class ServedModel:
    """The model or agent under a name. ``fault``: the reason why nothing answers, with its HTTP ``status``.
    ``current`` and ``new`` are an agent's releases; ``share`` of the sessions get the new one.
    ``upstreams`` are those of a plain model.
    """

    name: str
    organization_id: uuid.UUID
    agent_id: uuid.UUID | None = None
    records: bool = True
    current: ServedRelease | None = None
    new: ServedRelease | None = None
    deployment_id: uuid.UUID | None = None
    salt: bytes = b""
    share: float = 0.0
    shadow: bool = False
    upstreams: tuple[Upstream, ...] = ()
    while_away_micros: int = 0
    prices: DatabasePriceBook | None = None
    fault: str = ""
    status: int = 404


def served_model(organization_id: uuid.UUID, name: str) -> ServedModel:
    """The model or agent under a name; never None: an unknown name has a ``fault``."""
    with only(organization_id):
        return _served(organization_id, name)


def _served(organization_id: uuid.UUID, name: str) -> ServedModel:
    if not name.startswith(AGENT):
        return _endpoint_model(organization_id, name)
    slug = name[len(AGENT) :]
    agent = Agent.objects.filter(organization_id=organization_id, slug=slug, archived_at=None).first()
    if agent is None:
        return ServedModel(name, organization_id, fault=f"There is no agent {slug[:60]!r} here.")
    serving = AgentServing.objects.filter(agent=agent).select_related("release").first()
    live = Deployment.objects.filter(agent=agent, state__in=LIVE).select_related("release").first()
    if serving is None or (serving.release is None and live is None):
        why = f"No release of {slug} is deployed. Deploy one on its page."
        return ServedModel(name, organization_id, agent.pk, fault=why, status=409)
    found = ServedModel(
        name,
        organization_id,
        agent.pk,
        records=agent.collects,
        current=_release(agent, serving.release, serving) if serving.release else None,
        while_away_micros=serving.while_away_micros,
        prices=DatabasePriceBook.load(organization_id),
    )
    if live is None:
        return found
    return replace(
        found,
        new=_release(agent, live.release, serving),
        deployment_id=live.pk,
        salt=live.salt.bytes,
        share=live.share,
        shadow=live.strategy == DeploymentStrategy.SHADOW,
    )


def names_served(organization_id: uuid.UUID) -> list[str]:
    """The names that answer: agents with a release, and the endpoints' own models."""
    agents = AgentServing.objects.filter(organization_id=organization_id, agent__archived_at=None)
    slugs = agents.exclude(release=None).order_by("agent__slug").values_list("agent__slug", flat=True)
    rows = ModelEndpoint.objects.filter(organization_id=organization_id, archived_at=None).exclude(model="")
    models = rows.order_by("model").values_list("model", flat=True).distinct()
    with only(organization_id):
        return [*(f"{AGENT}{slug}" for slug in slugs), *models]


def _endpoint_model(organization_id: uuid.UUID, name: str) -> ServedModel:
    """A model of an endpoint: by the endpoint's own model name, or as ``endpoint/model``."""
    rows = ModelEndpoint.objects.filter(organization_id=organization_id, archived_at=None).order_by("created_at")
    row, model = rows.filter(model=name).first(), name
    if row is None:
        at, _, model = name.partition("/")
        row = rows.filter(name=at).first() if model else None
    if row is None:
        why = f"No model {name[:80]!r} here. GET /v1/models lists what there is; another one is endpoint/model."
        return ServedModel(name, organization_id, fault=why)
    return endpoint_served(row, model, name)


def endpoint_served(row: ModelEndpoint, model: str, name: str) -> ServedModel:
    """A model of an endpoint under a name; ``fault`` says why it can't be called."""
    organization_id = row.organization_id
    try:
        upstreams = (_upstream(row, model),)
    except BadEndpoint as error:
        return ServedModel(name, organization_id, fault=str(error), status=503)
    prices = DatabasePriceBook.load(organization_id)
    return ServedModel(name, organization_id, upstreams=upstreams, prices=prices)


def _release(agent: Agent, release: Release, serving: AgentServing) -> ServedRelease:
    found = served_bundle(agent, ServedRelease(release.pk, release.number, _bundle(release.pk)), serving)
    return replace(found, fault=f"Release {found.number} can't be served: {found.fault}") if found.fault else found


def served_bundle(agent: Agent, found: ServedRelease, serving: AgentServing) -> ServedRelease:
    """A release with what answers for its bundle; ``fault`` says why nothing does."""
    bundle = found.bundle
    try:
        if bundle.runtime == AgentRuntime.ACTION:
            return replace(found, action=_action(agent, bundle))
        tools = tools_of(agent, bundle) if bundle.is_played else None
        return replace(found, upstreams=_upstreams(bundle, serving), tools=tools)
    except (BadEndpoint, DomainError, ObjectDoesNotExist, UnknownName, ValueError) as error:
        return replace(found, fault=str(error))


@lru_cache(maxsize=256)
def _bundle(release_id: uuid.UUID) -> Bundle:
    """The bundle of a release, cached: releases never change."""
    return Bundle.from_json(Release.objects.values_list("bundle", flat=True).get(pk=release_id))


def _upstreams(bundle: Bundle, serving: AgentServing) -> tuple[Upstream, ...]:
    """Raises BadEndpoint, Conflict: the release's own endpoint can't be used. An unusable fallback is left out."""
    if bundle.runtime != AgentRuntime.LLM:
        raise BadEndpoint("it is an agent over HTTP: call it at its own address")
    rows = ModelEndpoint.objects.in_bulk(serving.fallbacks)
    found = [_upstream(endpoint_now(bundle, serving.organization_id), bundle.model.name)]
    for fallback in serving.fallbacks:
        row = rows.get(fallback)
        if row is not None and row.organization_id == serving.organization_id and row.archived_at is None:
            found.append(_upstream(row, row.model or bundle.model.name))
    return tuple(found)


def _upstream(row: ModelEndpoint | None, model: str) -> Upstream:
    """Raises BadEndpoint."""
    endpoint = endpoint_value(row, model)
    settings = [str(row.pk), row.updated_at.isoformat(), row.options] if row is not None else []
    key = hashlib.sha256(orjson.dumps([*settings, model], option=orjson.OPT_SORT_KEYS)).hexdigest()
    return Upstream(key, row.name if row is not None else "", endpoint, endpoint.model)


def _action(agent: Agent, bundle: Bundle) -> ActionAgent:
    """Raises DomainError, UnknownName, ValueError: the checkpoint or the environment can't be used."""
    if bundle.policy is None:
        raise ValueError("it names no checkpoint")
    return _loaded(bundle.policy.checkpoint, bundle.policy.sha256, agent.pk)


@lru_cache(maxsize=16)
def _loaded(checkpoint: str, sha256: str, agent_id: uuid.UUID) -> ActionAgent:
    """The policy in the environment of its training job, whose actions it knows; an uploaded one in the agent's."""
    row = PolicyCheckpoint.objects.select_related("run").get(pk=checkpoint)
    if row.sha256 != sha256:
        raise ValueError("its checkpoint was changed")
    trained_in = row.run or Agent.objects.get(pk=agent_id)
    world = environments.get(trained_in.environment)(dict(trained_in.environment_options))
    return ActionAgent(world, policy_of(checkpoint_load(row)))
