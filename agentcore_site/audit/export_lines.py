"""Records of an export of the audit log, and the check of an exported copy.

A record is JSON with its digest and its seal. The database itself writes it, so that numbers and texts are exactly
those that the digest covers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import orjson
from django.db import connection

from agentcore_site.audit.sealing import SHORT, tables
from agentcore_site.lib.errors import Invalid

LOG: Final = tables["audit log"]
AT_ONCE: Final = 1_000  # lines of a copy that are checked together
PLAIN: Final = ("organization_id", "user_id", "actor", "door", "ip", "request_id", "action")
TARGET: Final = ("target_type", "target_id", "target", "before", "after", "salt")
MEMBERS: Final = {
    "number": "t.number",
    "id": "t.id",
    "at": """to_char(t.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')""",
    **{name: f"t.{name}" for name in (*PLAIN, *TARGET)},
    "digest": f"encode({LOG.digest}, 'hex')",
    "seal": "s.id",
    "seal_digest": "encode(s.digest, 'hex')",
}
_SEALED: Final = (
    f"LEFT JOIN LATERAL (SELECT id, digest FROM audit_seal WHERE kind = '{LOG.name}' AND members @> t.number LIMIT 1) s"  # noqa: S608
    " ON true"
)


def lines_of(numbers: Sequence[int]) -> Iterator[bytes]:
    """The records with these numbers, in the order given. ``seal`` is null for a record that is not sealed yet."""
    members = ", ".join(f"'{name}', {value}" for name, value in MEMBERS.items())
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT json_build_object({members})::text FROM unnest(%s::bigint[]) WITH ORDINALITY asked(line, place)"  # noqa: S608
            f" JOIN {LOG.table} t ON t.number = asked.line {LOG.joined} {_SEALED} ORDER BY asked.place",
            [list(numbers)],
        )
        for (line,) in cursor.fetchall():
            yield line.encode() + b"\n"


@dataclass(slots=True)
class ComparedCopy:
    """Result of the comparison of a copy. ``wrong``: faults as sentences, by line."""

    lines: int = 0
    unsealed: int = 0
    wrong: list[str] = field(default_factory=list)


def copy_compare(lines: Iterable[bytes], *, most: int = 100) -> ComparedCopy:
    """Compares a copy with the seals. A record whose words were erased since may have its earlier text or its present
    text. ``most``: how many faults are named.

    Raises:
        Invalid: a line is not an export record.
    """
    found, left = ComparedCopy(), iter(lines)
    while some := list(islice(left, AT_ONCE)):
        for number, digest, sealed in _compared(some, found.lines):
            found.lines += 1
            if sealed is None:
                found.unsealed += 1
            elif digest[:SHORT] != sealed and len(found.wrong) < most:
                found.wrong.append(f"line {number} of the copy is not what was sealed")
    return found


def _compared(lines: Sequence[bytes], before: int) -> Iterator[tuple[int, bytes, bytes | None]]:
    """For each line: its number, its digest computed from the copy, and the digest that its seal holds."""
    for place, line in enumerate(lines, before + 1):
        _check(line, place)
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            SELECT t.number, {LOG.digest}, substring(s.digests FOR {SHORT} FROM 1 + {SHORT} * (
                SELECT coalesce(sum(least(upper(block), t.number) - lower(block)), 0)::int
                FROM unnest(s.members) block WHERE lower(block) < t.number))
            FROM unnest(%s::text[]) WITH ORDINALITY said(line, place)
            CROSS JOIN LATERAL jsonb_populate_record(NULL::{LOG.table}, said.line::jsonb) t
            LEFT JOIN {LOG.table} stored ON stored.number = t.number
            LEFT JOIN audit_erasedwords e ON e.number = t.number
                AND audit_words_digest(stored) = audit_words_digest(t)
            LEFT JOIN audit_seal s ON s.kind = '{LOG.name}' AND s.members @> t.number
            ORDER BY said.place
            """,  # noqa: S608
            [[line.decode() for line in lines]],
        )
        for number, digest, sealed in cursor.fetchall():
            yield number, bytes(digest), None if sealed is None else bytes(sealed)


def _check(line: bytes, place: int) -> None:
    try:
        record_read: Any = orjson.loads(line)
    except ValueError:
        record_read = None
    if not isinstance(record_read, dict) or not record_read.keys() >= MEMBERS.keys():
        raise Invalid(f"Line {place} of the file is not an export record of the audit log.")
