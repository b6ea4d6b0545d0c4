"""Whole sessions of a canary: one value per session from all its requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from statistics import fmean
from typing import Any, NamedTuple

from django.db.models import F, Q

from evaluation.serving.feedback.scoring import share_earned
from evaluation.serving.models import ArmName, CanaryObservation, Deployment, ProductionTrace, TraceStatus


class WholeSession(NamedTuple):
    """Number of requests, number of failures among them, and means over the answers: the reward, and the score from 0
    to 1 (None if none is known)."""

    requests: int
    failures: int
    reward: float | None
    score: float | None


def sessions_of(
    deployment: Deployment, observed: Sequence[CanaryObservation], window: timedelta
) -> dict[int, WholeSession]:
    """Each observation's session, by the observation's primary key: the requests within ``window`` and before the
    shares changed. A change of shares moves a session to the other arm by its draw, so a later cut would depend on the
    draw."""
    names, ids = {observation.session for observation in observed}, [observation.trace_id for observation in observed]
    asked = ProductionTrace.objects.filter(agent_id=deployment.agent_id, deployment_id=deployment.pk)
    rows = asked.filter(Q(session__in=names) | Q(pk__in=ids)).exclude(status=TraceStatus.INTERRUPTED)
    columns = ("pk", "session", "arm", "created_at", "status", "reward", F("components__raw"), F("components__weights"))
    by_session: dict[tuple[str, str], list[Any]] = {}
    for pk, session, arm, *values in rows.values_list(*columns):
        by_session.setdefault((session or str(pk), arm), []).append(values)
    changes = list(deployment.events.filter(kind="advanced").order_by("at").values_list("at", flat=True))
    return {
        one.pk: _whole(one, by_session.get((one.session, ArmName.NEW if one.new else ArmName.CURRENT), []), until)
        for one in observed
        for until in [min([one.at + window, *(at for at in changes if at > one.at)])]
    }


def _whole(first: CanaryObservation, rows: Iterable[Sequence[Any]], until: datetime) -> WholeSession:
    """The first request always counts: its trace may be gone, or it took longer than the window."""
    within = [row for row in rows if row[0] <= max(until, first.at)]
    if not within:
        return WholeSession(1, int(first.failed), None, None)
    rewards = [reward for _, _, reward, _, _ in within if reward is not None]
    scores = [score for *_, raw, weights in within if (score := share_earned(raw, weights)) is not None]
    return WholeSession(
        len(within),
        sum(status != TraceStatus.OK for _, status, *_ in within),
        fmean(rewards) if rewards else None,
        fmean(scores) if scores else None,
    )
