"""Stamps: proof of which text was approved, and under which prompt a lesson was learned.

A pack's stamp is the SHA-256 of its texts and of the files that they came from. A lesson's stamp binds its text to the
stamp of the pack (or of the system prompt) under which it was learned. A text that does not match its stamp was changed
without a new stamp, and enters no context.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

ALTERED: Final = "its text does not give its stamp"
UNSTAMPED: Final = "it bears no stamp"


class StampRefused(ValueError):
    """A text that may not be used. ``offender`` is the path of a file, or the handle of a lesson."""

    def __init__(self, offender: str, reason: str) -> None:
        super().__init__(f"{offender}: {reason}.")
        self.offender = offender
        self.reason = reason


@dataclass(frozen=True, slots=True, order=True)
class PackSource:
    """One file that a pack came from: its path within the pack, and the SHA-256 of its content."""

    path: str
    sha256: str

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Self:
        """Raises:
        Refused: it is not {path, sha256}."""
        path, digest = value.get("path"), value.get("sha256")
        if not isinstance(path, str) or not isinstance(digest, str) or not path or not digest:
            raise StampRefused(str(path or "a source"), "a source has a path and a sha256")
        return cls(path, digest)

    def as_dict(self) -> dict[str, str]:
        return {"path": self.path, "sha256": self.sha256}


def content_digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def pack_stamp(system: str, injections: Iterable[str] = (), sources: Iterable[PackSource] = ()) -> str:
    """The stamp of a pack: the same for the same texts and files, in any order of the files."""
    files = [[source.path, source.sha256] for source in sorted(sources)]
    return _digest(["pack", system, list(injections), files])


def experience_stamp(pack: str, handle: str, version: int, domain: str, summary: str) -> str:
    """The stamp of a lesson that was learned under the pack with the stamp ``pack``."""
    return _digest(["experience", pack, handle, version, domain, summary])


def pack_check(name: str, stamp: str, system: str, injections: Sequence[str], sources: Iterable[PackSource]) -> None:
    """Raises:
    Refused: the pack bears no stamp, or its texts don't give it."""
    if not stamp:
        raise StampRefused(name, UNSTAMPED)
    if not same(stamp, pack_stamp(system, injections, sources)):
        raise StampRefused(name, ALTERED)


def experience_check(stamp: str, pack: str, handle: str, version: int, domain: str, summary: str) -> None:
    """Raises:
    Refused: the lesson bears no stamp, or its text and the pack don't give it."""
    if not stamp:
        raise StampRefused(handle, UNSTAMPED)
    if not same(stamp, experience_stamp(pack, handle, version, domain, summary)):
        raise StampRefused(handle, "its stamp does not fit its text and the prompt that the agent has now")


def same(stamp: str, other: str) -> bool:
    return hmac.compare_digest(stamp.encode(), other.encode())


def _digest(parts: list[Any]) -> str:
    """SHA-256 over JSON: unlike texts put end to end, no two lists give the same."""
    return hashlib.sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest()
