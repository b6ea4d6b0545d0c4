"""Going on from a finished run: the same agent, data and settings, with its lessons and its evidence."""

from __future__ import annotations

from typing import Any

from agentcore_site.lib.errors import Conflict
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from training.config.form import changes, nested, value_at
from training.models import TrainingRun
from training.selectors.going_on import fault
from training.services.launch_defaults import launch_defaults
from training.services.runs import run_start


def run_go_on(actor: Actor, run: TrainingRun, *, max_budget_usd: float, title: str = "") -> TrainingRun:
    """Queues a job that goes on from a completed one. It may spend ``max_budget_usd`` (US dollars), and has as many
    iterations as that is expected to pay for.

    Raises:
        Conflict: the job is not completed, or learns no lessons; or as ``run_start`` raises.
        Forbidden, Invalid, TooMany, Insufficient: as ``run_start`` raises.
    """
    require(actor, "run.start", run.organization_id)
    if reason := fault(run):
        raise Conflict(reason)
    from_rows = run.dataset is not None
    return run_start(
        actor,
        agent=run.agent,
        dataset=run.dataset,
        environment=None if from_rows else run.environment,
        environment_options=run.environment_options,
        config=_settings(run) | {"max_budget_usd": max_budget_usd},
        preset=run.preset,
        priority=run.job.priority,
        title=title or f"{run.job.title[:180]}, further",
        after=run,
    )


def _settings(run: TrainingRun) -> dict[str, Any]:
    """The settings of a run that a launch of now would not take by itself, less the switch that would forget it."""
    config = run.configuration.as_dict()
    names = {one.name for one, _, _ in changes(config, run.policy_kind)} - {"context.reuse"}
    names |= {name for name, value in launch_defaults(run.agent, {}).items() if config[name] != value}
    return nested({name: value_at(config, name) for name in names})
