"""Writes of agents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from django.db import transaction
from django.utils import timezone
from django.utils.text import slugify

from agentcore_site.audit.services import record
from agentcore_site.errors import Invalid, Missing
from agentcore_site.registry import UnknownName
from agentcore_site.rows import check_row, known_fields, save_row
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from experiences.endpoints import BadEndpoint, endpoint_of_agent
from experiences.environments import environments
from experiences.models import Agent, Playbook, Runtime, ToolServer
from experiences.options import own_options
from experiences.tools.toolset import Toolset
from experiences.toolservers import named_tools

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
    "tools",
    "max_tokens",
    "url",
    "collects",
)
MAX_TOKENS = 200_000


@transaction.atomic
def agent_create(actor: Any, *, name: str, slug: str = "", **values: Any) -> Agent:
    """Makes an agent in the actor's organisation.

    Raises:
        Invalid: a field is wrong (``fields`` says which).
        Conflict: the slug is taken.
    """
    organization = current_organization(actor)
    require(actor, "agent.edit", organization)
    servers = values.pop("tool_servers", None)
    agent = Agent(
        organization=organization,
        name=name.strip(),
        slug=(slug or slugify(name)).strip(),
        created_by=Actor.of(actor).user,
        **known_fields(values, EDITABLE),
    )
    _check_address(actor, agent, "", {})
    _save(agent)
    _set_servers(agent, servers)
    record(actor, "agent.created", agent, after={"slug": agent.slug})
    return agent


@transaction.atomic
def agent_update(actor: Any, agent: Agent, **values: Any) -> Agent:
    """Changes an agent; what is not given stays.

    Raises:
        Invalid, Conflict: as for ``agent_create``.
    """
    require(actor, "agent.edit", agent.organization_id)
    servers = values.pop("tool_servers", None)
    before, address, options = _logged(agent, values), agent.url, dict(agent.environment_options or {})
    for name, value in known_fields(values, EDITABLE).items():
        setattr(agent, name, value)
    _check_address(actor, agent, address, options)
    _save(agent)
    Playbook.objects.filter(agent=agent).update(philosophy=agent.philosophy)
    _set_servers(agent, servers)
    record(actor, "agent.changed", agent, before=before, after=_logged(agent, values))
    return agent


def _set_servers(agent: Agent, servers: Iterable[ToolServer] | None) -> None:
    """The MCP servers whose tools it may use; None: as they were."""
    if servers is None:
        return
    chosen = list(servers)
    if any(one.organization_id != agent.organization_id for one in chosen):
        raise Missing("There is no such tool server.")
    agent.tool_servers.set(chosen)


def _check_address(actor: Any, agent: Agent, before: str, options: Mapping[str, Any]) -> None:
    """Our workers call that address from inside: only who may make endpoints may choose it."""
    if agent.url and agent.url != before:
        require(actor, "endpoint.edit", agent.organization_id)
    given = agent.environment_options
    if isinstance(given, Mapping):
        environment_addresses_check(actor, agent.organization_id, agent.environment, given, options)


def _logged(agent: Agent, names: Iterable[str]) -> dict[str, Any]:
    """For the audit log; endpoint and prompt pack by their names."""
    found = {name: getattr(agent, name) for name in names if name in EDITABLE}
    if "endpoint" in found:
        found["endpoint"] = str(agent.endpoint or "")
    if "prompt_pack" in found:
        found["prompt_pack"] = str(agent.prompt_pack or "")
    return found


@transaction.atomic
def agent_archive(actor: Any, agent: Agent) -> Agent:
    """Hides an agent; its runs and evaluations stay."""
    require(actor, "agent.edit", agent.organization_id)
    if agent.archived_at is None:
        agent.archived_at = timezone.now()
        agent.save(update_fields=["archived_at"])
        record(actor, "agent.archived", agent)
    return agent


def environment_check(name: str, options: Mapping[str, Any]) -> None:
    """Raises:
    Invalid: there is no such environment, or it refuses the options."""
    try:
        environments.get(name)(own_options(options))
    except (UnknownName, ValueError) as error:
        message = str(error)
        raise Invalid(message, fields={"environment": message}) from error


def agent_check(agent: Agent) -> None:
    """A language-model agent needs somewhere to answer; its tools have to be there.

    Raises:
        Invalid, Missing: something of its language model is wrong (``fields`` says what).
    """
    if agent.endpoint is not None and agent.endpoint.organization_id != agent.organization_id:
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
    if agent.url and not (urlsplit(agent.url).scheme in {"http", "https"} and urlsplit(agent.url).hostname):
        raise Invalid("The agent's address begins with http:// or https://.", fields={"url": "Not an http address."})
    if agent.runtime == Runtime.HTTP and not agent.url:
        message = "Say where the agent takes its tasks."
        raise Invalid(message, fields={"url": message})
    environment_fits(agent, agent.environment)
    if agent.runtime != Runtime.ACTION:
        try:
            endpoint_of_agent(agent)
        except BadEndpoint as error:
            raise Invalid(str(error), fields={error.field: str(error)}) from error


def _check_pack(agent: Agent) -> None:
    pack = agent.prompt_pack
    if pack is not None and (pack.organization_id != agent.organization_id or pack.archived_at is not None):
        raise Missing("There is no such prompt pack.")


def environment_fits(agent: Agent, environment: str) -> None:
    """Raises:
    Invalid: it is a conversation in text, and the agent has no language model of its own."""
    if agent.runtime != Runtime.LLM and getattr(_factory(environment), "speaks_text_only", False):
        message = f"{environment} is a conversation in text: only an agent that is a language model can play it."
        raise Invalid(message, fields={"runtime": message})


def environment_addresses_check(
    actor: Any, organization_id: Any, environment: str, options: Mapping[str, Any], known: Mapping[str, Any]
) -> None:
    """Our workers call the addresses in an environment's options from inside: only who may make endpoints may choose
    new ones.

    Raises:
        Missing, Forbidden: the actor may not.
    """
    names = getattr(_factory(environment), "address_options", ())
    if any(options.get(name) and options.get(name) != known.get(name) for name in names):
        require(actor, "endpoint.edit", organization_id)


def _factory(environment: str) -> Any:
    return environments.get(environment) if environment in environments.names() else None


def _save(agent: Agent) -> None:
    agent_check(agent)
    if agent.environment != "dataset":
        environment_check(agent.environment, agent.environment_options)
    check_row(agent, exclude=["organization", "created_by"])
    save_row(agent, unique="slug", taken=f"There is already an agent with the slug {agent.slug!r}. Choose another.")
