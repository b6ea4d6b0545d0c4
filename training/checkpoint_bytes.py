"""The bytes of a checkpoint, read from the database or the object storage and checked by their digest."""

from __future__ import annotations

from agentcore_site.lib.errors import Conflict
from agentcore_site.lib.object_storage import object_load
from training.models import PolicyCheckpoint


class Damaged(Conflict):
    """The bytes of a checkpoint are not those that were saved."""

    title = "Damaged checkpoint"


def checkpoint_load(checkpoint: PolicyCheckpoint) -> bytes:
    """The bytes of a checkpoint.

    Raises:
        Damaged: they don't match the SHA-256 that was written beside them, or the object is gone.
        ObjectsUnavailable: the storage can't be reached.
    """
    if checkpoint.data is not None:
        data = bytes(checkpoint.data)
    else:
        try:
            data = object_load(checkpoint.path)
        except FileNotFoundError as error:
            raise Damaged(
                f"{checkpoint.label} is gone from storage ({checkpoint.path}). Resume from another."
            ) from error
    if PolicyCheckpoint.digest(data) != checkpoint.sha256:
        raise Damaged(f"{checkpoint.label} does not match its SHA-256 and was not loaded. Resume from another.")
    return data
