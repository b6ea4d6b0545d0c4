"""Automatic steps of learning loops: begins due turns, and advances each live turn by one state."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import ACTIVE, ENDED, Job, Reason, Status
from agentcore_site.lib.database import TROUBLE
from agentcore_site.lib.errors import Conflict, DomainError, Forbidden, Missing, TooMany, Unavailable
from agentcore_site.lib.money import dollars
from agentcore_site.tenancy.actors import Actor
from evaluation.serving.deployments.gate import verdict_of
from evaluation.serving.deployments.missing_suites import suites_missing
from evaluation.serving.deployments.presenters import shown_deployment
from evaluation.serving.deployments.rules import DeploymentRule
from evaluation.serving.deployments.selectors import live_deployment, serving_of
from evaluation.serving.deployments.services import deployment_start
from evaluation.serving.loop.drift import MOST, DriftAnalysis, drift
from evaluation.serving.loop.rows import LearnableRow, rows_of
from evaluation.serving.loop.selectors import (
    actor_of_loop,
    answered,
    hindrance,
    judged_traces,
    left_this_month_micros,
    loop_of,
    may_not,
    turn_cost_micros,
    with_feedback,
)
from evaluation.serving.loop.services import MOST_TEXT, turn_end, turn_start
from evaluation.serving.models import (
    LEARNED_FROM,
    TURN_ENDED,
    ArmName,
    Deployment,
    DeploymentState,
    DeploymentStrategy,
    LearningLoop,
    LoopRow,
    LoopTrigger,
    LoopTurn,
    ProductionTrace,
    Release,
    RowReview,
    RowState,
    TraceStatus,
    TurnState,
)
from evaluation.serving.releases.services import Unchanged, release_make
from evaluation.serving.suites.services import DEFAULT_BUDGET_USD, suite_run_start
from experiences.agents.services.datasets import dataset_create
from experiences.models import Agent
from experiences.models.trajectories import DatasetOrigin
from training.config.validation import MAX_QUERIES
from training.data.uploads import clean_rows
from training.services import checkpoints
from training.services.promotion import promoted_checkpoint_set
from training.services.runs import run_start

log = logging.getLogger(__name__)

DAILY_AT: Final = 2  # o'clock, UTC
DRIFT_INTERVAL: Final = timedelta(minutes=5)  # between two analyses of drift
RIPE_AFTER: Final = timedelta(minutes=30)  # until then feedback may have changed a trace's reward
# A job that is paused for one of these reasons goes on later; for any other reason its turn ends.
WAITS: Final = (Reason.USER, *lifecycle.WAITS)


class TurnEnds(Exception):
    """The turn ends; the message is the reason, as a sentence."""


def loops_advance() -> int:
    """Begins due turns, and takes one step with each live turn. Returns the number of live turns."""
    for loop in loops_on().select_related("agent", "acts_as"):
        try:
            _begin(loop)
        except Exception:  # a loop that can't begin a turn must not hold up the others
            log.exception("%s could not begin a turn", loop)
    ids = list(live_turns().values_list("pk", flat=True))
    for pk in ids:
        try:
            _step(pk)
        except Exception:
            log.exception("turn %s could not be stepped", pk)
    return len(ids)


def loops_on() -> QuerySet[LearningLoop]:
    return LearningLoop.objects.filter(on=True)


def live_turns() -> QuerySet[LoopTurn]:
    return LoopTurn.objects.exclude(state__in=TURN_ENDED)


# -- triggers ----------------------------------------------------------------------------------------------------------


def _begin(loop: LearningLoop) -> None:
    if hindrance(loop) or may_not(loop) or (trigger := due(loop)) is None:
        return
    with suppress(Conflict):  # another process was first
        turn_start(actor_of_loop(loop.agent, loop.acts_as), loop.agent, trigger=trigger)


def due(loop: LearningLoop) -> LoopTrigger | None:
    """The trigger that begins a turn of an active loop now, if any."""
    since = quiet_since(loop)
    if loop.daily and daily_due(timezone.now()) > since:
        return LoopTrigger.DAILY
    if loop.after_traces and new_traces(loop, most=loop.after_traces) >= loop.after_traces:
        return LoopTrigger.TRACES
    return LoopTrigger.DRIFT if loop.on_drift and _drifted(loop) else None


def quiet_since(loop: LearningLoop) -> datetime:
    """The time since which no turn was live, or at which the loop was switched on."""
    last = LoopTurn.objects.filter(agent=loop.agent).order_by("-number").first()
    known = [loop.on_since, last.ended_at if last else None]
    return max([one for one in known if one is not None], default=timezone.now())


def daily_due(now: datetime) -> datetime:
    """The last time of the daily trigger, in UTC."""
    today = now.replace(hour=DAILY_AT, minute=0, second=0, microsecond=0)
    return today if today <= now else today - timedelta(days=1)


def new_traces(loop: LearningLoop, *, most: int) -> int:
    """Number of traces since the last turn began, when it collected its rows; all traces before the first turn. At most
    ``most``."""
    rows = answered(loop.agent)
    last = LoopTurn.objects.filter(agent=loop.agent).order_by("-number").first()
    if last is not None:
        rows = rows.filter(created_at__gt=last.created_at)
    rows = with_feedback(rows) if loop.judged_only else rows
    return rows.order_by("-id")[:most].count()


def _drifted(loop: LearningLoop) -> bool:
    """True if the serving release got worse; once per release."""
    release = serving_of(loop.agent).release
    known, now = loop.drift, timezone.now()
    if release is None or (known.get("release") == str(release.pk) and known.get("worse")):
        return False
    analysed_at = parse_datetime(known["at"]) if "at" in known else None
    if analysed_at is not None and now - analysed_at < DRIFT_INTERVAL:
        return False
    found = drift_of(loop.agent, release, before=now - RIPE_AFTER)
    loop.drift = found.as_json() | {"release": str(release.pk), "at": now.isoformat()}
    loop.save(update_fields=["drift"])
    return found.worse


def drift_of(agent: Agent, release: Release, *, before: datetime) -> DriftAnalysis:
    """The analysis of a release's traces in their order. It takes raw rewards: rewards relative to the agent's last
    thousand traces would decline together with them."""
    rows = ProductionTrace.objects.filter(agent=agent, release_id=release.pk, created_at__lte=before)
    rows = rows.filter(status__in=(TraceStatus.OK, TraceStatus.FAILED)).exclude(arm=ArmName.SHADOW).order_by("id")
    values = list(rows.values_list("status", "components__raw_reward")[:MOST])
    return drift([status != TraceStatus.OK for status, _ in values], [reward for _, reward in values])


# -- the steps of a turn -----------------------------------------------------------------------------------------------


@transaction.atomic
def _step(pk: UUID) -> None:
    rows = LoopTurn.objects.select_for_update(of=("self",), no_key=True, skip_locked=True)
    rows = rows.select_related("agent", "run__job", "release", "deployment", "created_by")
    turn = rows.filter(pk=pk).exclude(state__in=TURN_ENDED).first()
    if turn is None:  # another tick has it, or it has just ended
        return
    try:
        with transaction.atomic():
            if turn.created_by is None:
                raise TurnEnds("The person whom it acts as is gone.")
            turn.waits_for = STEPS[turn.state](turn, actor_of_loop(turn.agent, turn.created_by))[:MOST_TEXT]
            turn.cost_micros = turn_cost_micros(turn)
            turn.save()
    except TurnEnds as end:  # the step began nothing; its findings stay
        turn_end(turn, TurnState.STOPPED, str(end))
    except (TooMany, Unavailable) as error:  # waits as long as necessary
        LoopTurn.objects.filter(pk=pk).update(waits_for=error.message[:MOST_TEXT])
    except (Missing, Forbidden) as error:
        turn_end(_again(pk), TurnState.STOPPED, f"{turn.created_by} may not do this any more: {error.message}")
    except DomainError as error:
        turn_end(_again(pk), TurnState.STOPPED, error.message)
    except TROUBLE:
        raise
    except Exception as error:
        log.exception("%s failed", turn)
        turn_end(_again(pk), TurnState.STOPPED, f"Internal error, see the log ({type(error).__name__}).")


def _again(pk: UUID) -> LoopTurn:
    """The row before the undone step."""
    return LoopTurn.objects.select_related("agent", "run").get(pk=pk)


def _collect(turn: LoopTurn, actor: Actor) -> str:
    """Makes rows of traces. A person's decision on a trace in an earlier turn holds."""
    loop = loop_of(turn.agent)
    decided = dict(
        LoopRow.objects.filter(turn__agent=turn.agent, decided_by__isnull=False)
        .order_by("id")
        .values_list("trace_id", "state")
    )
    newest = with_feedback(answered(turn.agent)).order_by("-pk").values_list("pk", flat=True)
    found = rows_of(judged_traces(turn.agent, after=newest[MAX_QUERIES : MAX_QUERIES + 1].first()))
    rows = [_row(turn, one, decided.get(one.trace) or _state(one, loop.review)) for one in found]
    possible = sum(row.state != RowState.REJECTED for row in rows)
    turn.rows_found, turn.rows_flagged = len(rows), sum(bool(row.flags) for row in rows)
    if possible < loop.least_rows:
        raise TurnEnds(f"Production has {possible:,} rows to learn from; the minimum is {loop.least_rows:,}.")
    LoopRow.objects.bulk_create(rows, batch_size=1_000)
    return _on(turn, TurnState.REVIEWING)


