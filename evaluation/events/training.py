"""Training requests: run here where a learner of ours can, else handed to a service over NATS and mirrored as a job."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from functools import partial
from typing import Any, Final
from uuid import uuid4

import orjson
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.jobs import lifecycle, wakeup
from agentcore_site.jobs.events import event_add
from agentcore_site.jobs.models import ENDED, Job, Priority
from agentcore_site.jobs.services import job_cancel
from agentcore_site.lib.errors import Conflict, Invalid, Missing
from agentcore_site.lib.money import micros
from agentcore_site.lib.storable import unstorable
from agentcore_site.lib.texts import uuid_of
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.permissions import current_organization, require
from budgets.ledger.accounts import DEFAULT_JOB_LIMIT_MICROS
from budgets.ledger.values import MOST_MICROS
from budgets.selectors import budget_preflight
from budgets.services import budget_open_job
from evaluation.events.models import PUBLISHED_PURPOSES, RequestMode, TrainingRequest
from evaluation.events.payloads.timestamps import read
from evaluation.events.payloads.trajectory import OUTSIDE
from evaluation.events.request_settings import HERE, held_out_share_of, settings_of, unused_here
from evaluation.events.schemas import fault_of
from evaluation.events.spending import cost_book
from evaluation.events.subjects import REQUEST
from experiences.agents.endpoint_config import uses_model_server
from experiences.models import Agent, DatasetRow, TrajectoryRecord
from experiences.privacy import redact_value
from experiences.rollouts.options import POOL
from training.data.pools import POOL_LIMIT, pool_sizes
from training.learners import learner_of
from training.models import TrainingRun
from training.services.runs import run_start
from training.splits import HELD_OUT_SHARE, split_counts

ELSEWHERE: Final = "external_training"  # the kind of a mirroring job
DROPPED: Final = "request.unused"  # the type of the event that names them
PRIORITIES: Final = {"high": Priority.HIGH, "normal": Priority.NORMAL, "low": Priority.LOW}
MOST_TASKS: Final = 10_000


def training_request(
    actor: Actor, payload: Mapping[str, Any], *, digest: str = "", sequence: int | None = None
) -> TrainingRequest:
    """Takes a request of ``docs/events``. The same one twice is one. ``digest`` and ``sequence``: of its message.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: it is not as its schema says, or no job can be made of it.
        Conflict: another request has this id, or the agent has an active job.
        TooMany, Insufficient: as for ``run_start``.
    """
    payload = {"training_job_id": str(uuid4()), **payload}
    if (fault := unstorable(payload)) or (fault := fault_of(REQUEST, payload)):
        raise Invalid(fault, fields={"request": fault})
    organization = current_organization(actor)
    require(actor, "run.start", organization)
    digest = digest or hashlib.sha256(orjson.dumps(payload, option=orjson.OPT_SORT_KEYS)).hexdigest()
    name, config = payload["training_job_id"], payload["training_config"]
    known = TrainingRequest.objects.filter(organization=organization, training_job_id=name).first()
    if known is not None:
        if known.digest != digest:
            raise Conflict(f"Another request has the id {name}.")
        return known
    agent = _agent(organization, payload)
    selected = _selected(organization, agent, config.get("dataset") or {})
    with transaction.atomic():
        here = agent is not None and (config["algorithm"] in HERE or uses_model_server(agent))
        job = (_run_here if here else _hand_over)(actor, organization, agent, payload, selected)
        made = TrainingRequest.objects.create(
            organization=organization,
            training_job_id=name,
            digest=digest,
            sequence=sequence,
            algorithm=config["algorithm"],
            base_model=config["base_model"],
            mode=RequestMode.HERE if here else RequestMode.ELSEWHERE,
            job=job,
            agent=agent,
            request=redact_value(dict(payload)),
            selected=None if selected is None else selected.count(),
        )
        record(actor, "training.requested", made, after={"mode": made.mode, "algorithm": made.algorithm})
    return made


def training_request_cancel(actor: Actor, row: TrainingRequest) -> TrainingRequest:
    """Raises:
    Missing, Forbidden: the actor may not.
    Conflict: it has ended."""
    job_cancel(actor, row.job)
    row.job.refresh_from_db()
    return row


def training_requests_visible(actor: Actor) -> QuerySet[TrainingRequest]:
    return TrainingRequest.objects.visible_to(actor).select_related("job", "agent")


def training_request_get(actor: Actor, name: Any) -> TrainingRequest:
    """By the id that its requester gave it, or by its job's.

    Raises:
        Missing: there is none, or it belongs to another organisation.
    """
    mine = training_requests_visible(actor)
    found = mine.filter(training_job_id=str(name)).first()
    if found is None and (job_id := uuid_of(name)) is not None:
        found = mine.filter(job_id=job_id).first()
    if found is None:
        raise Missing(f"There is no training {str(name)[:60]!r}.")
    return found


@transaction.atomic
def status_take(organization: Organization, payload: Mapping[str, Any]) -> bool:
    """Notes what a service says of a training that was handed to it, and wakes the job that mirrors it. False: it says
    nothing new.

    Raises:
        Missing: no such training was handed over.
        ValueError: its moment is none.
    """
    rows = TrainingRequest.objects.select_for_update(of=("self",), no_key=True).select_related("job")
    row = rows.filter(
        organization=organization, training_job_id=payload["training_job_id"], mode=RequestMode.ELSEWHERE
    ).first()
    if row is None:
        raise Missing(f"No training {payload['training_job_id']} was handed over.")
    at = read(payload["timestamp"]) if "timestamp" in payload else timezone.now()
    late = row.reported_at is not None and at <= row.reported_at
    cost = (payload.get("resource_usage") or {}).get("cost_usd")
    if row.job.ended and cost is not None and micros(cost) > row.cost_micros:
        # The training was cancelled here, or ended for its budget: the service still spent money until it stopped.
        row.cost_micros = min(micros(cost), MOST_MICROS)
        row.save(update_fields=["cost_micros"])
        transaction.on_commit(partial(cost_book, row, ended=True))
    if late or row.report.get("status") in ENDED or row.job.ended:
        return False
    row.report, row.reported_at = redact_value(dict(payload)), at
    row.cost_micros = min(micros(cost), MOST_MICROS) if cost is not None else row.cost_micros
    row.save(update_fields=["report", "reported_at", "cost_micros"])
    Job.objects.filter(pk=row.job_id, lease_until=None).update(not_before=None, nudged_at=None)
    wakeup.wake_on_commit(row.job)
    return True


# -- what it is about --------------------------------------------------------------------------------------------------


def _agent(organization: Organization, payload: Mapping[str, Any]) -> Agent | None:
    """The agent that the request names, or the only one that is or calls the model.

    Raises:
        Invalid: it names one that is not there.
    """
    mine = Agent.objects.filter(organization=organization, archived_at=None)
    if slug := (payload.get("metadata") or {}).get("agent_id"):
        found = mine.filter(slug=slug).first()
        if found is None:
            raise Invalid(f"There is no agent {slug}.", fields={"metadata": f"There is no agent {slug}."})
        return found
    model = payload["training_config"]["base_model"]
    called = Q(model=model) | Q(slug=model) | Q(model="", endpoint__model=model)
    several = list(mine.filter(called)[:2])
    return several[0] if len(several) == 1 else None


def _selected(
    organization: Organization, agent: Agent | None, dataset: Mapping[str, Any]
) -> QuerySet[TrajectoryRecord] | None:
    """The stored trajectories that the dataset's filter lets through, newest first; None without a filter.

    Raises:
        Invalid: a moment is none.
    """
    asked = dataset.get("filter")
    if asked is None and "sample_size" not in dataset:
        return None
    asked = asked or {}
    rows = TrajectoryRecord.objects.filter(organization_id=organization.pk, purpose__in=PUBLISHED_PURPOSES)
    if agent is not None:
        rows = rows.filter(agent_id=agent.pk)
    if asked.get("min_reward") is not None:
        rows = rows.filter(reward__gte=asked["min_reward"])
    if asked.get("max_trajectory_length") is not None:
        rows = rows.filter(n_steps__lte=asked["max_trajectory_length"])
    try:
        for side, lookup in (("start", "created_at__gte"), ("end", "created_at__lte")):
            if moment := (asked.get("date_range") or {}).get(side):
                rows = rows.filter(**{lookup: read(moment)})
    except ValueError as error:
        raise Invalid(f"date_range: {error}", fields={"date_range": str(error)}) from error
    if domains := asked.get("task_domains"):
        # Of ours by the data of their job, of others by what they said.
        jobs = TrainingRun.objects.filter(organization=organization, dataset__domain__in=domains).values("job_id")
        rows = rows.filter(Q(**{f"evidence__{OUTSIDE}__domain__in": domains}) | Q(job_id__in=jobs))
    if profiles := asked.get("exclude_subordinate_profiles"):
        rows = rows.exclude(**{f"evidence__{OUTSIDE}__subordinate_profile__in": profiles})
    size = dataset.get("sample_size")
    rows = rows.order_by("-created_at", "-id")
    return rows[:size] if size is not None else rows


# -- here --------------------------------------------------------------------------------------------------------------


def _run_here(
    actor: Actor,
    organization: Organization,
    agent: Agent | None,
    payload: Mapping[str, Any],
    selected: QuerySet[TrajectoryRecord] | None,
) -> Job:
    assert agent is not None
    config = payload["training_config"]
    preset, settings = settings_of(agent, config)
    share = held_out_share_of(payload)
    data: dict[str, Any] = {}
    if agent.environment == "dataset":
        data["rows"] = _tasks(agent, selected)
        settings |= {} if share is None else {"held_out_share": share}
        n_train = split_counts(len(data["rows"]), held_out_share=share or HELD_OUT_SHARE)[0]
    else:
        sizes = pool_sizes(agent.environment_options)
        n_train = sizes["train"]
        if share is not None:
            held_out = round(share / (1 - share) * (n_train + sizes["selection"]))
            pool = sizes | {"held_out": min(max(1, held_out), POOL_LIMIT)}
            data["environment_options"] = {**agent.environment_options, POOL: pool}
    epochs = (config.get("hyperparameters") or {}).get("epochs")
    if uses_model_server(agent) and epochs is not None:
        batch = settings.get("batch_size", learner_of(agent.runtime, "weights").defaults["batch_size"])
        settings["n_iterations"] = math.ceil(epochs * n_train / batch)
    if (cap := (payload.get("metadata") or {}).get("max_cost_usd")) is not None:
        settings["max_budget_usd"] = cap
    run = run_start(
        actor,
        agent=agent,
        config=settings,
        preset=preset,
        priority=PRIORITIES[payload.get("priority", "normal")],
        title=f"{config['algorithm']} of {agent.name}, requested"[:200],
        **data,
    )
    if unused := unused_here(agent, payload):
        event_add(run.job, DROPPED, level="warning", message=f"Asked for and not used here: {', '.join(unused)}.")
    return run.job


def _tasks(agent: Agent, selected: QuerySet[TrajectoryRecord] | None) -> list[dict[str, Any]]:
    """The tasks of the selected trajectories whose outcome is known, each once.

    Raises:
        Invalid: there is none.
    """
    queries = None if selected is None else set(selected.values_list("query", flat=True))
    rows = DatasetRow.objects.filter(dataset__organization_id=agent.organization_id).order_by("-dataset__created_at")
    if queries is not None:
        rows = rows.filter(query__in=queries)
    found: dict[str, dict[str, Any]] = {}
    for row in rows.values("query", "expected_outcome", "metadata")[:MOST_TASKS]:
        found.setdefault(row["query"], row)
    if not found:
        message = f"{agent.name} trains on datasets, and none has a task of the selected trajectories."
        raise Invalid(message, fields={"dataset": message})
    return list(found.values())


# -- elsewhere ---------------------------------------------------------------------------------------------------------


def _hand_over(
    actor: Actor,
    organization: Organization,
    agent: Agent | None,
    payload: Mapping[str, Any],
    selected: QuerySet[TrajectoryRecord] | None,
) -> Job:
    """Its job hands it over, once its budget is held (``events.job_kind``)."""
    config, cap = payload["training_config"], (payload.get("metadata") or {}).get("max_cost_usd")
    limit_micros = DEFAULT_JOB_LIMIT_MICROS if cap is None else min(micros(cap), MOST_MICROS)
    agent_id = None if agent is None else agent.pk
    budget_preflight(
        organization_id=organization.pk, wanted_micros=limit_micros, agent_id=agent_id, job_limit_micros=limit_micros
    )
    job = lifecycle.submit(
        actor,
        kind=ELSEWHERE,
        organization=organization,
        title=f"{config['algorithm']} of {config['base_model']}, elsewhere"[:200],
        priority=PRIORITIES[payload.get("priority", "normal")],
    )
    budget_open_job(actor, job, agent_id=agent_id, limit_micros=limit_micros)
    return job


def acting_for(user: Any, organization: Organization) -> Actor:
    """A person in whose name a program publishes: with no more rights than they have now."""
    return Actor(user, organization_id=organization.pk, interface="events")
