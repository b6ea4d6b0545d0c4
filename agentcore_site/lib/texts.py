"""Small checks of texts that people type."""

from __future__ import annotations

from typing import Any
from uuid import UUID


def uuid_of(value: Any) -> UUID | None:
    """The identifier that came from outside, if it is one."""
    try:
        return value if isinstance(value, UUID) else UUID(str(value))
    except ValueError:
        return None
