"""Writes of agents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.db import transaction
from django.utils.text import slugify

from agentcore_site.audit.services import archive, record
from agentcore_site.jobs.services import jobs_cancel_of_agent
from agentcore_site.lib.errors import Conflict, Invalid, Missing
from agentcore_site.lib.registry import UnknownName
from agentcore_site.lib.row_checks import check_row, check_secrets_stay, hold_row, known_fields, save_row
from agentcore_site.outbound_settings import check_address
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.erasure import digest
from agentcore_site.tenancy.permissions import current_organization, require
from agentcore_site.vault import sealed
from experiences.agents.consent import consent_changes
from experiences.agents.endpoint_config import BadEndpoint, endpoint_of_agent, endpoint_of_reflector
from experiences.agents.evolution_settings import evolution_settings_faults
from experiences.agents.services.agent_changes import agent_change_check, guarded_values
from experiences.agents.services.agent_philosophy import philosophy_check, philosophy_of_new
from experiences.agents.services.environments import (
    environment_addresses_check,
    environment_check,
    environment_fits,
)
from experiences.agents.services.grants import grants_set, grants_wanted
from experiences.agents.services.model_servers import own_model_endpoint
from experiences.agents.signals import agent_archived, agent_context_changed, agent_evolves
from experiences.agents.toolset_of import named_tools
from experiences.models import Agent, AgentRuntime, Playbook
from experiences.privacy import redact_value
from experiences.rollouts.rewards.trial import reward_fields
from experiences.rollouts.runtimes.base import calls_model
from experiences.rollouts.tools.toolset import Toolset

EDITABLE = (
    "name",
    "slug",
    "description",
    "philosophy",
    "runtime",
    "environment",
    "environment_options",
    "endpoint",
    "model",
    "system_prompt",
    "prompt_pack",
    "pack_by_domain",
    "tools",
    "max_tokens",
    "url",
    "inject_context",
    "collects",
    "reward",
    "reward_options",
    "grouped_execution",
    "reflector",
    "reflector_model",
    "objective",
    "learning_objective",
    "leave_out_rate",
    "ace_release",
    "evolves",
    "ace_delta_model",
    "ace_min_confidence",
    "ace_max_sections",
    "ace_evolution_frequency",
    "ace_reflection_rounds",
    "ace_monthly_budget_usd",
)
CHOSEN = ("ace_release",)
WRITTEN = ("description", "system_prompt", "objective", "learning_objective")  # long texts
MAX_TOKENS = 200_000


@transaction.atomic
def agent_create(actor: Actor, *, name: str, slug: str = "", **values: Any) -> Agent:
    """Makes an agent in the actor's organisation.

    ``granted_tools`` names the tools of its ``tool_servers`` by their ids (``grants``); ``authorization``
    comes in plain and is sealed. Without a ``philosophy`` its tools decide (``philosophy_of_new``). ``own_model``: in
    place of an ``endpoint``, the source of a model for which this site starts a server (``own_model_endpoint``).

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: a field is wrong (``fields`` says which).
        Conflict: the slug is taken.
    """
    organization = current_organization(actor)
    require(actor, "agent.edit", organization)
    _own_model(actor, values)
    servers, named = values.pop("tool_servers", None), values.pop("granted_tools", None)
    authorization = values.pop("authorization", "")
    agent = Agent(
        organization=organization,
        name=name.strip(),
        slug=(slug or slugify(name)).strip(),
        created_by=Actor.of(actor).user,
        **known_fields(values, EDITABLE),
    )
    grants = grants_wanted(actor, agent, servers, named)
    if not values.get("philosophy"):
        agent.philosophy = philosophy_of_new(agent, grants)
    philosophy_check(agent, grants)
    agent_change_check(agent, {})
    _authorize(actor, agent, authorization, before="")
    _check_address(actor, agent, "", {})
    ace_release_check(actor, agent, before="")
    _save(agent)
    grants_set(agent, grants)
    if agent.evolves:
        agent_evolves.send(Agent, actor=actor, agent=agent)
    record(
        actor, "agent.created", agent, after={"slug": agent.slug} | _logged(agent, CHOSEN if agent.ace_release else ())
    )
    return agent


@transaction.atomic
def agent_update(actor: Actor, agent: Agent, **values: Any) -> Agent:
    """Changes an agent; what is not given stays.

    Raises:
        Invalid: as for ``agent_create``.
        Conflict: the slug is taken, the agent is archived, or a job that has not ended was planned with another model.
    """
    require(actor, "agent.edit", agent.organization_id)
    if agent.archived_at is not None:
        raise Conflict(f"{agent.name} is archived.")
    _own_model(actor, values)
    servers, named = values.pop("tool_servers", None), values.pop("granted_tools", None)
    authorization = values.pop("authorization", "")
    grants = grants_wanted(actor, agent, servers, named)
    if not values.get("collects", True):
        consent_changes(agent.id)
    hold_row(agent)  # training writes to it too; after the tool servers were asked, which is slow
    names = [*values, *(["tool_servers"] if grants is not None else []), *(["authorization"] if authorization else [])]
    before, address, options = _logged(agent, names), agent.url, dict(agent.environment_options or {})
    injected, evolved, guarded = agent.inject_context, agent.evolves, guarded_values(agent)
    release = agent.ace_release
    for name, value in known_fields(values, EDITABLE).items():
        setattr(agent, name, value)
    if (agent.url, agent.inject_context) != (address, injected):
        agent.context_arrives = None  # what was seen was another agent, or another way to its model
    philosophy_check(agent, grants)
    agent_change_check(agent, guarded)
    _authorize(actor, agent, authorization, before=address)
    _check_address(actor, agent, address, options)
    ace_release_check(actor, agent, before=release)
    _save(agent)
    Playbook.objects.filter(agent=agent).update(philosophy=agent.philosophy)
    if "leave_out_rate" in values or agent.ace_release != release:
        agent_context_changed.send(Agent, agent=agent)  # at once
    grants_set(agent, grants)
    if agent.evolves and not evolved:
        agent_evolves.send(Agent, actor=actor, agent=agent)
    record(actor, "agent.changed", agent, before=before, after=_logged(agent, names))
    return agent


def _own_model(actor: Actor, values: dict[str, Any]) -> None:
    """Puts the endpoint of a model of our own in its place."""
    if source := values.pop("own_model", ""):
        values["endpoint"] = own_model_endpoint(actor, source)


def _authorize(actor: Actor, agent: Agent, given: str, *, before: str) -> None:
    """Seals the Authorization header for the agent's address; an empty value leaves it unchanged."""
    given = given.strip()
    if given:
        require(actor, "endpoint.edit", agent.organization_id)
        if not (given.isascii() and given.isprintable()):
            message = "The header holds a control character, or no ASCII."
            raise Invalid(message, fields={"authorization": message})
        agent.authorization = sealed(given)
    if not agent.url:
        agent.authorization = ""
    check_secrets_stay(
        agent, ["authorization"], given=["authorization"] if given else [], before=before, after=agent.url
    )


