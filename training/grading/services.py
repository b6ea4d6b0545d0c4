"""Writes of samples: one is drawn, and a person judges its answers."""

from __future__ import annotations

import random
import secrets
from typing import Final

from django.db import IntegrityError, transaction
from django.db.models.fields.json import KeyTextTransform
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from experiences.trajectories.archive.reading import job_rows
from training.grader_models import GraderJudgement, GraderSample
from training.grading.graded import GradedSet, graded_digest, scorer_named
from training.grading.selectors import answer_to_judge, graded_rows

SAMPLE: Final = 50
SAYINGS: Final = {"right": True, "wrong": False, "skip": None}


def sample_draw(actor: Actor, graded: GradedSet, scorer: str) -> GraderSample:
    """A random sample of at most 50 rollouts of a scorer; the one that is there, so that it can be resumed.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: the scorer graded nothing in this job.
        Conflict: the job still runs: its rollouts are not all there.
    """
    organization_id = graded.run.organization_id
    require(actor, "data.view", organization_id)
    require(actor, "annotation.edit", organization_id)
    known = GraderSample.objects.filter(job_id=graded.job_id, scorer=scorer).first()
    if known is not None:
        return known
    if graded.run.job.active:
        raise Conflict("The job still runs. Draw the sample when it has ended, so that all rollouts can be in it.")
    seed = secrets.randbits(48)
    with job_rows(None, graded.job_id):
        rows = graded_rows(graded)
        named = rows.annotate(named=KeyTextTransform("scorer", "evidence")).values_list("id", "named")
        ids = [one for one, name in named if scorer_named({"scorer": name}, graded.run) == scorer]
        if not ids:
            raise Invalid(f"No rollout of this job was graded by {scorer[:60]!r}.")
        chosen = random.Random(seed).sample(ids, min(SAMPLE, len(ids)))  # noqa: S311
        by_id = {row.id: row for row in rows.filter(id__in=chosen).defer("steps")}
        digests = [(by_id[one].id, graded_digest(by_id[one], scorer), by_id[one].success) for one in chosen]
    try:
        with transaction.atomic():
            sample = GraderSample.objects.create(
                organization_id=organization_id,
                job_id=graded.job_id,
                run=graded.run,
                scorer=scorer,
                data_digest=graded.data_digest,
                seed=seed,
                population=len(ids),
                created_by=Actor.of(actor).user,
            )
            GraderJudgement.objects.bulk_create(
                GraderJudgement(sample=sample, place=place, trajectory_id=one, digest=digest, graded=success)
                for place, (one, digest, success) in enumerate(digests)
            )
            record(actor, "grader.sampled", sample, after={"scorer": scorer, "size": len(digests), "seed": seed})
    except IntegrityError:  # another person drew it meanwhile
        return GraderSample.objects.get(job_id=graded.job_id, scorer=scorer)
    return sample


@transaction.atomic
def answer_judge(actor: Actor, sample: GraderSample, *, place: int, digest: str, said: str) -> GraderJudgement:
    """Says that an answer is "right" or "wrong", once: its grader's verdict is shown then. "skip" leaves it open.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: there is no such place or saying.
        Conflict: it was judged, or is no longer what was shown.
    """
    require(actor, "annotation.edit", sample.organization_id)
    if said not in SAYINGS:
        raise Invalid(f"Say one of {', '.join(SAYINGS)}.")
    found = sample.judgements.select_for_update(no_key=True).filter(place=place).first()
    if found is None:
        raise Invalid(f"The sample has no answer {place + 1}.")
    if found.right is not None:
        raise Conflict("This answer was judged. The next open one is shown.")
    if digest != found.digest:
        raise Conflict("This is another answer than was shown. Judge the one that is shown now.")
    if said == "skip":
        found.skipped = True
    else:
        answer_to_judge(sample, found)  # it must still be what was graded
        found.right, found.skipped = SAYINGS[said], False
    found.judged_by, found.judged_at = Actor.of(actor).user, timezone.now()
    found.save()
    record(actor, "grader.judged", sample, after={"place": place + 1, "said": said})
    return found