def _row(turn: LoopTurn, row: LearnableRow, state: str) -> LoopRow:
    flags = [flag[:200] for flag in row.flags]
    return LoopRow(
        turn=turn,
        trace_id=row.trace,
        query=row.query,
        expected=row.expected,
        source=row.source,
        flags=flags,
        state=state,
    )


def _state(row: LearnableRow, review: str) -> RowState:
    if review == RowReview.ALL or (review == RowReview.FLAGGED and row.flags):
        return RowState.WAITING
    return RowState.REJECTED if row.flags else RowState.TAKEN


def _review(turn: LoopTurn, actor: Actor) -> str:
    if waiting := turn.rows.filter(state=RowState.WAITING).count():
        return f"a person's decision on {waiting:,} rows"
    loop = loop_of(turn.agent)
    rows = [
        LearnableRow(row.trace_id, row.query, row.expected, row.source, "").as_dict()
        for row in turn.rows.filter(state__in=LEARNED_FROM)
    ]
    if len(rows) < loop.least_rows:
        raise TurnEnds(f"{len(rows):,} rows were left after the review; the minimum is {loop.least_rows:,}.")
    if other := Job.objects.filter(exclusive_key=f"agent:{turn.agent_id}", status__in=ACTIVE).first():
        return f"the agent's other job, {other}"
    left = dollars(left_this_month_micros(loop))
    most = float(loop.config.get("max_budget_usd", settings.TRAINING_DEFAULT_BUDGET_USD))
    title = f"{turn.agent.name}, turn {turn.number}"
    turn.run = run_start(
        actor,
        agent=turn.agent,
        dataset=dataset_create(
            actor, name=title, rows=clean_rows(rows), origin=DatasetOrigin.TRACES, origin_detail=title
        ),
        config={**loop.config, "max_budget_usd": min(most, left)},
        preset=loop.preset,
        environment_options=loop.environment_options or None,
        title=title,
    )
    return _on(turn, TurnState.TRAINING)


