"""Writes of feedback, and of the rewards that follow from it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from django.db import transaction
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Forbidden, Invalid
from agentcore_site.lib.storable import unstorable
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from evaluation.serving.feedback.opinions import Refused, opinion
from evaluation.serving.feedback.scoring import trace_rescore, traces_score
from evaluation.serving.models import Feedback, FeedbackSource, ProductionTrace
from experiences.privacy import redact

RULE: Final = "rule"  # the giver of implicit signals


def feedback_give(
    actor: Actor, trace: ProductionTrace, *, metric: str, value: Any = None, text: str = ""
) -> tuple[Feedback, bool]:
    """Stores the actor's opinion on an answer, in place of their earlier one by this metric; returns (row, is new). The
    trace's reward is computed again at once if it has one; else the sweep computes it soon.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: it says nothing, or can't be stored (``fields`` says which).
    """
    require(actor, "feedback.give", trace.organization_id)
    try:
        given = opinion(metric, value, text)
    except Refused as error:
        raise Invalid(str(error), fields={error.field: str(error)}) from error
    if reason := unstorable(given.text):
        raise Invalid(f"The text can't be stored: {reason}.", fields={"text": reason})
    known = {"value": given.value, "text": redact(given.text), "user": Actor.of(actor).user}
    with transaction.atomic():
        row, new = Feedback.objects.update_or_create(
            trace=trace,
            metric=given.metric,
            giver=giver_of(actor),
            defaults=known | {"updated_at": timezone.now()},
            create_defaults=known | {"organization_id": trace.organization_id},
        )
        trace_rescore(trace.pk)
        record(actor, "feedback.given", trace, after={"metric": row.metric, "value": row.value})
    return row, new


@transaction.atomic
def feedback_withdraw(actor: Actor, row: Feedback) -> None:
    """Withdraws one's own feedback.

    Raises:
        Missing, Forbidden: the actor may not, or another giver gave it.
    """
    require(actor, "feedback.give", row.organization_id)
    if row.giver != giver_of(actor):
        raise Forbidden("This is another's feedback. Give your own, which is shown beside it.")
    trace = row.trace
    row.delete()
    trace_rescore(trace.pk)
    record(actor, "feedback.withdrawn", trace, before={"metric": row.metric, "value": row.value})


@transaction.atomic
def implicit_found(traces: Iterable[ProductionTrace], metric: str) -> int:
    """Stores implicit signals of these answers, once for each. Returns the number of new ones."""
    by_id = {trace.pk: trace for trace in traces}
    known = Feedback.objects.filter(trace__in=by_id, metric=metric, giver=RULE).values_list("trace_id", flat=True)
    new = [trace for trace in by_id.values() if trace.pk not in set(known)]
    if new:
        rows = [
            Feedback(
                organization_id=trace.organization_id,
                trace=trace,
                metric=metric,
                giver=RULE,
                source=FeedbackSource.IMPLICIT,
            )
            for trace in new
        ]
        Feedback.objects.bulk_create(rows, ignore_conflicts=True)
        traces_score([trace.pk for trace in new])
    return len(new)


def giver_of(actor: Actor) -> str:
    """A key is a giver of its own, apart from its owner; a person is the same in the console and by JWT."""
    who = Actor.of(actor)
    return who.interface if who.interface.startswith("key ") else f"person {who.user.pk}"
