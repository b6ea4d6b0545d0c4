"""A bundle at work: the agent as the bundle says, whatever its rows say now."""

from __future__ import annotations

import copy
from typing import Any
from uuid import UUID

from agentcore_site.lib.errors import Conflict
from experiences.agents.runtime_factory import RuntimeFactory
from experiences.agents.toolset_of import AgentTools
from experiences.models import Agent, ModelEndpoint, ToolServer
from serving.releases.bundle import Bundle
from training.learners import policy_of
from training.models import PolicyCheckpoint
from training.services.checkpoints import checkpoint_load


def acting_agent(agent: Agent, bundle: Bundle) -> Agent:
    """The agent with the model, prompt and tools of the bundle. To be read only.

    Raises:
        Conflict: the bundle's endpoint is gone, archived, or at another address now, which its key is not for.
    """
    acting = copy.copy(agent)
    acting.runtime, acting.philosophy = bundle.runtime, bundle.philosophy
    acting.endpoint = _endpoint(agent, bundle)
    acting.model, acting.max_tokens = bundle.model.name, bundle.model.max_tokens
    acting.prompt_pack, acting.system_prompt = None, bundle.system
    acting.tools = list(bundle.tools)
    acting.granted_tools = {one.id: list(one.tools) for one in bundle.servers}
    return acting


def runtime_factory(agent: Agent, bundle: Bundle, *, job_id: UUID, work: str) -> RuntimeFactory:
    """Makes the runtimes by which a language model plays as the bundle says.

    Raises:
        Conflict: its endpoint or a tool server is not there any more.
    """
    acting = acting_agent(agent, bundle)
    tools = AgentTools(acting, _servers(agent, bundle))
    return RuntimeFactory(acting, job_id=job_id, work=work, tools=tools)


def action_policy(bundle: Bundle) -> Any:
    """The policy of an agent that chooses actions, which is an ``ActionSelector`` with the names of its ``actions``.

    Raises:
        Conflict: its checkpoint is gone or damaged.
    """
    assert bundle.policy is not None
    checkpoint = PolicyCheckpoint.objects.filter(pk=bundle.policy.checkpoint, sha256=bundle.policy.sha256).first()
    if checkpoint is None:
        raise Conflict("The checkpoint that holds the release's parameters is gone.")
    return policy_of(checkpoint_load(checkpoint))


def _endpoint(agent: Agent, bundle: Bundle) -> ModelEndpoint | None:
    if not bundle.model.endpoint:
        return None
    row = ModelEndpoint.objects.filter(pk=bundle.model.endpoint, organization_id=agent.organization_id).first()
    name = bundle.model.endpoint_name
    if row is None or row.archived_at is not None:
        raise Conflict(f"The endpoint {name}, at which this was to be played, is gone or archived.")
    if row.base_url != bundle.model.base_url:
        raise Conflict(f"The endpoint {name} is at another address now: its key is not for {bundle.model.base_url}.")
    row.kind, row.options = bundle.model.kind, dict(bundle.model.options)
    return row


def _servers(agent: Agent, bundle: Bundle) -> list[ToolServer]:
    rows = ToolServer.objects.filter(organization_id=agent.organization_id, archived_at=None)
    found = list(rows.filter(pk__in=[one.id for one in bundle.servers]))
    gone = {one.id: one.name for one in bundle.servers}.keys() - {str(one.pk) for one in found}
    if gone:
        names = ", ".join(one.name for one in bundle.servers if one.id in gone)
        raise Conflict(f"Without its tool servers it would be another agent that is measured. Gone: {names}.")
    return found
