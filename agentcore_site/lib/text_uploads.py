"""Text files from people: UTF-8, and JSON Lines, refused with the number of the line that is wrong."""

from __future__ import annotations

import json
from typing import Any

from agentcore_site.lib.errors import Invalid


def file_text(content: bytes) -> str:
    """Raises:
    Invalid: it is no UTF-8 text."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refused(f"The file is not UTF-8 text (byte {error.start}). Save it as UTF-8.") from error


def jsonl_rows(text: str, *, like: str) -> list[dict[str, Any]]:
    """The objects of a JSON Lines file; empty lines are left out. ``like`` is an example for the message.

    Raises:
        Invalid: a line is no JSON object.
    """
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise refused(f"Line {number} is not JSON: {error}.") from error
        if not isinstance(row, dict):
            raise refused(f"Line {number} must be an object like {like}.")
        rows.append(row)
    return rows


def refused(message: str) -> Invalid:
    return Invalid(message, fields={"data": message})
