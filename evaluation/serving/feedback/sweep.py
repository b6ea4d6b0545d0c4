"""Automatic steps on new answers: inspects their code, computes their reward, and detects implicit signals."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery, TextField
from django.db.models.functions import Cast
from django.utils import timezone

from evaluation.serving.feedback.implicit import QUIET_FOR, SessionTurn, is_abandoned, is_retried
from evaluation.serving.feedback.opinions import ABANDONED, RETRIED
from evaluation.serving.feedback.scoring import composite_of, scorable, traces_score
from evaluation.serving.feedback.services import implicit_found
from evaluation.serving.models import Feedback, ProductionTrace, TraceStatus, text_of
from experiences.rollouts.code.blocks import python_in
from experiences.rollouts.code.quality import code_quality

BATCH: Final = 200
SECONDS: Final = 20.0  # for the new answers of one sweep; what is left waits for the next
FORGOTTEN_AFTER: Final = timedelta(days=1)  # how long an answer may wait, should nothing sweep
UNFINISHED: Final = ("length", "tool_calls", "content_filter")


def sweep() -> dict[str, int]:
    """Handles new answers. Returns the numbers of scored and of repeated ones."""
    began, done = time.monotonic(), {"scored": 0, RETRIED: 0}
    new = answers_to_score().select_related("agent").order_by("id")
    while time.monotonic() - began < SECONDS and (rows := list(new[:BATCH])):
        codes = {}
        for row in rows:
            codes[row.pk] = _code(row)
            if time.monotonic() - began > SECONDS:
                break
        done["scored"] += traces_score(codes, codes)
        done[RETRIED] += _retried([row for row in rows if row.pk in codes])
    return done


def answers_to_score() -> QuerySet[ProductionTrace]:
    return scorable().filter(reward=None, created_at__gte=timezone.now() - FORGOTTEN_AFTER)


def sessions_close() -> int:
    """Handles ended sessions. Returns the number of abandoned ones."""
    return _abandoned(timezone.now() - FORGOTTEN_AFTER)


def turn_of(trace: ProductionTrace) -> SessionTurn:
    last = trace.messages[-1] if trace.messages else {}
    asked = text_of(last) if last.get("role") == "user" else ""
    answered = trace.status == TraceStatus.OK and trace.finish_reason not in UNFINISHED
    return SessionTurn(trace.created_at, asked, answered)


def _code(trace: ProductionTrace) -> dict[str, Any] | None:
    assert trace.agent is not None
    code = python_in(trace.answer) if composite_of(trace.agent).inspects_code else ""
    return code_quality(code) if code else None


def _retried(rows: Sequence[ProductionTrace]) -> int:
    """Marks each answer after which its session asks the same again in one of these."""
    earlier = scorable().filter(agent=OuterRef("agent"), session=OuterRef("session"), id__lt=OuterRef("id"))
    placed = ProductionTrace.objects.filter(pk__in=[row.pk for row in rows if row.session])
    before = dict(
        placed.annotate(before=Subquery(earlier.order_by("-id").values("id")[:1])).values_list("id", "before")
    )
    known = scorable().in_bulk(before.values())
    pairs = [(known[before[row.pk]], row) for row in rows if before.get(row.pk)]
    return implicit_found((one for one, row in pairs if is_retried(turn_of(one), turn_of(row))), RETRIED)


def _abandoned(since: datetime) -> int:
    now = timezone.now()
    later = ProductionTrace.objects.filter(
        agent=OuterRef("agent"), session=OuterRef("session"), created_at__gt=OuterRef("created_at")
    )
    known = Feedback.objects.filter(trace=OuterRef("pk"), metric=ABANDONED)
    open_ends = Q(status=TraceStatus.FAILED) | Q(finish_reason__in=UNFINISHED)
    over = scorable().filter(open_ends, created_at__gte=since - QUIET_FOR, created_at__lte=now - QUIET_FOR)
    # A call that names no session is one of its own, under its id.
    named = over.exclude(session="").exclude(session=Cast("id", TextField()))
    rows = named.exclude(Exists(later)).exclude(Exists(known)).order_by("id")[:BATCH]
    return implicit_found((row for row in rows if is_abandoned(turn_of(row), now)), ABANDONED)
