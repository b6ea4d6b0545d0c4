"""Small checks of texts that come from outside."""

from __future__ import annotations

from typing import Any
from uuid import UUID


def uuid_of(value: Any) -> UUID | None:
    """The identifier that came from outside, or None if it is not a UUID."""
    try:
        return value if isinstance(value, UUID) else UUID(str(value))
    except ValueError:
        return None


def plain(text: str) -> str:
    """Text that can be stored and sent: without NUL and lone surrogates."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")