def _train(turn: LoopTurn, actor: Actor) -> str:
    run = turn.run
    if run is None:
        raise TurnEnds("Its job is gone.")
    if waits := _at_work(run.job, "its job"):
        return waits
    if not run.verdict:
        proof = run.evaluations.filter(final=True).select_related("job").first()
        return (
            _at_work(proof.job, "the proof on held-out queries") if proof else ""
        ) or "the proof on held-out queries"
    turn.gain = {name: run.verdict.get(name) for name in ("improvement", "low", "high", "p_value")}
    turn.gain |= {"baseline": run.verdict.get("baseline_success_rate"), "trained": run.verdict.get("success_rate")}
    if not (run.verdict.get("improvement") or 0) > 0:
        raise TurnEnds(f"It learned nothing that helps. {run.verdict.get('verdict', '')}")
    proof = run.evaluations.filter(final=True).select_related("checkpoint").first()
    proven = checkpoints.best(run) if proof is None else proof.checkpoint
    try:
        turn.release = release_make(
            actor, turn.agent, checkpoint=proven, note=f"Turn {turn.number} of its learning loop"
        )
    except Unchanged as same:
        turn.release = same.release
    return _on(turn, TurnState.GATING)


def _at_work(job: Job, name: str) -> str:
    """The progress of a job; "" once it is completed. Raises TurnEnds."""
    if job.status == Status.COMPLETED:
        return ""
    if job.status in ENDED or (job.status == Status.PAUSED and job.status_reason not in WAITS):
        why = [job.get_status_display().lower(), job.get_status_reason_display(), job.error]
        raise TurnEnds(f"{name[0].upper()}{name[1:]} ended: {', '.join(filter(None, why))}.")
    return f"{name}, {job.get_status_display().lower()} at {job.percent:.0f} %"


