"""Promotion of a checkpoint and its reversal: both set the agent's current checkpoint and make a release of it.
Neither changes what is served: a deployment of the release does.
"""

from __future__ import annotations

from django.db import transaction

from agentcore_site.tenancy.actors import Actor
from evaluation.serving.models import Release
from evaluation.serving.releases.services import Unchanged, release_make
from experiences.models import Agent
from training.models import PolicyCheckpoint
from training.services.promotion import agent_step_back, promoted_checkpoint_set


@transaction.atomic
def checkpoint_promote(actor: Actor, checkpoint: PolicyCheckpoint, *, note: str = "") -> Release:
    """Makes this checkpoint the agent's current one, from which later jobs start, and makes a release of it.

    Raises:
        Missing, Forbidden, Invalid, Conflict: as for ``promoted_checkpoint_set`` and ``release_make``.
    """
    promoted_checkpoint_set(actor, checkpoint)
    return _release(actor, checkpoint, note)


@transaction.atomic
def agent_roll_back(actor: Actor, agent: Agent, *, note: str = "") -> Release:
    """Makes the checkpoint before the last promotion the agent's current one again, and makes a release of it.

    Raises:
        Missing, Forbidden, Invalid, Conflict: as for ``agent_step_back`` and ``release_make``.
    """
    return _release(actor, agent_step_back(actor, agent), note)


def _release(actor: Actor, checkpoint: PolicyCheckpoint, note: str) -> Release:
    try:
        return release_make(actor, checkpoint.agent, checkpoint=checkpoint, note=note)
    except Unchanged as same:
        return same.release
