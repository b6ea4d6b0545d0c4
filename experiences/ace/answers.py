"""The answer to a request for an agent's context, byte for byte the same at both doors that give it."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from experiences.selectors_playbooks import Compiled

# A service may keep it, and asks each time whether it still holds: that costs no body.
CACHING = "private, no-cache"


@dataclass(frozen=True, slots=True)
class ContextAnswer:
    """What is sent, and the tag by which a caller asks whether it still holds."""

    body: bytes
    etag: str


def context_answer(found: Compiled) -> ContextAnswer:
    body = {
        "agent_id": str(found.agent_id),
        "context": found.context,
        "version": found.version,
        "section_count": found.section_count,
    }
    return ContextAnswer(orjson.dumps(body), f'"{found.playbook_id.hex}-{found.version}"')


def still_holds(etag: str, if_none_match: str) -> bool:
    """Whether the caller has it already (RFC 9110: weak comparison, a list, or "*")."""
    if not if_none_match:
        return False
    given = [one.strip().removeprefix("W/") for one in if_none_match.split(",")]
    return etag in given or "*" in given
