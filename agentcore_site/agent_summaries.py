"""Each agent in a few words, for those who only watch: what it gained, what it costs, and what is live. No texts of
queries or answers, and no addresses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypedDict
from uuid import UUID

from django.db.models import Avg, Count, Q, Sum, Window
from django.db.models.functions import RowNumber
from django.utils import timezone

from agentcore_site.console.svg import Picture, whisker
from agentcore_site.jobs.models import Status
from agentcore_site.jobs.selectors import jobs_visible
from agentcore_site.lib.figures import signed
from agentcore_site.templatetags.figures import figure
from agentcore_site.tenancy.actors import Actor
from budgets.ledger.accounts import month_of
from budgets.models import Budget, Scope
from evaluation.serving.models import (
    AgentServing,
    ArmName,
    Deployment,
    DeploymentState,
    ProductionTrace,
    TraceStatus,
)
from evaluation.serving.returns.arithmetic import MonthReturn
from evaluation.serving.returns.selectors import returns_of
from experiences.models import Agent
from experiences.models.agent_lookup import agents_visible
from training.models import TrainingRun
from training.selectors.runs import measured

SHOWN: Final = 6  # gains of an agent, the latest
PARTS: Final = ("improvement", "low", "high")  # of a verdict
LATELY: Final = timedelta(days=30)  # of which queries the price of 1,000 is known, and of which jobs how they ended
FEWEST: Final = 10  # answered queries, of which that price says something
FAILED: Final = Q(status__in=(TraceStatus.FAILED, TraceStatus.INTERRUPTED))
TO_USERS: Final = ~Q(arm=ArmName.SHADOW)


class Lately(TypedDict):
    """Figures of an agent's production in the last 30 days, as ``AgentSummary`` has them."""

    answers: int
    failed_share: float | None
    per_1000_micros: int | None


NOTHING_LATELY: Final = Lately(answers=0, failed_share=None, per_1000_micros=None)


@dataclass(frozen=True)
class ProvenGain:
    """The verdict of one training on queries that it never saw. In points of 100 queries; ``low`` and ``high`` end its
    95 % interval."""

    at: datetime
    points: float
    low: float
    high: float

    @property
    def proven(self) -> bool:
        return self.low > 0

    @property
    def sentence(self) -> str:
        """In plain words."""
        if self.proven:
            return (
                f"Gets {self.points:.1f} more of 100 queries right than before training"
                f" (95 % interval {self.low:.1f} to {self.high:.1f})."
            )
        if self.high < 0:
            return (
                f"Gets {-self.points:.1f} fewer of 100 queries right than before training"
                f" (95 % interval {-self.high:.1f} to {-self.low:.1f})."
            )
        return f"No difference is proven: between {signed(self.low)} and {signed(self.high)} of 100 queries."

    def picture(self, scale: float) -> Picture:
        return whisker(self.points, self.low, self.high, scale, label=self.sentence)


@dataclass(frozen=True)
class AgentSummary:
    """``gains``: the latest first. ``answers``: to its users, in the last 30 days. ``failed_share``: their share that
    failed; None: there was none. ``per_1000_micros``: cost of 1,000 of them; None where too few were given.
    ``release``: the number of what serves it; None: nothing does. ``coming``: the number of a release that is on its
    way, and its share of the queries. ``returned``: this month's return on its learning."""

    agent: Agent
    gains: list[ProvenGain]
    spent_micros: int
    spent_this_month_micros: int
    answers: int
    failed_share: float | None
    per_1000_micros: int | None
    release: int | None
    coming: tuple[int, float] | None
    returned: MonthReturn | None

    @property
    def returns(self) -> str:
        """This month's return, in plain words."""
        one = self.returned
        if one is None or one.multiple is None:
            return "The month's return on investment is unknown: nothing was paid for learning, or no saving measured."
        interval = ""
        if one.multiple.low is not None and one.multiple.high is not None:
            interval = f", between {figure(one.multiple.low, 2)} and {figure(one.multiple.high, 2)}"
        return f"This month its releases saved {figure(one.multiple.value, 2)} times what learning cost{interval}."

    @property
    def pictures(self) -> list[tuple[ProvenGain, Picture]]:
        scale = max((max(abs(gain.low), abs(gain.high)) for gain in self.gains), default=1.0)
        return [(gain, gain.picture(scale)) for gain in self.gains]

    @property
    def live(self) -> str:
        """In plain words."""
        here = f"Release {self.release} is in production" if self.release is not None else "No release is in production"
        if self.coming is None:
            return f"{here}."
        number, share = self.coming
        return f"{here}; release {number} is being tried on {share:.0%} of the queries."


