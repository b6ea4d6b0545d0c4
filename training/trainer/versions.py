"""The format of a stored trainer state, and how earlier ones become today's when they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from training.policies.archive import CorruptState

FORMAT: Final = 2
KEY: Final = "format"


def upgraded(state: dict[str, Any]) -> dict[str, Any]:
    """A state of any release until now, as today's release writes it.

    Raises:
        CorruptState: a newer release wrote it.
    """
    written = int(state.get(KEY, 1))
    if written > FORMAT:
        raise CorruptState(
            f"The checkpoint has format {written}; this release reads up to {FORMAT}. Install the newer release."
        )
    for upgrade in UPGRADES[written - 1 :]:
        state = upgrade(state)
    return state


def _from_1(state: dict[str, Any]) -> dict[str, Any]:
    """Format 1 had no mark. Its first releases kept the words of the vocabulary without counts, which only the memory
    of failures reads, and that came later: with one document a word is as telling as any other."""
    words = state.get("policy/vocabulary")
    if isinstance(words, list):
        state = state | {"policy/vocabulary": dict.fromkeys(words, 1), "policy/documents": 1}
    return state


# The one at index n leads from format n + 1 to the next.
UPGRADES: Final[tuple[Callable[[dict[str, Any]], dict[str, Any]], ...]] = (_from_1,)
