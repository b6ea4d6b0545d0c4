"""Seals over lines that must never change: each holds the digests of some lines, and the digest of the seal before it.

A line is sealed some seconds after its commit, in a block with others, so that writing the line costs nothing.
Transactions end out of order: for an hour, a later block takes the lines that an earlier block missed. ``verify`` finds
lines that appear later than that, are missing or differ, and names them. An attacker with the rights of the database's
owner could rebuild the whole chain: keep its head elsewhere, and ``verify`` checks for it.

The words of a line may be erased to protect a person (``AuditEvent``). Their digest stays, salted with a number that is
erased with them, so that the digest reveals nothing. Each erasure is a line of the log itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from django.db import connection, transaction

from agentcore_site.audit.models import ErasedWords

AT_ONCE: Final = 20_000  # lines of a block
LATE: Final = "1 hour"  # the longest delay until a transaction shows its lines
SHORT: Final = 8  # bytes of a line's digest that its seal keeps, to say which one differs
LOCK: Final = 0x5EA1


@dataclass(frozen=True, slots=True)
class SealedTable:
    """``key``: its column of rising numbers. ``content``: SQL of a line's content, of the row ``t``; another content
    breaks the chain. ``words``: SQL of the digest of words that may be erased; ``joined``: the join that this SQL
    needs."""

    name: str
    table: str
    key: str
    content: tuple[str, ...]
    words: str = ""
    joined: str = ""

    @property
    def digest(self) -> str:
        """SQL of a line's digest."""
        content = ", ".join(f"t.{self.key}" if part == self.key else part for part in self.content)
        words = f" || {self.words}" if self.words else ""
        return f"sha256(convert_to(jsonb_build_array({content})::text, 'UTF8'){words})"

    def lines(self, where: str) -> str:
        """A query for number and digest of lines."""
        return f"SELECT t.{self.key} AS number, {self.digest} AS digest FROM {self.table} t {self.joined} {where}"  # noqa: S608


MICROSECONDS: Final = "(extract(epoch FROM t.at) * 1000000)::bigint"
tables: Final[dict[str, SealedTable]] = {}


def sealed(table: SealedTable) -> None:
    tables[table.name] = table


sealed(
    SealedTable(
        "audit log",
        "audit_auditevent",
        "number",
        (
            *("number", "t.id", MICROSECONDS, "t.organization_id", "t.user_id", "t.actor", "t.door", "t.ip"),
            *("t.request_id", "t.action", "t.target_type", "t.target_id"),
        ),
        words="coalesce(e.digest, audit_words_digest(t))",
        joined="LEFT JOIN audit_erasedwords e ON e.number = t.number",
    )
)


def seal(table: SealedTable) -> int:
    """Seals new lines. Returns how many."""
    key = f"t.{table.key}"
    after = table.lines(f"WHERE {key} >= (SELECT top FROM bounds) ORDER BY {key} LIMIT {AT_ONCE}")  # noqa: S608
    between = table.lines(f"JOIN gaps ON {key} >= lower(gap) AND {key} < upper(gap)")
    statement = f"""
        WITH last AS (SELECT digest, top FROM audit_seal WHERE kind = %(kind)s ORDER BY id DESC LIMIT 1),
        early AS (SELECT id, top FROM audit_seal WHERE kind = %(kind)s AND sealed_at < now() - interval '{LATE}'
            ORDER BY id DESC LIMIT 1),
        bounds AS (SELECT coalesce((SELECT top FROM last), 0) AS top, coalesce((SELECT top FROM early), 0) AS floor),
        late AS (SELECT range_agg(members) AS members FROM audit_seal WHERE kind = %(kind)s
            AND id > coalesce((SELECT id FROM early), 0)),
        gaps AS (SELECT unnest(int8multirange(int8range(floor, top)) - coalesce(members, '{{}}')) AS gap
            FROM bounds, late),
        lines AS (({after}) UNION ALL ({between})),
        block AS (SELECT range_agg(int8range(number, number + 1)) AS members, max(number) + 1 AS top, count(*) AS n,
            string_agg(substring(digest FOR {SHORT}), ''::bytea ORDER BY number) AS digests,
            string_agg(digest, ''::bytea ORDER BY number) AS line_digests FROM lines)
        INSERT INTO audit_seal (kind, members, top, digests, previous, digest, sealed_at)
        SELECT %(kind)s, members, greatest(block.top, bounds.top), digests, coalesce(last.digest, ''),
            sha256(coalesce(last.digest, '') || convert_to(members::text, 'UTF8') || line_digests), now()
        FROM bounds CROSS JOIN block LEFT JOIN last ON true WHERE n > 0
        RETURNING length(digests) / {SHORT}
    """  # noqa: S608  (names of our own)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        cursor.execute(statement, {"kind": table.name})
        found = cursor.fetchone()
    return int(found[0]) if found else 0


@dataclass(slots=True)
class Verified:
    """Result for one table. ``head``: the newest seal's digest, hexadecimal. ``unnamed``: lines whose words
    were erased before erasures were named. ``wrong``: faults in words, by line."""

    name: str
    lines: int = 0
    seals: int = 0
    head: str = ""
    unsealed: int = 0
    unnamed: int = 0
    wrong: list[str] = field(default_factory=list)