@dataclass(frozen=True)
class WorkSummary:
    """Shares of the last 30 days: of the jobs that completed among those that completed or failed, and of the answers
    to users that failed. None: there was none."""

    jobs: int
    completed_share: float | None
    answers: int
    error_share: float | None


def work_summary(actor: Actor) -> WorkSummary:
    since = timezone.now() - LATELY
    ended = jobs_visible(actor).filter(finished_at__gt=since, status__in=(Status.COMPLETED, Status.FAILED))
    jobs = ended.aggregate(n=Count("pk"), completed=Count("pk", filter=Q(status=Status.COMPLETED)))
    # Counts alone: no text of a trace is read, which needs another right.
    traces = ProductionTrace.objects.filter(agent__in=agents_visible(actor).values("pk"), created_at__gt=since)
    found = traces.filter(TO_USERS).aggregate(n=Count("pk"), failed=Count("pk", filter=FAILED))
    return WorkSummary(
        jobs["n"],
        jobs["completed"] / jobs["n"] if jobs["n"] else None,
        found["n"],
        found["failed"] / found["n"] if found["n"] else None,
    )


def agent_summaries(agents: Sequence[Agent]) -> list[AgentSummary]:
    """A handful of queries for all of them."""
    ids = [agent.pk for agent in agents]
    gains = _gains(ids)
    spent, this_month, lately = _spent(ids), _spent(ids, this_month=True), _lately(ids)
    serving = dict(
        AgentServing.objects.filter(agent_id__in=ids).exclude(release=None).values_list("agent_id", "release__number")
    )
    coming, returned = _coming(ids), returns_of(ids, months=1)
    return [
        AgentSummary(
            agent=agent,
            gains=gains.get(agent.pk, []),
            spent_micros=spent.get(agent.pk, 0),
            spent_this_month_micros=this_month.get(agent.pk, 0),
            **lately.get(agent.pk, NOTHING_LATELY),
            release=serving.get(agent.pk),
            coming=coming.get(agent.pk),
            returned=next(iter(returned.get(agent.pk, {}).values()), None),
        )
        for agent in agents
    ]


def _gains(ids: Iterable[UUID]) -> Mapping[UUID, list[ProvenGain]]:
    """The latest of each, the latest first."""
    runs = measured(TrainingRun.objects.filter(agent_id__in=list(ids)), *PARTS)
    place = Window(RowNumber(), partition_by="agent_id", order_by="-job__created_at")
    rows = runs.annotate(place=place).filter(place__lte=SHOWN).order_by("agent_id", "place")
    found: dict[UUID, list[ProvenGain]] = defaultdict(list)
    for agent_id, verdict, at in rows.values_list("agent_id", "verdict", "job__created_at"):
        found[agent_id].append(ProvenGain(at, *(100 * float(verdict[name]) for name in PARTS)))
    return found


def _spent(ids: Iterable[UUID], *, this_month: bool = False) -> dict[UUID, int]:
    rows = Budget.objects.filter(scope=Scope.AGENT, agent_id__in=list(ids))
    if this_month:
        rows = rows.filter(period_start=month_of())
    return dict(rows.order_by().values_list("agent_id").annotate(Sum("spent_micros")))


def _lately(ids: Iterable[UUID]) -> dict[UUID, Lately]:
    traces = ProductionTrace.objects.filter(agent_id__in=list(ids), created_at__gt=timezone.now() - LATELY)
    rows = (
        traces.order_by()
        .values_list("agent_id")
        .annotate(
            mean=Avg("cost_micros"),
            answers=Count("pk", filter=TO_USERS),
            failed=Count("pk", filter=TO_USERS & FAILED),
            n=Count("pk"),
        )
    )
    return {
        agent_id: Lately(
            answers=answers,
            failed_share=failed / answers if answers else None,
            per_1000_micros=round(1000 * mean) if n >= FEWEST else None,
        )
        for agent_id, mean, answers, failed, n in rows
    }


def _coming(ids: Iterable[UUID]) -> dict[UUID, tuple[int, float]]:
    rows = Deployment.objects.filter(
        agent_id__in=list(ids), state__in=(DeploymentState.RUNNING, DeploymentState.PAUSED)
    )
    return {
        agent_id: (number, share)
        for agent_id, number, share in rows.order_by("pk").values_list("agent_id", "release__number", "share")
    }
