"""The tabs under the head of a job's page. Only the one that is open is read."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final

from django.http import HttpRequest

from agentcore_site.jobs.models import JobEvent
from agentcore_site.tenancy.actors import Actor
from experiences.lessons.job_prompt import prompt_frozen, with_pack
from experiences.models import GroupRecord
from experiences.trajectories.presenters.lists import trajectory_listing
from training.config.form import changes, sections
from training.config.presets import PRESETS
from training.models import PolicyCheckpoint, TrainingRun
from training.presenters import panel
from training.presenters.epochs import learned_tab
from training.presenters.failures import failures_tab
from training.selectors.run_lessons import learns_context
from training.selectors.runs import GroupRow, group_grid

CELLS = 600  # of the groups' grid on one page
ROWS = 60
EVENTS = 200


@dataclass(frozen=True)
class Tab:
    key: str
    title: str


TABS = (
    Tab("charts", "Curves"),
    Tab("groups", "Groups"),
    Tab("trajectories", "Trajectories"),
    Tab("failures", "Failures"),
    Tab("checkpoints", "Checkpoints"),
    Tab("evaluation", "Evaluation"),
    Tab("learned", "Lessons"),
    Tab("cost", "Cost"),
    Tab("settings", "Settings"),
    Tab("events", "Events"),
)


RAW: Final = ("groups", "trajectories", "failures")


def tabs_of(run: TrainingRun, may: Collection[str]) -> list[Tab]:
    """The tabs of a run, for users with these actions. An agent that chooses actions has no context and so no lessons;
    raw rows are for roles that work with them."""
    hidden = {*([] if learns_context(run) else ["learned"]), *([] if "data.view" in may else RAW)}
    return [tab for tab in TABS if tab.key not in hidden]


def tab_context(request: HttpRequest, actor: Actor, run: TrainingRun, tab: str) -> dict[str, Any]:
    return READ[tab](request, actor, run)


# -- groups ------------------------------------------------------------------------------------------------------------


def groups(request: HttpRequest, actor: Actor, run: TrainingRun) -> dict[str, Any]:
    """A window of iterations: rows are queries, a row's cells its groups in the order of iterations.

    A batch draws a few of the queries, so most (query, iteration) places are empty; cells are therefore at the
    query's first, second, third … visit, and carry their iteration's number.
    """
    window = max(1, CELLS // max(run.configuration.batch_size, 1))
    last = _whole(request, "upto", run.iteration) or run.iteration
    last = max(1, min(last, run.iteration))
    first = max(1, last - window + 1)
    sort = request.GET.get("order", "query")
    rows = [_grid_row(row) for row in group_grid(run, first=first, last=last)] if run.iteration else []
    rows.sort(key=ORDERS.get(sort, ORDERS["query"])[1])
    rewards = [reward for row in rows for group in row["groups"] for reward in group.rewards if reward is not None]
    return {
        "grid": rows[:ROWS],
        "n_rows": len(rows),
        "low": min(rewards, default=0.0),
        "high": max(rewards, default=1.0),
        "visits": range(1, max((len(row["groups"]) for row in rows[:ROWS]), default=0) + 1),
        "first": first,
        "last": last,
        "older": first - 1 if first > 1 else None,
        "newer": min(run.iteration, last + window) if last < run.iteration else None,
        "orders": [(key, title) for key, (title, _) in ORDERS.items()],
        "order": sort if sort in ORDERS else "query",
        "n_signal": sum(group.has_signal for row in rows for group in row["groups"]),
        "n_groups": sum(len(row["groups"]) for row in rows),
    }


def _grid_row(row: GroupRow) -> dict[str, Any]:
    found: list[GroupRecord] = [row["cells"][iteration] for iteration in sorted(row["cells"])]
    rates = [sum(group.success) / len(group.success) if group.success else 0.0 for group in found]
    return {
        "scenario": row["scenario"],
        "query": row["query"],
        "groups": found,
        "last_rate": rates[-1],
        "change": rates[-1] - rates[0],
    }


ORDERS: dict[str, tuple[str, Callable[[dict[str, Any]], Any]]] = {
    "query": ("by query", lambda row: row["scenario"]),
    "hardest": ("hardest first", lambda row: (row["last_rate"], row["scenario"])),
    "gained": ("most gained first", lambda row: (-row["change"], row["scenario"])),
    "lost": ("most lost first", lambda row: (row["change"], row["scenario"])),
}


# -- the others --------------------------------------------------------------------------------------------------------


def charts(request: HttpRequest, actor: Actor, run: TrainingRun) -> dict[str, Any]:
    return panel.curves(learns_context=learns_context(run))


def trajectories(request: HttpRequest, actor: Actor, run: TrainingRun) -> dict[str, Any]:
    return trajectory_listing(request, actor, job_id=run.pk)


def checkpoints(request: HttpRequest, actor: Actor, run: TrainingRun) -> dict[str, Any]:
    rows = PolicyCheckpoint.objects.visible_to(actor).filter(run=run).select_related("run", "agent").defer("data")
    return {"checkpoints": list(rows.order_by("-iteration")[:100]), "best_id": run.best_checkpoint_id}


def elsewhere(request: HttpRequest, actor: Actor, run: TrainingRun) -> dict[str, Any]:
    """Empty context: the page of another app fills the tab."""
    return {}


def learned(request: HttpRequest, actor: Actor, run: TrainingRun) -> dict[str, Any]:
    return learned_tab(actor, run)


def settings(request: HttpRequest, actor: Actor, run: TrainingRun) -> dict[str, Any]:
    """Differences from the preset, then all settings, and the stored prompt of the run."""
    config = run.configuration.as_dict()
    return {
        "preset": PRESETS.get(run.preset),
        "prompt": _prompt(run) if learns_context(run) else None,
        "changed": changes(config, run.policy_kind),
        "sections": sections(config, run.policy_kind),
    }


def _prompt(run: TrainingRun) -> dict[str, Any] | None:
    """By which prompt the run acts, and whether its text was changed since."""
    chosen: dict[str, Any] | None = run.estimate.get("prompt")
    if chosen is None or run.prompt is None:
        return chosen
    now = prompt_frozen(with_pack(run.agent, run.prompt_pack))
    return chosen | {"changed": now["stamp"] != run.prompt["stamp"]}


def events(request: HttpRequest, actor: Actor, run: TrainingRun) -> dict[str, Any]:
    """The latest events, newest first; those of iterations only when asked for."""
    rows = JobEvent.objects.filter(job=run.job)
    everything = request.GET.get("events") == "all"
    if not everything:
        rows = rows.exclude(type="iteration")
    return {"events": list(rows.order_by("-seq")[:EVENTS]), "all_events": everything, "events_limit": EVENTS}


def _whole(request: HttpRequest, name: str, default: int) -> int:
    try:
        return int(request.GET.get(name, default))
    except ValueError:
        return default


READ: dict[str, Callable[[HttpRequest, Actor, TrainingRun], dict[str, Any]]] = {
    "charts": charts,
    "groups": groups,
    "trajectories": trajectories,
    "failures": failures_tab,
    "checkpoints": checkpoints,
    "evaluation": elsewhere,
    "learned": learned,
    "cost": elsewhere,
    "settings": settings,
    "events": events,
}