def _check_address(actor: Actor, agent: Agent, before: str, options: Mapping[str, Any]) -> None:
    """Our workers call that address from inside: only those who may make endpoints may choose it. Raises Missing,
    Forbidden, Invalid."""
    if agent.url and agent.url != before:
        require(actor, "endpoint.edit", agent.organization_id)
        check_address("url", agent.url, before=before)
    given = agent.environment_options
    if isinstance(given, Mapping):
        environment_addresses_check(actor, agent.organization_id, agent.environment, given, options)


def ace_release_check(actor: Actor, agent: Agent, *, before: str) -> None:
    """Only an actor who may deploy changes how the playbook reaches services, because that changes what is served.

    Raises:
        Missing, Forbidden: the actor may not.
    """
    if agent.ace_release != before:
        require(actor, "deployment.edit", agent.organization_id)


def _logged(agent: Agent, names: Iterable[str]) -> dict[str, Any]:
    """Values for the audit log, which can't be edited: endpoint, prompt pack and tool servers by name, long texts by a
    digest, and options without personal data."""
    wanted = list(names)
    found = {name: getattr(agent, name) for name in wanted if name in EDITABLE}
    found |= {name: _summary_of(found[name]) for name in WRITTEN if name in found}
    found |= {name: redact_value(found[name]) for name in ("environment_options", "reward_options") if name in found}
    for name in ("endpoint", "reflector"):
        if name in found:
            found[name] = str(getattr(agent, name) or "")
    if "prompt_pack" in found:
        found["prompt_pack"] = str(agent.prompt_pack or "")
    if "tool_servers" in wanted:
        found["tool_servers"] = {
            server.name: agent.granted_tools.get(str(server.pk), []) for server in agent.tool_servers.order_by("name")
        }
    if "authorization" in wanted:
        found["has_authorization"] = bool(agent.authorization)
    return found


