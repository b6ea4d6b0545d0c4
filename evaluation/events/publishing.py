"""Rows of the outbox as messages: the event is read when it is sent, so that nothing is stored twice.
Content that was erased meanwhile, or may not be recorded any more, is withheld.
"""

from __future__ import annotations

import math
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import orjson
from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from agentcore_site.lib.money import dollars
from agentcore_site.tenancy.models import Organization
from evaluation.events.addresses import GATEWAY, address_of, checkpoint_address
from evaluation.events.leased import GONE, KEY_AWAY, LeasedEvent, Made, Payload
from evaluation.events.models import EventKind, TrainingRequest
from evaluation.events.payloads.deployment import StoredDeployment, deployment_payload
from evaluation.events.payloads.status import STATUSES, StoredRun, cancelled_payload, status_payload
from evaluation.events.payloads.timestamps import written
from evaluation.events.production_events import trace_payloads, trace_reward_payloads
from evaluation.events.release_facts import validation_of
from evaluation.events.rollout_events import reward_payloads, trajectory_payloads
from evaluation.events.subjects import DEPLOYED, REQUEST, REWARD, STATUS, TRAJECTORY, outgoing
from evaluation.serving.deployments.rules import DeploymentRule
from evaluation.serving.models import Deployment, DeploymentStrategy
from training.models import Iteration, TrainingRun, with_money
from training.selectors.runs import eta_seconds