def verify(table: SealedTable, *, head: str = "", most: int = 100) -> Verified:
    """Checks all seals. ``head``: a digest that was kept elsewhere and must be one of the chain's; ``most``: how many
    faults are named."""
    found = Verified(table.name)
    wrong, previous, known = found.wrong, b"", not head
    for number, members, digests, before, digest in _seals(table.name):
        found.seals += 1
        if bytes(before) != previous:
            wrong.append(f"seal {number} does not follow the one before it")
        there, line_digests = _lines(table, members), b""
        for place, line in enumerate(_numbers(members)):
            whole = there.get(line)
            if whole is None:
                wrong.append(f"line {line} is missing")
            elif whole[:SHORT] != bytes(digests[SHORT * place : SHORT * (place + 1)]):
                wrong.append(f"line {line} was altered")
            line_digests += whole or b""
        if not wrong and _digest(previous, members, line_digests) != bytes(digest):
            wrong.append(f"seal {number} was altered")
        found.lines += len(there)
        previous = bytes(digest)
        found.head = previous.hex()
        known = known or found.head == head
        if len(wrong) >= most:
            return found
    if not known:
        wrong.append(f"no seal has the digest {head}: the chain was rebuilt")
    wrong += [f"line {line} was added after its time" for line in _added(table, most)]
    if table.words:
        wrong += _unproven() + _unordered()
        found.unnamed = ErasedWords.objects.filter(predates_naming=True).count()
    found.unsealed = _count(table) - found.lines
    return found


def _seals(kind: str) -> Iterator[Any]:
    last = 0
    with connection.cursor() as cursor:
        while True:
            cursor.execute(
                "SELECT id, members, digests, previous, digest FROM audit_seal WHERE kind = %s AND id > %s"
                " ORDER BY id LIMIT 100",
                [kind, last],
            )
            rows = cursor.fetchall()
            yield from rows
            if not rows:
                return
            last = rows[-1][0]


def _lines(table: SealedTable, members: Any) -> dict[int, bytes]:
    query = table.lines(
        f"JOIN unnest(%s::int8multirange) block ON t.{table.key} >= lower(block) AND t.{table.key} < upper(block)"
    )
    with connection.cursor() as cursor:
        cursor.execute(query, [members])
        return {number: bytes(digest) for number, digest in cursor.fetchall()}


def _numbers(members: Iterable[Any]) -> Iterator[int]:
    for member in members:
        yield from range(member.lower, member.upper)


def _digest(previous: bytes, members: Any, line_digests: bytes) -> bytes:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sha256(%s || convert_to(%s::int8multirange::text, 'UTF8') || %s)", [previous, members, line_digests]
        )
        return bytes(cursor.fetchone()[0])


def _added(table: SealedTable, most: int) -> list[int]:
    """Lines without a seal although later lines were sealed long ago."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT t.{table.key} FROM {table.table} t WHERE t.{table.key} < coalesce((SELECT max(top) FROM audit_seal"  # noqa: S608
            f"   WHERE kind = %(kind)s AND sealed_at < now() - interval '{LATE}'), 0)"
            f" AND NOT t.{table.key} <@ (SELECT range_agg(members) FROM audit_seal WHERE kind = %(kind)s)"
            f" ORDER BY 1 LIMIT {most}",
            {"kind": table.name},
        )
        return [number for (number,) in cursor.fetchall()]


def _unproven() -> list[str]:
    """Erasures without a log entry, or with another digest than their log entry."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT e.number FROM audit_erasedwords e JOIN audit_auditevent t ON t.number = e.number"
            " WHERE NOT EXISTS (SELECT FROM audit_auditevent logged WHERE logged.action = 'audit.words_erased'"
            "   AND logged.target_id = t.id::text AND logged.after->>'now' = encode(audit_words_digest(t), 'hex'))"
            " ORDER BY 1"
        )
        return [f"words of line {number} were altered without a logged erasure" for (number,) in cursor.fetchall()]


def _unordered() -> list[str]:
    """Erased words whose log entry names no erasure of the organisation that ended and that the log knows. Those from
    before erasures were named may name none."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT e.number FROM audit_erasedwords e JOIN audit_auditevent t ON t.number = e.number"
            " JOIN audit_auditevent logged ON logged.action = 'audit.words_erased' AND logged.target_id = t.id::text"
            "   AND logged.after->>'now' = encode(audit_words_digest(t), 'hex')"
            " WHERE NOT (e.predates_naming AND logged.after->>'erasure' IS NULL) AND NOT EXISTS ("
            "   SELECT FROM tenancy_erasure ordered JOIN audit_auditevent known ON known.target_id = ordered.id::text"
            "     AND known.action = 'subject.erased' AND known.organization_id = t.organization_id"
            "   WHERE ordered.id::text = logged.after->>'erasure' AND ordered.organization_id = t.organization_id"
            "     AND ordered.\"left\" <> '{}')"
            " ORDER BY 1"
        )
        return [f"words of line {number} were erased, and no erasure ordered it" for (number,) in cursor.fetchall()]


def _count(table: SealedTable) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {table.table}")  # noqa: S608
        return int(cursor.fetchone()[0])
