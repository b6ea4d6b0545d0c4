"""Receives exports of spans, and keeps them until their traces are complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import orjson
from django.db import connection
from django.utils.text import slugify

from agentcore_site.lib import disk
from agentcore_site.lib.errors import TooLarge, Unavailable
from agentcore_site.lib.texts import plain
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from evaluation.events.models import StoredSpan, WaitingSpan
from evaluation.events.otlp.agent_spans import AgentSpan, SpanKind
from evaluation.events.otlp.conventions import read
from evaluation.events.otlp.spans import MOST_SPANS, ResourceSpans
from experiences.models import Agent
from experiences.privacy import redact_value

NAMES: Final = ("agentcore.agent", "service.name")  # attributes of a resource that name the agent
MOST_SPAN: Final = 2**20  # bytes of a span as JSON, which is searched for personal data while its sender waits
LARGE: Final = f"A span has at most {MOST_SPAN >> 20} MB."
UNREAD: Final = (
    "Nothing was rejected, and no trajectory will come of it: none of the {} spans is about a model, a tool or an agent"
    " ({}). Send spans with gen_ai.operation.name, openinference.span.kind, ai.operationId, langfuse.observation.type"
    " or langsmith.span.kind."
)
UNREAD_LOGS: Final = (
    "None of the {} log records is about an agent, and none was kept. Read are the events gen_ai.* of a span, and those"
    " of Claude Code, Codex and Gemini CLI with a session."
)
BROKEN: Final = "A span has a trace id, a span id, a start and an end."


class SpansTaken(NamedTuple):
    """``why`` explains the refusal of spans, "" if all were taken."""

    accepted: int
    rejected: int
    why: str


def spans_receive(actor: Actor, exports: Iterable[ResourceSpans], *, agent: str = "", logs: bool = False) -> SpansTaken:
    """Stores spans of registered agents: of the named one (its slug), else of the one that a resource names. A
    duplicate span is stored once. ``logs``: they were made of log records, of which others are left out.

    Raises:
        Forbidden: the actor may not record trajectories.
        TooLarge: there are more than ``MOST_SPANS`` in one export.
        Unavailable: the disk is nearly full. Exporters try again.
    """
    disk.require_room(Unavailable)
    actor = Actor.of(actor)
    exports = list(exports)
    if (n := sum(len(export.spans) for export in exports)) > MOST_SPANS:
        raise TooLarge(f"An export has at most {MOST_SPANS:,} spans; this one has {n:,}. Send smaller batches.")
    known: dict[str, Agent | None] = {}
    rejected: Counter[str] = Counter()
    rows: list[tuple[Agent, AgentSpan, bytes]] = []
    for export in exports:
        slug = slugify(agent or str(next((export.attributes[name] for name in NAMES if name in export.attributes), "")))
        if slug not in known:
            known[slug] = _agent(actor, slug)
        rejected[BROKEN] += 0 if logs else export.broken
        rejected[LARGE] += export.large
        owner = known[slug]
        if owner is None:
            rejected[_unknown(slug)] += len(export.spans)
        elif not owner.collects:
            rejected[f"{owner.name} may not be recorded."] += len(export.spans)
        else:
            for span in export.spans:
                raw = (found := read(span)).as_json()
                if len(raw) > MOST_SPAN:
                    rejected[LARGE] += 1
                else:
                    rows.append((owner, found, raw))
    _keep(rows)
    why = [why for why, n in rejected.items() if n]
    return SpansTaken(len(rows), rejected.total(), " ".join(why) or _unread(exports, rows, logs=logs))


def _unread(exports: Sequence[ResourceSpans], rows: Sequence[tuple[Agent, AgentSpan, bytes]], *, logs: bool) -> str:
    """The warning about an export that says nothing of an agent, whose traces are no agents' either; "" otherwise."""
    if logs:
        unread = sum(export.broken for export in exports)
        return UNREAD_LOGS.format(unread) if unread and not rows else ""
    if not rows or any(span.kind is not SpanKind.OTHER for _, span, _ in rows):
        return ""
    known = [model.objects.filter(agent__in={agent for agent, _, _ in rows}) for model in (WaitingSpan, StoredSpan)]
    of_agents = '"kind":"other"'
    if any(
        spans.filter(trace_id__in={span.trace for _, span, _ in rows}).exclude(body__contains=of_agents).exists()
        for spans in known
    ):
        return ""
    names = sorted({span.name[:60] for _, span, _ in rows})
    return UNREAD.format(len(rows), ", ".join(names[:5]) + (" …" if len(names) > 5 else ""))


def _agent(actor: Actor, slug: str) -> Agent | None:
    mine = Agent.objects.filter(organization__in=actor.organization_ids, archived_at=None)
    found = mine.filter(slug=slug).order_by("created_at").first() if slug else None
    if found is not None:
        require(actor, "trace.record", found.organization_id)
    return found


def _unknown(slug: str) -> str:
    ways = "as service.name or agentcore.agent of its resource, or in the header x-agentcore-agent"
    if not slug:
        return f"Name a registered agent by its slug {ways}."
    return f"No agent {slug} is registered here: name one by its slug {ways}."


def _keep(rows: Sequence[tuple[Agent, AgentSpan, bytes]]) -> None:
    if not rows:
        return
    columns = zip(
        *(
            (agent.organization_id, agent.pk, span.trace, span.id, not span.parent, _body(raw))
            for agent, span, raw in rows
        ),
        strict=True,
    )
    table = WaitingSpan._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} (organization_id, agent_id, trace_id, span_id, root, body)"  # noqa: S608 - our table
            " SELECT * FROM unnest(%s::uuid[], %s::uuid[], %s::text[], %s::text[], %s::bool[], %s::text[])"
            " ON CONFLICT DO NOTHING",
            [list(column) for column in columns],
        )


def _body(raw: bytes) -> str:
    """A span's JSON without personal data."""
    value = orjson.loads(raw)
    clean = redact_value(value)
    return plain((raw if clean is value else orjson.dumps(clean)).decode())
