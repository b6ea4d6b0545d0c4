"""JSON-RPC methods of training, a part of the public contract (docs/api.md#json-rpc)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from agentcore_site.jobs.models import ENDED, Job, Status
from agentcore_site.jobs.services import job_cancel, job_pause, job_resume
from agentcore_site.lib.async_db import in_thread
from agentcore_site.lib.errors import Invalid, TooLarge
from agentcore_site.lib.storable import in_utc
from agentcore_site.rest.idempotency import once
from agentcore_site.rest.jsonrpc import Call, Method, Params, Table
from experiences.agents.selectors import dataset_get
from experiences.models.agent_lookup import agent_get
from experiences.trajectories.exports.selection import export_start
from experiences.trajectories.exports.streams import MAX_AT_ONCE, export_all
from experiences.trajectories.presenters.shapes import ExportOut
from training.config.presets import DEFAULT_PRESET
from training.presenters.shapes import PRIORITIES, StatusOut
from training.rpc.results import (
    CancelledOut,
    ListedJobOut,
    ListedJobsOut,
    MovedOut,
    StartedOut,
)
from training.selectors.runs import run_get, runs_visible
from training.services.going_on import run_go_on
from training.services.runs import run_start

CANCEL_SECONDS: Final = 5.0
MAX_LIST: Final = 1000


class StartParams(Params):
    """``agent_id`` is a UUID or a slug. Data and configuration are checked by the service, which says where they are
    wrong. New parameters come last: callers may give them by position."""

    agent_id: str
    training_data: list[Any] | None = None
    domain: str = ""
    config: dict[str, Any] | None = None
    environment: str | None = None
    environment_options: dict[str, Any] | None = None
    dataset_id: str | None = None
    preset: str = DEFAULT_PRESET
    idempotency_key: str | None = None
    priority: Literal["high", "normal", "low"] = "normal"
    not_before: str | None = None
    title: Annotated[str, Field(max_length=200)] = ""


class JobParams(Params):
    job_id: str


class GoOnParams(Params):
    """``max_budget_usd`` is the most that the next job may spend."""

    job_id: str
    max_budget_usd: float
    title: Annotated[str, Field(max_length=200)] = ""
    idempotency_key: str | None = None


class ExportFilters(Params):
    success_only: bool = False
    min_reward: float | None = None
    limit: int | None = None
    iteration: int | None = None
    since: str | None = None
    until: str | None = None


class ExportParams(Params):
    job_id: str
    filters: ExportFilters = ExportFilters()


class ListParams(Params):
    agent_id: str | None = None
    status: str | None = None
    limit: int = 50
    offset: int = 0


def start_grpo(call: Call, params: StartParams) -> dict[str, Any]:
    def work() -> tuple[int, dict[str, Any]]:
        run = run_start(
            call.actor,
            agent=agent_get(call.actor, params.agent_id),
            dataset=dataset_get(call.actor, params.dataset_id) if params.dataset_id else None,
            rows=params.training_data,
            domain=params.domain,
            environment=params.environment,
            environment_options=params.environment_options,
            config=params.config,
            preset=params.preset,
            priority=PRIORITIES[params.priority],
            not_before=moment_of(params.not_before) if params.not_before is not None else None,
            title=params.title,
        )
        return 200, StartedOut(run).data

    return _once(call, params, "training.start_grpo", work)


def go_on(call: Call, params: GoOnParams) -> dict[str, Any]:
    def work() -> tuple[int, dict[str, Any]]:
        run = run_get(call.actor, params.job_id)
        return 200, StartedOut(
            run_go_on(call.actor, run, max_budget_usd=params.max_budget_usd, title=params.title)
        ).data

    return _once(call, params, "training.go_on", work)


def _once(
    call: Call, params: StartParams | GoOnParams, operation: str, work: Callable[[], tuple[int, dict[str, Any]]]
) -> dict[str, Any]:
    """The work, or with an idempotency key the answer that it had before."""
    if params.idempotency_key is None:
        return work()[1]
    payload = params.model_dump(exclude={"idempotency_key"})
    found = once(call.actor, params.idempotency_key, operation=operation, payload=payload, work=work)
    return dict(found.body)


def moment_of(text: str) -> datetime:
    """An ISO 8601 moment with its offset, as REST takes it.

    Raises:
        Invalid: it is none.
    """
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError("it names no offset, e.g. Z")
        return in_utc(moment)
    except ValueError as error:
        message = f"not_before must be a moment such as 2026-11-21T22:00:00Z: {error}."
        raise Invalid(message, fields={"not_before": message}) from None


def get_status(call: Call, params: JobParams) -> dict[str, Any]:
    return StatusOut(run_get(call.actor, params.job_id)).data


def pause(call: Call, params: JobParams) -> dict[str, Any]:
    return MovedOut(job_pause(call.actor, run_get(call.actor, params.job_id).job)).data


def resume(call: Call, params: JobParams) -> dict[str, Any]:
    return MovedOut(job_resume(call.actor, run_get(call.actor, params.job_id).job)).data


async def cancel(call: Call, params: JobParams) -> dict[str, Any]:
    """Asks, then waits a few seconds for the worker that holds the job."""

    def ask() -> Job:
        return job_cancel(call.actor, run_get(call.actor, params.job_id).job)

    job_id = (await in_thread(ask)()).id
    await call.until(lambda: Job.objects.filter(id=job_id, status__in=ENDED).exists(), CANCEL_SECONDS)
    return await in_thread(lambda: CancelledOut(run_get(call.actor, job_id).job).data)()


def export_trajectories(call: Call, params: ExportParams) -> dict[str, Any]:
    asked = params.filters
    if asked.limit is not None and asked.limit < 1:
        raise Invalid("limit must be at least 1.", fields={"filters.limit": "Must be at least 1."})
    if asked.limit is not None and asked.limit > MAX_AT_ONCE:
        raise TooLarge(f"limit is {asked.limit:,}; at most {MAX_AT_ONCE:,} trajectories are answered at once.")
    values = asked.model_dump(exclude={"success_only", "limit"})
    if asked.success_only:
        values["success"] = True
    export = export_start(call.actor, {"job": params.job_id, **values}, format="json-rpc")
    return export_all(export, limit=asked.limit)


def list_jobs(call: Call, params: ListParams) -> dict[str, Any]:
    if not 1 <= params.limit <= MAX_LIST or not 0 <= params.offset < 2**31:
        message = f"limit must be between 1 and {MAX_LIST}, offset at least 0."
        raise Invalid(message, fields={"limit": message})
    if params.status is not None and params.status not in Status.values:
        message = f"status must be one of {', '.join(Status.values)}; got {params.status[:60]!r}."
        raise Invalid(message, fields={"status": message})
    rows = runs_visible(call.actor).order_by("-job__created_at", "-job_id")
    if params.agent_id is not None:
        rows = rows.filter(agent=agent_get(call.actor, params.agent_id))
    if params.status is not None:
        rows = rows.filter(job__status=params.status)
    page = rows[params.offset : params.offset + params.limit]
    return {
        "jobs": ListedJobOut(page, many=True).data,
        "total_count": rows.count(),
        "limit": params.limit,
        "offset": params.offset,
    }


METHODS: Final[Table] = {
    "training.start_grpo": Method(StartParams, "run.start", start_grpo, "Queue a training job.", StartedOut),
    "training.go_on": Method(
        GoOnParams, "run.start", go_on, "Go on with a finished job for a further amount.", StartedOut
    ),
    "training.get_status": Method(JobParams, "view", get_status, "State of a job.", StatusOut),
    # The owner of a job may cancel it without the operator's role, so the service alone decides.
    "training.cancel": Method(JobParams, "view", cancel, "Cancel a job.", CancelledOut),
    "training.pause": Method(JobParams, "run.pause", pause, "Pause a job.", MovedOut),
    "training.resume": Method(JobParams, "run.resume", resume, "Resume a paused or failed job.", MovedOut),
    "training.export_trajectories": Method(
        ExportParams, "export", export_trajectories, "Take a job's trajectories out.", ExportOut
    ),
    "training.list_jobs": Method(ListParams, "view", list_jobs, "List jobs.", ListedJobsOut),
}
