"""Errors that keep an encrypted text from being read or written."""

from __future__ import annotations

from agentcore_site.lib.errors import DomainError, Unavailable


class KeyUnavailable(Unavailable):
    """The key can't be read now; the request may be repeated, and nothing was written meanwhile."""

    title = "Encryption key away"


class Unopenable(DomainError):
    """The text was encrypted for another row or with another key, or altered: trying again does not help."""

    code, title = 500, "Encrypted text damaged"
