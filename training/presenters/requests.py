"""API requests equivalent to actions of a page, for users to copy into a program."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from agentcore_site.console.snippets import ApiCall
from training.config.form import nested, value_at
from training.forms import LaunchForm, typed_of
from training.models import TrainingRun
from training.presenters.shapes import PRIORITY_NAMES


def launch_call(form: LaunchForm, config: dict[str, Any]) -> ApiCall | None:
    """The launch of a form whose plan is ``config``; None while it lacks an agent or its data."""
    agent, dataset = form.agent, form.dataset
    if agent is None or (form.source != "environment" and dataset is None):
        return None
    body: dict[str, Any] = {"agent": agent.slug}
    if dataset is not None:
        body["dataset_id"] = str(dataset.pk)
    else:
        body["environment"] = agent.environment
    body |= {"preset": form.preset, "config": _settings(form.typed_settings, config)}
    moment = form.not_before
    body |= _how(form.priority, moment.isoformat() if moment else None, form.text("title"))
    return _started(body)


def again_call(run: TrainingRun) -> ApiCall:
    """Another job like this one."""
    body: dict[str, Any] = {"agent": run.agent.slug}
    if run.dataset_id:
        body["dataset_id"] = str(run.dataset_id)
    else:
        body |= {"environment": run.environment, "environment_options": run.environment_options}
    body |= {"preset": run.preset, "config": _settings(typed_of(run), run.configuration.as_dict())}
    return _started(body | _how(run.job.priority, None, run.job.title))


def watch_call(run: TrainingRun) -> ApiCall:
    job_id = str(run.pk)
    return ApiCall("GET", f"/api/v1/training-jobs/{quote(job_id)}", rpc=("training.get_status", {"job_id": job_id}))


def _settings(names: Any, config: dict[str, Any]) -> dict[str, Any]:
    return nested({name: value_at(config, name) for name in names})


def _how(priority: int, not_before: str | None, title: str) -> dict[str, Any]:
    named = {"priority": PRIORITY_NAMES[priority], "not_before": not_before, "title": title}
    usual = {"priority": "normal", "not_before": None, "title": ""}
    return {name: value for name, value in named.items() if value != usual[name]}


def _started(body: dict[str, Any]) -> ApiCall:
    params = {"agent_id" if name == "agent" else name: value for name, value in body.items()}
    return ApiCall("POST", "/api/v1/training-jobs", body, rpc=("training.start_grpo", params))
