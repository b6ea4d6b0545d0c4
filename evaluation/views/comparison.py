"""Console pages that compare training jobs, and actions on several jobs at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from agentcore_site.console.bulk import BulkAct, bulk, chosen_rows
from agentcore_site.console.pages import first_of, page, post_page, query_params
from agentcore_site.jobs.services import job_pause, job_resume
from agentcore_site.lib.errors import Invalid
from agentcore_site.tenancy.actors import Actor
from evaluation.comparison import compare_on_held_out
from evaluation.presenters.landscape import MOST_DRAWN, drawn
from training.grading.error_rates import GraderErrors
from training.grading.selectors import errors_of_runs
from training.models import TrainingRun
from training.presenters.comparisons import MOST_JOBS, job_figures, job_settings
from training.presenters.panel import AXES
from training.selectors.runs import run_verdict, runs_visible, searched

# The curves that the page can overlay: key (static/js/compare.js) and title.
CURVES: Final = (
    ("selection", "Success on selection queries"),
    ("success_rate", "Success in training, mean of 10"),
    ("reward_mean", "Reward in training, mean of 10"),
    ("entropy", "Entropy of the policy"),
    ("approx_kl", "KL of an update"),
    ("frac_reward_zero_std", "Groups without signal"),
    ("steps_mean", "Steps of a rollout"),
)
OFFERED: Final = 25  # other jobs to add


@dataclass(frozen=True)
class ComparedJob:
    """A job of the comparison, with the URLs of the same comparison without it, and with it as the reference. ``name``:
    its title, with the end of its id if another job has the same title."""

    run: TrainingRun
    name: str
    verdict: str
    grader_errors: Sequence[GraderErrors]
    without: str
    first: str


@page
def compare(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Two to six jobs: figures, overlaid curves, the paired difference, differing settings. The URL holds the whole
    state."""
    picked = list(dict.fromkeys(request.GET.getlist("pick")))
    if len(picked) > MOST_JOBS:
        raise Invalid(f"At most {MOST_JOBS} jobs fit in one comparison; {len(picked)} were picked.")
    runs = _picked(actor, picked)
    offered = _offered(actor, runs) if len(runs) < MOST_JOBS else []
    context: dict[str, Any] = {"runs": runs, "offered": offered, "most": MOST_JOBS}
    if len(runs) >= 2:
        keep = {name: value for name in ("metric", "axis") if (value := request.GET.get(name))}
        context |= {
            "compared": (compared := _compared(runs, keep)),
            "names": {one.run.pk: one.name for one in compared},
            "figures": job_figures(runs),
            "settings": job_settings(runs),
            "held_out": compare_on_held_out(runs),
            "curves": CURVES,
            "axes": AXES,
        }
    return render(request, "evaluation/compare_jobs.html", context)


@page
def landscape(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Many jobs as parallel coordinates: their settings and their results."""
    query, agent = query_params(request, "q", "agent")
    rows = runs_visible(actor).filter(iteration__gt=0).order_by("-job__created_at")
    rows = searched(rows, query) if query else rows
    runs = first_of(rows.filter(agent__slug=agent) if agent else rows, MOST_DRAWN + 1)
    context = {"q": query, "agent": agent, "most": MOST_DRAWN, "more": len(runs) > MOST_DRAWN}
    return render(request, "evaluation/landscape.html", context | drawn(runs[:MOST_DRAWN]))


@post_page
def chosen(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The action on the jobs that were chosen in the list: compare, pause or resume."""
    picked, act = list(dict.fromkeys(request.POST.getlist("pick"))), request.POST.get("act", "")
    if act == "compare":
        return redirect(f"{reverse('evaluation:compare')}?{urlencode([('pick', one) for one in picked])}")
    return bulk(
        request,
        actor,
        _ACTS,
        nouns=("job", "jobs"),
        found=lambda ids: [run.job for run in _picked(actor, ids)],
        page=reverse("training:jobs"),
    )


_ACTS: Final = {
    "pause": BulkAct("asked to pause", job_pause, undo="resume"),
    "resume": BulkAct("resumed", job_resume, undo="pause"),
}


def _picked(actor: Actor, picked: Sequence[str]) -> list[TrainingRun]:
    return chosen_rows(runs_visible(actor), picked, "training job")


def _offered(actor: Actor, runs: Sequence[TrainingRun]) -> list[TrainingRun]:
    """The newest jobs to add, those of the same agents first."""
    rows = runs_visible(actor).filter(iteration__gt=0).exclude(pk__in=[run.pk for run in runs])
    agents: set[UUID] = {run.agent_id for run in runs}
    newest = list(rows.order_by("-job__created_at")[: 4 * OFFERED])
    return sorted(newest, key=lambda run: run.agent_id not in agents)[:OFFERED]


def _compared(runs: Sequence[TrainingRun], keep: dict[str, str]) -> list[ComparedJob]:
    errors = errors_of_runs((run, "") for run in runs)
    return [_compared_job(run, runs, keep, rates) for run, rates in zip(runs, errors, strict=True)]


def _compared_job(
    run: TrainingRun, runs: Sequence[TrainingRun], keep: dict[str, str], rates: Sequence[GraderErrors]
) -> ComparedJob:
    others = [one.pk for one in runs if one.pk != run.pk]

    def address(ids: Sequence[UUID]) -> str:
        return f"?{urlencode([*(('pick', str(one)) for one in ids), *keep.items()])}"

    alike = sum(one.job.title == run.job.title for one in runs) > 1
    name = f"{run.job.title} ({str(run.pk)[-6:]})" if alike else run.job.title
    return ComparedJob(run, name, run_verdict(run), rates, address(others), address([run.pk, *others]))
