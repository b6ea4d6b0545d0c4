"""Checks of an environment and of queries for a launch: the agent can play them, and addresses are allowed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from agentcore_site.lib.errors import Invalid
from agentcore_site.lib.registry import UnknownName
from agentcore_site.outbound_settings import check_address
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from budgets.llm.images import INLINE, fetches_within
from experiences.agents.endpoint_config import BadEndpoint, endpoint_value
from experiences.models import Agent, AgentRuntime
from experiences.rollouts.conversations import images_of
from experiences.rollouts.environments import environments
from experiences.rollouts.options import own_options

IMAGES_BY: Final = "chat"  # philosophy: the others are served with text alone


def environment_check(name: str, options: Mapping[str, Any]) -> None:
    """Raises:
    Invalid: there is no such environment, or it refuses the options."""
    try:
        environments.get(name)(own_options(options))
    except (UnknownName, ValueError) as error:
        message = str(error)
        raise Invalid(message, fields={"environment": message}) from error


def environment_fits(agent: Agent, environment: str) -> None:
    """Raises:
    Invalid: it is a conversation in text, and the agent has no language model of its own."""
    if agent.runtime != AgentRuntime.LLM and getattr(_factory(environment), "speaks_text_only", False):
        message = f"{environment} is a conversation in text: only an agent that is a language model can play it."
        raise Invalid(message, fields={"runtime": message})


def images_fit(agent: Agent, rows: Iterable[Mapping[str, Any]]) -> None:
    """Looks the name of the agent's endpoint up where a service has to fetch images, which may take a second.

    Raises:
        Invalid: queries hold images, and the agent can't be asked with them.
    """
    images = [url for row in rows for url in images_of(row["query"], row.get("metadata") or {})]
    if not images:
        return
    if agent.runtime != AgentRuntime.LLM:
        kind = "is called over HTTP with a text" if agent.runtime == AgentRuntime.HTTP else "chooses actions"
        why = f"{agent.name} {kind}. Only an agent that is a language model can be asked with images."
    elif agent.philosophy != IMAGES_BY:
        why = f"{agent.name} has the philosophy {agent.philosophy}. Images reach agents of the philosophy {IMAGES_BY}."
    else:
        why = _images_refused(agent, images)
    if why:
        message = f"The queries hold images. {why}"
        raise Invalid(message, fields={"dataset": message})


def _images_refused(agent: Agent, images: Sequence[str]) -> str:
    """The reason why the agent's endpoint can't be sent images; "" without one."""
    try:
        endpoint = endpoint_value(agent.endpoint, agent.model)
    except BadEndpoint:
        return ""  # the start of a job says it
    if endpoint.kind == "weights":
        return f"The model server of {agent.name} reads text only."
    if all(url.startswith(INLINE) for url in images) or not fetches_within(endpoint):
        return ""
    return (
        f"The endpoint of {agent.name} would fetch them within a private network: put the images into the file, as"
        " data: URLs."
    )


def environment_addresses_check(
    actor: Actor, organization_id: Any, environment: str, options: Mapping[str, Any], known: Mapping[str, Any]
) -> None:
    """Our workers call the addresses in an environment's options from inside: only those who may make endpoints may
    choose new ones.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: this site does not call an address.
    """
    for address in new_addresses(environment, options, known):
        require(actor, "endpoint.edit", organization_id)
        check_address("environment", address)


def new_addresses(environment: str, options: Mapping[str, Any], known: Mapping[str, Any]) -> list[str]:
    """The addresses in an environment's options that are not in those that are ``known``."""
    names = getattr(_factory(environment), "address_options", ())
    return [str(options[name]) for name in names if options.get(name) and options[name] != known.get(name)]


def _factory(environment: str) -> Any:
    return environments.get(environment) if environment in environments.names() else None
