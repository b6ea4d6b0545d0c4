"""Failures of calls to addresses that were entered. No message holds an address or a foreign text.

OutboundError
├── AddressRefused   this site does not call it, or it is malformed; the message says what to do
├── ConnectFailed    nothing was sent: refused, unknown name, untrusted certificate, a proxy's refusal
│   └── ConnectTimedOut
├── Redirected       the answer sends us elsewhere, which is not followed: secrets would go along
└── ConnectionBroken the connection ended, or stopped to be HTTP, before the answer was whole
"""

from __future__ import annotations


class OutboundError(Exception):
    pass


class AddressRefused(OutboundError, ValueError):
    pass


class ConnectFailed(OutboundError):
    pass


class ConnectTimedOut(ConnectFailed):
    pass


class Redirected(OutboundError):
    """``status`` is the HTTP status, ``location`` where it leads as the server wrote it; "" where it does not say."""

    def __init__(self, status: int, location: str) -> None:
        super().__init__(
            f"The address redirects (HTTP {status}), which is not followed. Enter the address that it leads to."
        )
        self.status, self.location = status, location


class ConnectionBroken(OutboundError):
    pass
