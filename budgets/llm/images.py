"""Images in messages: their addresses, and who would fetch them. No Django."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agentcore_site.outbound import AddressRefused, OutboundPolicy
from budgets.llm.types import Endpoint

INLINE: Final = "data:"  # begins the address of an image that is in the address
OWN_SERVERS: Final = frozenset({"vllm", "ollama", "weights"})  # kinds that run within an operator's network


def image_of(part: Any) -> str | None:
    """The address of an image part, which may be a data: URL; None for other parts."""
    image = part.get("image_url") if isinstance(part, Mapping) and part.get("type") == "image_url" else None
    url = image.get("url") if isinstance(image, Mapping) else None
    return url if isinstance(url, str) else None


def fetches_within(endpoint: Endpoint) -> bool:
    """True for a service that would fetch images within a private network. Resolves its host name, which may take a
    second."""
    return endpoint.kind in OWN_SERVERS or not is_public(endpoint.base_url)


def is_public(address: str) -> bool:
    """True for a public http or https address. Resolves its host name, which may take a second."""
    try:
        OutboundPolicy().check_entered(address)
    except AddressRefused:
        return False
    return True
