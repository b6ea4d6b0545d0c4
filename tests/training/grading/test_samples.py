"""A sample of a grader's verdicts: drawn at random, judged blind, resumed, and shown beside success rates."""

from __future__ import annotations

import random
from typing import Any

import pytest
from django.test import Client

from agentcore_site.jobs.services import share_create
from agentcore_site.lib.errors import Conflict, Forbidden, Invalid, Missing
from agentcore_site.tenancy.actors import Actor
from evaluation.services import evaluation_start
from experiences.models import Agent
from experiences.rollouts.types import TrajectoryGroup
from tests.support import rows
from tests.support.callers import Caller
from tests.support.pages import html
from tests.support.rows import group
from training.grading.graded import graded_set
from training.grading.selectors import errors_of, graded_rows, scorers_of
from training.grading.services import answer_judge, sample_draw
from training.models import GraderJudgement, GraderSample, TrainingRun

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(operator: Actor, agent: Agent, monkeypatch: pytest.MonkeyPatch) -> TrainingRun:
    """A run of 64 rollouts, all graded by one scorer; half of them passed."""

    def graded(iteration: int, scenario: int, rollouts: int) -> TrajectoryGroup:
        made = group(iteration, scenario, rollouts)
        for number, one in enumerate(made.trajectories):
            answer = f"{number} sheep of {iteration}"
            one.evidence = {"scorer": "exact", "expected": f"<i>{scenario}</i>", "answer": answer}
        return made

    monkeypatch.setattr(rows, "group", graded)
    return rows.lived_run(operator, agent, iterations=4, queries=4, rollouts=4)


@pytest.fixture
def sample(run: TrainingRun, operator: Actor) -> GraderSample:
    return sample_draw(operator, graded_set(operator, run.job_id), "exact")


def said(actor: Actor, sample: GraderSample, place: int, word: str) -> GraderJudgement:
    digest = sample.judgements.get(place=place).digest
    return answer_judge(actor, sample, place=place, digest=digest, said=word)


def client(person: Any) -> Client:
    found = Client()
    found.force_login(person)
    return found


def test_fifty_rollouts_are_drawn_by_the_stored_seed_and_drawn_once(
    sample: GraderSample, run: TrainingRun, operator: Actor
) -> None:
    graded = graded_set(operator, run.job_id)
    assert scorers_of(graded) == [("exact", sample.population)]
    ids = list(graded_rows(graded).values_list("id", flat=True))
    assert len(ids) == sample.population > 50
    again = random.Random(sample.seed).sample(ids, 50)
    assert list(sample.judgements.values_list("trajectory_id", flat=True)) == again
    assert sample_draw(operator, graded, "exact") == sample
    with pytest.raises(Invalid, match="graded by"):
        sample_draw(operator, graded, "judge")


def test_a_job_that_runs_has_no_sample_yet(operator: Actor, agent: Agent) -> None:
    made = rows.queued_run(operator, agent)
    with pytest.raises(Conflict, match="still runs"):
        sample_draw(operator, graded_set(operator, made.job_id), "exact")


def test_a_judgement_is_said_once_and_of_exactly_what_was_shown(sample: GraderSample, operator: Actor) -> None:
    with pytest.raises(Conflict, match="another answer than was shown"):
        answer_judge(operator, sample, place=0, digest="0" * 64, said="right")
    said(operator, sample, 0, "right")
    with pytest.raises(Conflict, match="was judged"):
        said(operator, sample, 0, "wrong")
    said(operator, sample, 1, "skip")
    assert said(operator, sample, 1, "wrong").right is False  # a skipped one stays open
    for place, word in ((99, "right"), (2, "maybe")):
        with pytest.raises(Invalid):
            answer_judge(operator, sample, place=place, digest="", said=word)
    GraderJudgement.objects.filter(sample=sample, place=3).update(digest="1" * 64)  # of other words
    with pytest.raises(Conflict, match="no longer what was graded"):
        said(operator, sample, 3, "right")


def test_rates_count_each_judged_answer_of_this_scorer_and_data(
    sample: GraderSample, run: TrainingRun, operator: Actor
) -> None:
    assert errors_of(run) == []
    GraderJudgement.objects.filter(sample=sample, place__lt=4).update(graded=True)
    for place, word in enumerate(("right", "wrong", "right", "skip")):
        said(operator, sample, place, word)
    [found] = errors_of(run)
    assert (found.scorer, found.judged, found.false_positives, found.false_negatives) == ("exact", 3, 1, 0)
    assert errors_of(run, "0" * 64) == []  # other data


