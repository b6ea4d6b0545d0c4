"""What a stream holds, and schemas that allow no field that they don't name."""

from __future__ import annotations

import json
from typing import Any

from jsonschema import Draft202012Validator
from nats.js import JetStreamContext

from events.schemas import schema_of


def exact(subject: str) -> Draft202012Validator:
    """The published schema, for our own payloads: nothing in them that it does not name, and all that it names."""
    return Draft202012Validator(_closed(schema_of(subject)))


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _closed(value) for name, value in schema.items()}
    if schema.get("type") == "object" and "properties" in schema and not isinstance(schema["properties"], list):
        found.setdefault("additionalProperties", False)
    return found


async def stored(js: JetStreamContext, stream: str) -> list[tuple[str, dict[str, Any]]]:
    """All messages of a stream: subject and payload."""
    info = await js.stream_info(stream)
    found = []
    for seq in range(max(1, info.state.first_seq), info.state.last_seq + 1):
        message = await js.get_msg(stream, seq)
        found.append((message.subject or "", json.loads(message.data or b"null")))
    return found