def _gate(turn: LoopTurn, actor: Actor) -> str:
    release = turn.release
    if release is None:
        raise TurnEnds("Its release is gone.")
    current = serving_of(turn.agent).release
    if waits := _measured(turn, actor, release, current):
        return waits
    verdict = verdict_of(release, current)
    if not verdict.passed:
        if [finding.check for finding in verdict.findings if not finding.passed] == ["approval"]:
            return f"the approval of release {release.number} by a second person"
        raise TurnEnds(verdict.sentence)
    if other := live_deployment(turn.agent):
        return f"the deployment of release {other.release.number}"
    loop = loop_of(turn.agent)
    turn.deployment = deployment_start(
        actor,
        release,
        strategy=DeploymentStrategy.IMMEDIATE if current is None else loop.strategy,
        rule=DeploymentRule.from_json(loop.rule) if loop.rule else None,
        note=f"Turn {turn.number} of its learning loop",
    )
    return _on(turn, TurnState.DEPLOYING)


def _measured(turn: LoopTurn, actor: Actor, release: Release, current: Release | None) -> str:
    """Runs the suites that the gate requires and that have no run yet. Returns the pending ones. Raises TurnEnds."""
    waits, missing = [], []
    for version, of, own in suites_missing(release, current):
        if own is not None and (own.job.active or turn.suite_runs.filter(pk=own.pk).exists()):
            waits.append(_at_work(own.job, f"suite {version.suite.name} on release {of.number}"))
        else:
            missing.append((version, of))
    left_micros = left_this_month_micros(loop_of(turn.agent)) if missing else 0
    if missing and not left_micros:
        raise TurnEnds("This month's budget is used up before the gate's suites have run.")
    for version, of in missing:
        most = min(DEFAULT_BUDGET_USD, dollars(left_micros // len(missing)))
        turn.suite_runs.add(suite_run_start(actor, version, release=of, max_budget_usd=most))
        waits.append(f"suite {version.suite.name} on release {of.number}")
    return ", ".join(waits)


def _deploy(turn: LoopTurn, actor: Actor) -> str:
    deployment = turn.deployment
    if deployment is None:
        raise TurnEnds("Its deployment is gone.")
    turn.online = _online(deployment)
    if deployment.live:
        return f"its deployment, at {deployment.share:.0%} of the sessions"
    if deployment.state != DeploymentState.DONE:
        raise TurnEnds(f"Release {deployment.release.number} was rolled back: {deployment.reason}")
    if deployment.release.checkpoint is not None:
        with suppress(Conflict):  # a job is active: the agent's current checkpoint is the one where that job ends
            promoted_checkpoint_set(actor, deployment.release.checkpoint)
    turn_end(turn, TurnState.DONE)
    return ""


def _online(deployment: Deployment) -> dict[str, Any]:
    """By guardrail the means of both releases and their difference, with its interval over all interim analyses."""
    names = ("current", "new", "difference", "low", "high")
    return {row.name: {name: getattr(row, name) for name in names} for row in shown_deployment(deployment).rows}


def _on(turn: LoopTurn, state: TurnState) -> str:
    turn.state = turn.reached = state
    return ""


STEPS: Final[Mapping[str, Callable[[LoopTurn, Actor], str]]] = {
    TurnState.COLLECTING: _collect,
    TurnState.REVIEWING: _review,
    TurnState.TRAINING: _train,
    TurnState.GATING: _gate,
    TurnState.DEPLOYING: _deploy,
}