def _summary_of(text: str) -> str:
    return f"{len(text):,} characters, digest {digest(text)[:12]}" if text else ""


@transaction.atomic
def agent_archive(actor: Actor, agent: Agent) -> Agent:
    """Hides an agent, cancels its active jobs, and gives out its context no more. Its rows stay."""
    require(actor, "agent.edit", agent.organization_id)
    consent_changes(agent.id)
    if archive(actor, agent, "agent.archived"):
        jobs_cancel_of_agent(actor, agent.id, agent.organization_id)
        agent_archived.send(Agent, actor=actor, agent=agent)
    return agent


def agent_check(agent: Agent) -> None:
    """A language-model agent needs somewhere to answer; its tools have to be there.

    Raises:
        Invalid, Missing: something of its language model is wrong (``fields`` says what).
    """
    for endpoint in (agent.endpoint, agent.reflector):
        if endpoint is not None and endpoint.organization_id != agent.organization_id:
            raise Missing("There is no such endpoint.")
    _check_pack(agent)
    if not 1 <= (agent.max_tokens or 0) <= MAX_TOKENS:
        message = f"max_tokens must be between 1 and {MAX_TOKENS:,}; got {agent.max_tokens}."
        raise Invalid(message, fields={"max_tokens": message})
    if not isinstance(agent.tools, list) or not all(isinstance(name, str) for name in agent.tools):
        raise Invalid("tools is a list of names.", fields={"tools": "A list of names."})
    try:
        Toolset(named_tools(agent.tools))
    except (UnknownName, ValueError) as error:
        raise Invalid(str(error), fields={"tools": str(error)}) from error
    if agent.runtime == AgentRuntime.HTTP and not agent.url:
        message = "Say where the agent takes its tasks."
        raise Invalid(message, fields={"url": message})
    environment_fits(agent, agent.environment)
    _check_training(agent)
    if agent.runtime != AgentRuntime.ACTION:
        try:
            endpoint_of_agent(agent)
        except BadEndpoint as error:
            raise Invalid(str(error), fields={error.field: str(error)}) from error
        _check_reflector(agent)


def _check_reflector(agent: Agent) -> None:
    try:
        endpoint_of_reflector(agent)
    except BadEndpoint as error:
        field = "reflector_model" if error.field == "model" else "reflector"
        raise Invalid(f"Its reflector: {error}", fields={field: str(error)}) from error


def _check_training(agent: Agent) -> None:
    """The reward and the settings of evolution that the agent has of its own."""
    faults = evolution_settings_faults(agent)
    if not isinstance(agent.reward_options, dict):
        faults["reward_options"] = "reward_options is an object."
    elif agent.reward:
        faults |= reward_fields(agent.reward, agent.reward_options, has_model=calls_model(agent.runtime))
    elif agent.reward_options:
        faults["reward"] = "Name the reward that these options are for."
    if faults:
        raise Invalid(" ".join(faults.values()), fields=faults)


def _check_pack(agent: Agent) -> None:
    if agent.pack_by_domain and agent.runtime == AgentRuntime.ACTION:
        message = "An agent that chooses actions reads no prompt."
        raise Invalid(message, fields={"pack_by_domain": message})
    pack = agent.prompt_pack
    if pack is not None and (pack.organization_id != agent.organization_id or pack.archived_at is not None):
        raise Missing("There is no such prompt pack.")


def _save(agent: Agent) -> None:
    agent_check(agent)
    if agent.environment != "dataset":
        environment_check(agent.environment, agent.environment_options)
    check_row(agent, exclude=["organization", "created_by"])
    save_row(agent, unique="slug", taken=f"There is already an agent with the slug {agent.slug!r}. Choose another.")
