"""Checks of an environment for a launch: it exists, the agent can play it, its addresses are allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentcore_site.lib.errors import Invalid
from agentcore_site.lib.registry import UnknownName
from agentcore_site.outbound_settings import check_address
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from experiences.models import Agent, AgentRuntime
from experiences.rollouts.environments import environments
from experiences.rollouts.options import own_options


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