def test_a_person_judges_by_keys_and_sees_the_verdict_only_then(sample: GraderSample, olivia: Any) -> None:
    desk, address = client(olivia), f"/grader/samples/{sample.pk}/"
    GraderJudgement.objects.filter(sample=sample).update(graded=False)
    page = html(desk.get(address))
    assert "Answer 1 of 50" in page and "sheep of" in page and "&lt;i&gt;" in page and 'data-key="r"' in page
    assert "the grader said" not in page
    form = {"place": "0", "digest": sample.judgements.get(place=0).digest, "said": "right"}
    answer = desk.post(f"{address}judge/", form)
    assert answer.status_code == 302
    page = html(desk.get(address))
    assert "you said right, the grader said wrong" in page and "Answer 2 of 50" in page
    assert desk.post(f"{address}judge/", form).status_code == 409
    assert desk.post(f"{address}judge/", {"place": "x"}).status_code == 400


def test_the_end_names_where_both_differ_and_offers_the_skipped(sample: GraderSample, olivia: Any) -> None:
    judgements = GraderJudgement.objects.filter(sample=sample)
    judgements.update(right=True, graded=True, judged_at=sample.created_at)
    judgements.filter(place=0).update(graded=False)
    judgements.filter(place=1).update(right=None, skipped=True)
    page = html(client(olivia).get(f"/grader/samples/{sample.pk}/"))
    assert "Judge the 1 skipped" in page and "right answers failed" in page
    assert "Answer 2 of 50" in html(client(olivia).get(f"/grader/samples/{sample.pk}/?skipped=yes"))


def test_success_rates_have_the_errors_of_their_grader_beside_them(
    sample: GraderSample, run: TrainingRun, operator: Actor, olivia: Any, stella: Any
) -> None:
    said(operator, sample, 0, "right")
    evaluation = evaluation_start(operator, run=run, samples=1)
    for job_id in (run.job_id, evaluation.job_id):
        words = html(client(stella).get(f"/grader/{job_id}/rates/"))
        assert "1 answer judged by people" in words and "Samples" not in words
        assert "Samples" in html(client(olivia).get(f"/grader/{job_id}/rates/"))
    assert f"/grader/{run.job_id}/rates/" in html(client(stella).get(f"/jobs/{run.job_id}/"))
    caller = Caller(olivia)
    for address in (f"training-jobs/{run.job_id}", f"evaluations/{evaluation.job_id}"):
        [found] = caller.get(address).json()["grader_errors"]
        assert (found["scorer"], found["judged"], found["false_positive_rate"]) == ("exact", 1, None)
    [found] = caller.result("training.get_status", {"job_id": str(run.job_id)})["grader_errors"]
    assert found["judged"] == 1


def test_lists_comparisons_and_shared_pages_have_them_too(
    sample: GraderSample, run: TrainingRun, operator: Actor, stella: Any, agent: Agent
) -> None:
    GraderJudgement.objects.filter(sample=sample).update(graded=True)
    for place, word in enumerate(("right", "wrong", "right", "right")):
        said(operator, sample, place, word)
    evaluation_start(operator, run=run, samples=1)
    other = rows.lived_run(operator, agent, iterations=1, queries=1, rollouts=2)
    other.environment_options = {"other": "data"}
    other.save()
    short = "100 % of wrong answers pass (21 % to 100 %), 0 % of right ones fail (0 % to 56 %)"
    desk = client(stella)
    for address in ("/jobs/", "/evaluations/"):
        assert html(desk.get(address)).count(short) == 1, address  # and not beside the other job
    page = html(desk.get(f"/jobs/compare/?pick={run.pk}&pick={other.pk}"))
    assert page.count(short) == page.count("not checked by a person") == 1
    token = share_create(operator, run.job)
    shown = html(Client().get(f"/shared/{token}/"))
    assert "1 of 1 wrong answers passed" in shown and "Samples" not in shown


def test_strangers_and_people_who_only_look_judge_nothing(
    sample: GraderSample, run: TrainingRun, charlie: Any, stella: Any
) -> None:
    assert client(charlie).get(f"/grader/samples/{sample.pk}/").status_code == 404
    assert client(charlie).get(f"/grader/{run.job_id}/").status_code == 404
    assert client(stella).get(f"/grader/samples/{sample.pk}/").status_code == 403
    with pytest.raises(Missing):
        graded_set(Actor(charlie), run.job_id)
    with pytest.raises(Forbidden):
        said(Actor(stella), sample, 0, "right")
