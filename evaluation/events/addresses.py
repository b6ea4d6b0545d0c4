"""Addresses in payloads: of this site, and of objects in its bucket."""

from __future__ import annotations

from typing import Final

from django.conf import settings

from agentcore_site.lib.links import placed
from training.models import PolicyCheckpoint

GATEWAY: Final = "/v1/chat/completions"


def address_of(path: str) -> str:
    """A path of this site, whole where its address is known (PUBLIC_URL)."""
    return f"{settings.PUBLIC_URL}{placed(path)}"


def checkpoint_address(checkpoint: PolicyCheckpoint) -> str:
    """The checkpoint in the bucket if it lies there, else its download. Smaller ones lie in the database."""
    if checkpoint.path and settings.BUCKET:
        return f"s3://{settings.BUCKET}/{checkpoint.path}"
    return address_of(f"/api/v1/checkpoints/{checkpoint.pk}/download")
