"""Identifiers: time-ordered ones for rows, and ones derived from a key for rows that must not be doubled."""

from __future__ import annotations

import os
import time
from datetime import datetime
from hashlib import blake2b
from uuid import UUID


def uuid7() -> UUID:
    """A random UUID whose first 48 bits are the time in milliseconds (RFC 9562, version 7)."""
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    return UUID(int=_stamped(value, version=7))


def uuid7_at(at: datetime) -> UUID:
    """The smallest UUID of that moment: rows created since have ids that are not below it."""
    return UUID(int=_stamped(int(at.timestamp() * 1000) << 80, version=7))


def derived(namespace: UUID, *key: object) -> UUID:
    """The same UUID for the same namespace and key, in every process (RFC 9562, version 8)."""
    digest = blake2b("/".join(map(str, key)).encode(), key=namespace.bytes, digest_size=16).digest()
    return UUID(int=_stamped(int.from_bytes(digest, "big"), version=8))


def _stamped(value: int, *, version: int) -> int:
    value &= ~(0xF000 << 64) & ~(0xC000 << 48)
    return value | version << 76 | 0x8000 << 48
