"""A grader's own error rate: the scorers of a job, and a sample that a person judges by keys."""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Final
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from agentcore_site.console.pages import allowed, page, post_page, query_params
from agentcore_site.lib.errors import Conflict
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from training.grader_models import GraderSample
from training.grading.graded import graded_set
from training.grading.selectors import answer_to_judge, errors_of, sample_get, samples_visible, scorers_of
from training.grading.services import answer_judge, sample_draw

KEYS: Final = (("right", "Right", "r"), ("wrong", "Wrong", "w"), ("skip", "Skip", "s"))


@page
def grader(request: HttpRequest, actor: Actor, job_id: UUID) -> HttpResponse:
    """The scorers of a job, each with its sample and error rates."""
    graded = graded_set(actor, job_id)
    require(actor, "data.view", graded.run.organization_id)
    errors = {one.scorer: one for one in errors_of(graded.run, graded.data_digest)}
    samples = {one.scorer: one for one in samples_visible(actor).filter(job_id=job_id)}
    rows = [
        {"scorer": name, "n": n, "errors": errors.get(name), "sample": _progress(samples.get(name))}
        for name, n in scorers_of(graded)
    ]
    may = allowed(actor, graded.run.organization_id)
    return render(request, "grading/grader.html", {"graded": graded, "run": graded.run, "rows": rows, "may": may})


@post_page
def draw(request: HttpRequest, actor: Actor, job_id: UUID) -> HttpResponse:
    """A sample of a scorer's rollouts, or the one that is there."""
    sample = sample_draw(actor, graded_set(actor, job_id), request.POST.get("scorer", ""))
    return redirect("training:grader_sample", sample_id=sample.pk)


@page
def rates(request: HttpRequest, actor: Actor, job_id: UUID) -> HttpResponse:
    """The error rates beside the success rates of a job: a part of its page."""
    graded = graded_set(actor, job_id)
    return render(request, "grading/_rates.html", rates_context(graded.run, job_id, graded.data_digest, actor))


def rates_context(run: Any, job_id: UUID, digest: str, actor: Actor) -> dict[str, Any]:
    may = allowed(actor, run.organization_id)
    return {
        "grader_errors": errors_of(run, digest),
        "graded_job": job_id,
        "may_judge": {"data.view", "annotation.edit"} <= may,
    }


@page
def sample(request: HttpRequest, actor: Actor, sample_id: UUID) -> HttpResponse:
    """The next open answer of a sample, or what came of it. ``?skipped=yes``: those that were skipped, too."""
    found = sample_get(actor, sample_id)
    [skipped] = query_params(request, "skipped")
    judgements = list(found.judgements.all())
    left = [one for one in judgements if one.right is None and (skipped == "yes" or not one.skipped)]
    left.sort(key=lambda one: (one.skipped, one.judged_at or found.created_at))  # a skipped one comes last
    touched = [(one.judged_at, one) for one in judgements if one.judged_at]
    last = max(touched, key=itemgetter(0))[1] if touched else None
    context = {
        "sample": found,
        "run": found.run,
        "size": len(judgements),
        "progress": _progress(found),
        "last": last,
        "may": allowed(actor, found.organization_id),
        "keys": KEYS,
        "skipped": skipped,
    }
    if left:
        context |= {"shown": _shown(found, left[0]), "place": left[0].place, "judgement": left[0]}
    else:
        judged = [one for one in judgements if one.right is not None]
        context |= {
            "errors": [one for one in errors_of(found.run, found.data_digest) if one.scorer == found.scorer],
            "apart": [one for one in judged if one.right != one.graded],
        }
    return render(request, "grading/sample.html", context)


@post_page
def judge(request: HttpRequest, actor: Actor, sample_id: UUID) -> HttpResponse:
    found = sample_get(actor, sample_id)
    place = request.POST.get("place", "")
    answer_judge(
        actor,
        found,
        place=int(place) if place.isascii() and place.isdigit() and len(place) < 6 else -1,
        digest=request.POST.get("digest", ""),
        said=request.POST.get("said", ""),
    )
    response = redirect("training:grader_sample", sample_id=found.pk)
    if request.POST.get("skipped") == "yes":
        response["Location"] += "?skipped=yes"
    return response


def _progress(sample: GraderSample | None) -> dict[str, Any] | None:
    if sample is None:
        return None
    rows = sample.judgements.all()
    judged, size = sum(one.right is not None for one in rows), len(rows)
    skipped = sum(one.right is None and one.skipped for one in rows)
    return {"sample": sample, "judged": judged, "skipped": skipped, "size": size, "open": size - judged - skipped}


def _shown(sample: GraderSample, judgement: Any) -> Any:
    """The answer, or the reason why it can't be judged any more."""
    try:
        return answer_to_judge(sample, judgement)
    except Conflict as error:
        return {"fault": error.message}
