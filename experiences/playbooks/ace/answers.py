"""The answer to a request for an agent's context, the same at both interfaces that give it."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

import orjson

from experiences.learning.playbooks.leave_out import Draw, draw
from experiences.learning.rendering import context_of
from experiences.playbooks.selectors import Compiled

# A service may keep it, and asks each time whether it still holds: that costs no body.
CACHING = "private, no-cache"


@dataclass(frozen=True, slots=True)
class ContextAnswer:
    """The body of an answer, and the tag by which a caller asks whether it still holds."""

    body: bytes
    etag: str


def context_answer(found: Compiled) -> ContextAnswer:
    """One context; where items are left out, another one each time."""
    if found.dropped:
        return _answer(found, Draw(found.version, 0.0, found.dropped))
    return _answer(found, draw(found.version, found.items, found.rate))


def _answer(found: Compiled, drawn: Draw) -> ContextAnswer:
    held = [item for item in found.items if item not in drawn.left_out]
    body = {
        "agent_id": str(found.agent_id),
        "context": context_of(lesson for lesson in found.lessons if lesson.handle not in drawn.left_out),
        "version": found.version,
        "section_count": len(held),
        "context_id": drawn.id,
        "included": held,
        "told": held,  # the former name of `included`, until the next release
    }
    sent = orjson.dumps(body)
    # With a checksum: an empty first version that came with the agent may be replaced under its number.
    return ContextAnswer(sent, f'"{found.playbook_id.hex}-{found.release or 0}-{crc32(sent):08x}-{drawn.id}"')


def still_holds(etag: str, if_none_match: str) -> bool:
    """True if the caller has the answer already (RFC 9110: weak comparison, a list, or "*")."""
    if not if_none_match:
        return False
    given = [one.strip().removeprefix("W/") for one in if_none_match.split(",")]
    return etag in given or "*" in given
