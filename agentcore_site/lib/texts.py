"""Small checks of texts that people type."""

from __future__ import annotations

from uuid import UUID


def as_id(text: str) -> str:
    """The text if it is a UUID, else nothing."""
    try:
        return str(UUID(text.strip()))
    except ValueError:
        return ""