SUBJECT_OF: Final[dict[str, str]] = {
    EventKind.TRAJECTORY: TRAJECTORY,
    EventKind.REWARD: REWARD,
    EventKind.STATUS: STATUS,
    EventKind.DEPLOYED: DEPLOYED,
    EventKind.REQUEST: REQUEST,
    EventKind.TRACE: TRAJECTORY,
    EventKind.FEEDBACK: REWARD,
}


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message, or the reason why there is none (``withheld``). ``row`` is the id in the outbox."""

    row: int
    message_id: str
    subject: str
    body: bytes
    withheld: str = ""

    def within(self, most: int) -> OutgoingMessage:
        """The same message, or a withheld one if it has more bytes than the server accepts."""
        if len(self.body) <= most:
            return self
        return replace(self, body=b"", withheld=f"it has {len(self.body):,} bytes, and NATS takes {most:,}")


def messages_of(rows: Sequence[LeasedEvent]) -> list[OutgoingMessage]:
    """Messages in the order of the rows. Rows without an available key are left out: they are retried after their
    lease."""
    plain = _plain_organization()
    messages: dict[int, OutgoingMessage] = {}
    by_kind: dict[str, list[LeasedEvent]] = defaultdict(list)
    for row in rows:
        by_kind[row.kind].append(row)
    for kind, some in by_kind.items():
        # One by one: a payload is bytes before the next one is made, and the garbage collector has nothing to walk.
        messages |= {row.id: _message(row, payload, plain) for row, payload in MAKERS[kind](some)}
    made = (messages.get(row.id) or _message(row, GONE, plain) for row in rows)
    return [message for message in made if message.withheld != KEY_AWAY]


def _message(row: LeasedEvent, payload: Payload | str, plain: uuid.UUID | None) -> OutgoingMessage:
    subject = outgoing(SUBJECT_OF[row.kind], row.organization_id, plain=row.organization_id == plain)
    if isinstance(payload, str):
        return OutgoingMessage(row.id, row.message_id, subject, b"", payload)
    return OutgoingMessage(row.id, row.message_id, subject, orjson.dumps(payload))


def _plain_organization() -> uuid.UUID | None:
    if not settings.NATS_ORGANIZATION:
        return None
    return Organization.objects.filter(slug=settings.NATS_ORGANIZATION).values_list("id", flat=True).first()


# -- jobs --------------------------------------------------------------------------------------------------------------


def status_payloads(rows: Sequence[LeasedEvent]) -> Made:
    runs = {
        run.job_id: run
        for run in with_money(TrainingRun.objects.filter(job_id__in={row.key for row in rows})).select_related(
            "job", "best_checkpoint", "agent"
        )
    }
    requests = TrainingRequest.objects.filter(Q(job__in=runs) | Q(pk__in={row.key for row in rows}))
    asked: dict[uuid.UUID, TrainingRequest] = {}
    for request in requests:
        asked |= {request.job_id: request, request.pk: request}
    for row in rows:
        if row.key in runs:
            yield row, status_payload(_run(row, runs[row.key], asked.get(row.key)))
        elif row.key in asked:
            yield row, cancelled_payload(asked[row.key].training_job_id, row.created_at, row.data["reason"])


def status_of(asked: TrainingRequest) -> Payload:
    """The status of a requested training, as its event: for a training elsewhere the last report of its service."""
    job = asked.job
    run = with_money(TrainingRun.objects.filter(job=job)).select_related("job", "best_checkpoint", "agent").first()
    if run is None:
        known = {"training_job_id": asked.training_job_id, "timestamp": written(asked.created_at)}
        return known | asked.report | {"status": STATUSES.get(job.status, job.status)}
    data = {"status": run.job.status, "reason": run.job.status_reason}
    event = LeasedEvent(0, str(run.pk), run.organization_id, EventKind.STATUS, run.pk, None, data, timezone.now())
    return status_payload(_run(event, run, asked))


def request_payloads(rows: Sequence[LeasedEvent]) -> Made:
    """The requests unchanged: the service elsewhere knows them by their own ids."""
    found = TrainingRequest.objects.filter(pk__in={row.key for row in rows})
    by_id = {one.pk: one.request for one in found}
    yield from ((row, by_id[row.key]) for row in rows if row.key in by_id)


def _run(row: LeasedEvent, run: TrainingRun, asked: TrainingRequest | None) -> StoredRun:
    """The job at the time of the row, as far as the tables still have it."""
    job, at = run.job, row.created_at
    number = int(row.data.get("iteration", run.iteration))
    figures: Mapping[str, Any] = run.metrics
    if number != run.iteration:
        figures = Iteration.objects.filter(run=run, number=number).values_list("metrics", flat=True).first() or {}
    best = run.best_checkpoint
    ended = row.data["status"] in ("completed", "failed", "cancelled")
    verdict = run.verdict if ended else {}
    began = job.started_at or at
    return StoredRun(
        id=str(run.job_id) if asked is None else asked.training_job_id,
        at=at,
        status=row.data["status"],
        reason=row.data.get("reason", ""),
        iteration=number,
        iterations=run.total_iterations,
        epoch=_epoch(run, number),
        eta_seconds=None if ended else eta_seconds(run),
        figures={**figures, "learning_rate": run.configuration.learning_rate},
        best=None
        if best is None
        else {
            "epoch": _epoch(run, best.iteration)[0],
            "step": best.iteration,
            "reward_mean": best.validation_score,
            "checkpoint_path": checkpoint_address(best),
        },
        artifacts={
            "final_checkpoint": None if best is None else checkpoint_address(best),
            "tensorboard_logs": None,
            "training_curves": address_of(f"/api/v1/training-jobs/{run.job_id}/curves.svg"),
            "model_card": address_of(f"/api/v1/training-jobs/{run.job_id}/model-card.md"),
        },
        cost_usd=dollars(run.spent_micros),
        seconds=max(0.0, (at - began).total_seconds()),
        gpu_hours=None if run.calls_model else 0.0,  # policies of actions learn on a processor
        error=job.error,
        holdout=verdict.get("success_rate"),
        improvement=verdict.get("improvement"),
        scores={"held_out": verdict["success_rate"]} if verdict.get("success_rate") is not None else {},
    )


def _epoch(run: TrainingRun, iteration: int) -> tuple[int, int]:
    """The epoch of an iteration, and the number of epochs; a run without epochs has one."""
    epochs = run.configuration.context.epochs if run.learns_context else 1
    return math.ceil(iteration * epochs / max(run.total_iterations, 1)), epochs


# -- deployments -------------------------------------------------------------------------------------------------------


def deployment_payloads(rows: Sequence[LeasedEvent]) -> Made:
    found = Deployment.objects.filter(id__in={row.key for row in rows}).select_related(
        "agent", "created_by", "previous", "release__checkpoint__run"
    )
    by_id = {one.pk: one for one in found.defer("release__checkpoint__data")}
    yield from ((row, deployment_payload(_deployment(row, by_id[row.key]))) for row in rows if row.key in by_id)


def _deployment(row: LeasedEvent, deployment: Deployment) -> StoredDeployment:
    release, checkpoint = deployment.release, deployment.release.checkpoint
    run = checkpoint.run if checkpoint is not None else None
    facts = validation_of(deployment, row.created_at)
    return StoredDeployment(
        id=str(deployment.pk),
        at=row.created_at,
        step=row.data["step"],
        share=float(row.data["share"]),
        strategy=deployment.strategy,
        ramp=_ramp(deployment),
        model=f"{deployment.agent.slug}-{release.number}",
        base_model=(release.bundle.get("model") or {}).get("name") or None,
        checkpoint=None if checkpoint is None else checkpoint_address(checkpoint),
        endpoint=address_of(GATEWAY),
        training_job=None if run is None else str(run.job_id),
        trained_at=None if checkpoint is None else checkpoint.created_at,
        samples=None if run is None else run.trajectories,
        final_reward=None if checkpoint is None else _float(checkpoint.metrics.get("reward_mean")),
        passed=facts.passed,
        safe=facts.safe,
        regressed=facts.regressed,
        opinion=facts.opinion,
        by=deployment.created_by.username if deployment.created_by else "system",
        approved=facts.approved,
        previous=None if deployment.previous is None else f"{deployment.agent.slug}-{deployment.previous.number}",
    )


def _ramp(deployment: Deployment) -> list[tuple[datetime, float]]:
    """The earliest time of each stage."""
    if deployment.strategy != DeploymentStrategy.CANARY:
        return [(deployment.created_at.astimezone(UTC), 1.0)]
    due, found = deployment.created_at, []
    for stage in DeploymentRule.from_json(deployment.rule).stages:
        found.append((due, stage.share))
        due = due + timedelta(minutes=stage.minutes)
    return [*found, (due, 1.0)]


def _float(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


MAKERS: Final[dict[str, Callable[[Sequence[LeasedEvent]], Made]]] = {
    EventKind.TRAJECTORY: trajectory_payloads,
    EventKind.REWARD: reward_payloads,
    EventKind.TRACE: trace_payloads,
    EventKind.FEEDBACK: trace_reward_payloads,
    EventKind.STATUS: status_payloads,
    EventKind.DEPLOYED: deployment_payloads,
    EventKind.REQUEST: request_payloads,
}
