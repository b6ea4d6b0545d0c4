"""Calls to addresses that people and models enter: one guard, one client."""

from agentcore_site.outbound.client import OutboundClient, Response
from agentcore_site.outbound.errors import (
    AddressRefused,
    ConnectFailed,
    ConnectionBroken,
    ConnectTimedOut,
    OutboundError,
    Redirected,
)
from agentcore_site.outbound.policy import OutboundPolicy, Target, configure, current_policy, parsed

__all__ = [
    "AddressRefused",
    "ConnectFailed",
    "ConnectTimedOut",
    "ConnectionBroken",
    "OutboundClient",
    "OutboundError",
    "OutboundPolicy",
    "Redirected",
    "Response",
    "Target",
    "configure",
    "current_policy",
    "parsed",
]
