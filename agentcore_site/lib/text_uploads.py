"""Text files from people: UTF-8, and JSON Lines, refused with the number of the line that is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from agentcore_site.lib.errors import Invalid

NAMED: Final = 5  # lines that are wrong, at most


def file_text(content: bytes) -> str:
    """Raises:
    Invalid: it is no UTF-8 text."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refused(f"The file is not UTF-8 text (byte {error.start}). Save it as UTF-8.") from error


def jsonl_rows(text: str, *, like: str, fault: Callable[[Any], str | None] = lambda _: None) -> list[dict[str, Any]]:
    """The objects of a JSON Lines file, without empty lines. ``like`` is an example for the message. ``fault`` returns
    an object's fault: it is called for all lines, so that one message reports all faults.

    Raises:
        Invalid: a line is not a JSON object; the first few wrong lines are named.
    """
    rows, lines, wrong = [], [], []
    if "\n" not in text:
        text = text.replace("\r", "\n")
    for number, line in enumerate(text.split("\n"), start=1):  # other characters that end lines may be in its texts
        if not line.strip():
            continue
        row, problem = _object(line, like)
        if problem:
            wrong.append((number, problem))
        else:
            rows.append(row)
            lines.append(number)
    if wrong:
        wrong += [(number, f": {message}") for number, row in zip(lines, rows, strict=True) if (message := fault(row))]
        named = [f"Line {number}{message}" for number, message in sorted(wrong)[:NAMED]]
        more = f" {len(wrong) - NAMED:,} more lines are wrong." if len(wrong) > NAMED else ""
        raise refused(" ".join(named) + more)
    return rows


def _object(line: str, like: str) -> tuple[Any, str]:
    """The object of a line, or what is wrong with it."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        return None, f" is not JSON from its character {error.colno} on; write {like}."
    except (ValueError, RecursionError):  # a number without end, or brackets within brackets
        return None, f" is not JSON that can be read; write {like}."
    return (row, "") if isinstance(row, dict) else (None, f" must be an object like {like}.")


def refused(message: str) -> Invalid:
    return Invalid(message, fields={"data": message})
