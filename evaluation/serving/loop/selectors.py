"""Reads of learning loops: settings, turns, rows, costs, and the traces to learn from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db.models import Exists, OuterRef, QuerySet, Sum
from django.utils import timezone

from agentcore_site.lib.errors import Missing
from agentcore_site.lib.texts import uuid_of
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require_somewhere
from budgets.models import Budget
from evaluation.serving.deployments.gate import rule_of
from evaluation.serving.feedback.opinions import CORRECTION, STARS, SUCCESS, THUMBS
from evaluation.serving.loop.rows import JudgedTrace
from evaluation.serving.models import (
    TURN_ENDED,
    ArmName,
    Feedback,
    LearningLoop,
    LoopRow,
    LoopTurn,
    ProductionTrace,
    Suite,
    SuiteKind,
    TraceStatus,
)
from experiences.models import Agent

JUDGES = (THUMBS, STARS, SUCCESS, CORRECTION)
BATCH = 2_000
NEEDED: Final = ("deployment.edit", "dataset.edit", "run.start", "release.make", "evaluate")


def loop_of(agent: Agent) -> LearningLoop:
    """An agent's loop; off if it was never switched on."""
    found = LearningLoop.objects.filter(agent=agent).select_related("acts_as").first()
    return found or LearningLoop(agent=agent, organization_id=agent.organization_id)


def turns_visible(actor: Actor) -> QuerySet[LoopTurn]:
    rows = LoopTurn.objects.visible_to(actor)
    return rows.select_related("agent", "release", "deployment", "run__job", "created_by").defer("release__bundle")


def turn_get(actor: Actor, turn_id: Any) -> LoopTurn:
    """Raises:
    Missing: no such turn is visible to this actor."""
    named = uuid_of(turn_id)
    found = turns_visible(actor).filter(pk=named).first() if named else None
    if found is None:
        raise Missing("There is no such turn.")
    return found


def live_turn(agent: Agent) -> LoopTurn | None:
    return LoopTurn.objects.filter(agent=agent).exclude(state__in=TURN_ENDED).first()


def rows_visible(actor: Actor) -> QuerySet[LoopRow]:
    """Raises:
    Forbidden: the actor's role may not read answers."""
    require_somewhere(actor, "data.view")
    return LoopRow.objects.visible_to(actor).select_related("decided_by")


def turn_cost_micros(turn: LoopTurn) -> int:
    """Cost so far of its job (with the held-out proof) and of its suite runs."""
    cost_micros = turn.run.spent_micros if turn.run is not None else 0
    spent_micros = dict(Budget.objects.filter(job__suite_run__loop_turns=turn).values_list("job_id", "spent_micros"))
    runs = turn.suite_runs.defer("bundle", "report")
    return cost_micros + sum(max(run.cost_micros, spent_micros.get(run.pk, 0)) for run in runs)


def month_began(now: datetime | None = None) -> datetime:
    return (now or timezone.now()).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def spent_this_month_micros(agent: Agent) -> int:
    """Cost of the turns that began this month."""
    turns = LoopTurn.objects.filter(agent=agent, created_at__gte=month_began())
    return int(turns.aggregate(spent_micros=Sum("cost_micros"))["spent_micros"] or 0)


def left_this_month_micros(loop: LearningLoop) -> int:
    return max(loop.monthly_micros - spent_this_month_micros(loop.agent), 0)


def actor_of_loop(agent: Agent, user: Any) -> Actor:
    """The actor of a loop that acts as ``user``: in the agent's organisation, without a key."""
    return Actor(user, organization_id=agent.organization_id, interface="loop")


def may_not(loop: LearningLoop) -> str:
    """The reason why no turn begins automatically; "" if the loop's person may do all actions of a turn."""
    if loop.acts_as is None:
        return "The person whom the loop acts as is gone: switch it off and on again."
    actor = actor_of_loop(loop.agent, loop.acts_as)
    if all(actor.may(action, loop.organization_id) for action in NEEDED):
        return ""
    return f"The loop acts as {loop.acts_as}, who may not do all of it any more: switch it off and on again."


def hindrance(loop: LearningLoop) -> str:
    """The reason why no turn can begin now, as a sentence; "" if one can. Checked before anything is paid."""
    agent = loop.agent
    if agent.archived_at is not None:
        return f"{agent.name} is archived."
    if (live := live_turn(agent)) is not None:
        return f"Turn {live.number} is under way."
    if not left_this_month_micros(loop):
        return "This month's budget is used up."
    rule = rule_of(agent)
    suites = Suite.objects.filter(organization_id=agent.organization_id, archived_at=None)
    if rule.safety and not suites.filter(kind=SuiteKind.SAFETY).exists():
        return "The gate requires safety, and there is no suite of safety probes: add one first."
    missing = set(rule.suites) - set(suites.values_list("name", flat=True))
    return f"The gate requires the suite {min(missing)}, which does not exist." if missing else ""


# -- traces to learn from ---------------------------------------------------------------------------------------------


def answered(agent: Agent) -> QuerySet[ProductionTrace]:
    """Successful answers to the agent's users."""
    return ProductionTrace.objects.filter(agent=agent, status=TraceStatus.OK).exclude(arm=ArmName.SHADOW)


def with_feedback(rows: QuerySet[ProductionTrace]) -> QuerySet[ProductionTrace]:
    """The traces with feedback to learn from."""
    return rows.filter(Exists(Feedback.objects.filter(trace=OuterRef("pk"), metric__in=JUDGES)))


def judged_traces(agent: Agent, *, after: UUID | None = None) -> Iterator[JudgedTrace]:
    """Answers of the agent with feedback, oldest first; ``after``: only those after that trace."""
    rows = with_feedback(answered(agent)).order_by("pk")
    if after is not None:
        rows = rows.filter(pk__gt=after)
    while batch := list(rows[:BATCH]):
        yield from _with_opinions(batch)
        rows = rows.filter(pk__gt=batch[-1].pk)


def _with_opinions(traces: list[ProductionTrace]) -> Iterator[JudgedTrace]:
    given: dict[UUID, list[Feedback]] = defaultdict(list)
    for feedback in Feedback.objects.filter(trace__in=traces, metric__in=JUDGES).order_by("updated_at"):
        given[feedback.trace_id].append(feedback)
    for trace in traces:
        opinions = given[trace.pk]
        corrections = [opinion for opinion in opinions if opinion.metric == CORRECTION]
        liked = [opinion for opinion in opinions if _likes(opinion) is True]
        yield JudgedTrace(
            id=trace.pk,
            query=trace.asked,
            answer=trace.answer,
            liked=len(liked),
            disliked=sum(_likes(opinion) is False for opinion in opinions),
            correction=corrections[-1].text if corrections else "",
            giver=(corrections or liked or opinions)[-1].giver,
        )


def _likes(feedback: Feedback) -> bool | None:
    """Whether the feedback likes the answer; None: neither like nor dislike."""
    if feedback.value is None or feedback.metric == CORRECTION:
        return None
    if feedback.metric == STARS:
        return True if feedback.value >= 4 else False if feedback.value <= 2 else None
    return feedback.value >= 0.5
