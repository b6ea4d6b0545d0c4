"""The agent of a bundle, independent of the agent's current rows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from agentcore_site.lib.errors import Conflict
from evaluation.serving.releases.bundle import Bundle
from experiences.agents.runtime_factory import RuntimeFactory
from experiences.agents.toolset_of import AgentTools, named_tools
from experiences.models import Agent, ModelEndpoint, ToolServer
from experiences.rollouts.runtimes.llm.prompts import INSTRUCTIONS, Instructions
from training.checkpoint_bytes import checkpoint_load
from training.learners import policy_of
from training.models import PolicyCheckpoint


def acting_agent(agent: Agent, bundle: Bundle) -> Agent:
    """The agent with the model, prompt and tools of the bundle. Do not save it.

    Raises:
        Conflict: the bundle's endpoint is gone or archived.
    """
    acting = copy.copy(agent)
    acting.runtime, acting.philosophy = bundle.runtime, bundle.philosophy
    acting.endpoint = endpoint_now(bundle, agent.organization_id)
    acting.model, acting.max_tokens = bundle.model.name, bundle.model.max_tokens
    acting.prompt_pack, acting.system_prompt = None, bundle.system
    acting.tools = list(bundle.tools)
    acting.granted_tools = {server.id: list(server.tools) for server in bundle.servers}
    return acting


def runtime_factory(
    agent: Agent, bundle: Bundle, *, job_id: UUID, work: str, judged_by: RuntimeFactory | None = None
) -> RuntimeFactory:
    """Makes the runtimes of a language model with the bundle's settings. ``judged_by``: whose model judges in place of
    the bundle's.

    Raises:
        Conflict: the bundle's endpoint or a tool server is gone.
    """
    acting = acting_agent(agent, bundle)
    tools = AgentTools(acting, _servers(agent, bundle))
    said = Instructions(**bundle.play.instructions) if bundle.play is not None else INSTRUCTIONS
    return RuntimeFactory(acting, job_id=job_id, work=work, tools=tools, instructions=said, judged_by=judged_by)


def action_policy(bundle: Bundle) -> Any:
    """The policy of an agent that chooses actions: an ``ActionSelector`` with the names of its ``actions``.

    Raises:
        Conflict: the checkpoint is gone or damaged.
    """
    assert bundle.policy is not None
    checkpoint = PolicyCheckpoint.objects.filter(pk=bundle.policy.checkpoint, sha256=bundle.policy.sha256).first()
    if checkpoint is None:
        raise Conflict("The checkpoint that holds the release's parameters is gone.")
    return policy_of(checkpoint_load(checkpoint))


def endpoint_now(bundle: Bundle, organization_id: UUID) -> ModelEndpoint | None:
    """The endpoint of a bundle, with the endpoint's current address and keys and with the bundle's options. None: the
    bundle has no endpoint. Do not save it.
    Production and suites both use it, so that suites measure what is served. A moved endpoint makes its releases stale
    (``moved_since``), and results of suites at the old address do not count (``latest_results``).

    Raises:
        Conflict: the endpoint is gone or archived.
    """
    if not bundle.model.endpoint:
        return None
    row = ModelEndpoint.objects.filter(pk=bundle.model.endpoint, organization_id=organization_id).first()
    if row is None or row.archived_at is not None:
        raise Conflict(f"The endpoint {bundle.model.endpoint_name}, which it calls, is gone or archived.")
    row.options = dict(bundle.model.options)
    return row


def tools_of(agent: Agent, bundle: Bundle) -> Callable[..., AgentTools]:
    """Makes the tools of one call in production, by what the database says now.

    Raises:
        Conflict: the bundle's endpoint or a tool server is gone.
        UnknownName: a tool is gone.
    """
    acting, servers = acting_agent(agent, bundle), _servers(agent, bundle)
    named_tools(acting.tools)
    return partial(AgentTools, acting, servers)


def _servers(agent: Agent, bundle: Bundle) -> list[ToolServer]:
    rows = ToolServer.objects.filter(organization_id=agent.organization_id, archived_at=None)
    found = list(rows.filter(pk__in=[server.id for server in bundle.servers]))
    gone = {server.id: server.name for server in bundle.servers}.keys() - {str(one.pk) for one in found}
    if gone:
        names = ", ".join(server.name for server in bundle.servers if server.id in gone)
        raise Conflict(f"Without its tool servers the release can't act. Gone: {names}.")
    return found
