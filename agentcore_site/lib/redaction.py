"""Redaction of personal data in texts before they are stored: errors, events, the audit log.

The app that knows personal data registers the function at start-up: this package imports no app.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class _Port:
    """The registered redactor."""

    redact: Callable[[Any], Any] | None = None


def redactor_register(redact: Callable[[Any], Any]) -> None:
    """``redact`` takes a text or a JSON value, and returns it without personal data."""
    _Port.redact = staticmethod(redact)


def redacted(value: Any) -> Any:
    """A text or a JSON value, redacted for storage.

    Raises:
        LookupError: no redactor is registered; nothing is stored unredacted.
    """
    if _Port.redact is None:
        raise LookupError("no redactor is registered: experiences.apps does that when Django starts")
    return _Port.redact(value)


def stored_text(text: str, most: int) -> str:
    """``text`` without personal data, and then its first ``most`` characters: the other way round half an address could
    be left."""
    return str(redacted(text))[:most]
