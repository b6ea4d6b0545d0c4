"""Uploads weights to the model server."""

from __future__ import annotations

import asyncio

from agentcore_site.lib.errors import Conflict
from agentcore_site.lib.registry import UnknownName
from experiences.agents.endpoint_config import BadEndpoint, endpoint_of_agent, uses_model_server
from experiences.agents.model_server_client import ModelServerClient
from experiences.models import Agent
from experiences.rollouts.own_weights import Weights, weights_of
from experiences.rollouts.runtimes.base import Halted
from training.checkpoint_bytes import checkpoint_load
from training.learners import policy_of
from training.models import PolicyCheckpoint
from training.policies.archive import CorruptState


def weights_bring(agent: Agent, checkpoint: PolicyCheckpoint) -> None:
    """Uploads the checkpoint's weights to the agent's model server, which stores them; does nothing for other agents.

    Raises:
        Conflict: the checkpoint can't be read, or its model server is unavailable.
    """
    if not uses_model_server(agent):
        return
    try:
        weights = weights_of(policy_of(checkpoint_load(checkpoint)))
        if weights is not None:
            asyncio.run(_bring(agent, weights))
    except (CorruptState, UnknownName) as error:
        raise Conflict(f"{checkpoint.label} can't be read: {error}") from error
    except (BadEndpoint, Halted) as error:
        raise Conflict(f"The weights can't be uploaded to their model server: {error}") from error


async def _bring(agent: Agent, weights: Weights) -> None:
    server = ModelServerClient(endpoint_of_agent(agent))
    try:
        await server.put(weights, keep=True)
    finally:
        await server.aclose()
