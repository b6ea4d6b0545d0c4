"""Annotations of trajectories: permissions, storage, filters, and the datasets made of them."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore_site.audit.models import AuditEvent
from agentcore_site.lib.errors import Conflict, Forbidden, Invalid, Missing
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.erasure import subject_erase
from experiences.agents.selectors import dataset_rows
from experiences.models import Agent, Annotation, Dataset, TrajectoryRecord
from experiences.models.trajectories import DatasetOrigin
from experiences.trajectories.annotations.services import annotation_create, annotation_delete, annotation_update
from experiences.trajectories.filters import trajectories_filtered
from experiences.trajectories.selectors import trajectories_visible
from experiences.trajectories.storage import trajectories_write
from tests.support.callers import Caller
from tests.support.rows import lived_run, owner_of, trajectory
from training.data.annotated import dataset_from_annotated
from training.models import TrainingRun

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(operator: Actor, agent: Agent) -> TrainingRun:
    return lived_run(operator, agent)


@pytest.fixture
def rows(run: TrainingRun) -> list[TrajectoryRecord]:
    """Of query 0: the first two rollouts succeeded, the others failed."""
    result = TrajectoryRecord.objects.filter(job_id=run.pk, iteration=0)
    return list(result.order_by("scenario", "rollout"))


def passing(actor: Actor, **filters: Any) -> set[Any]:
    return {row.pk for row in trajectories_filtered(trajectories_visible(actor), actor, filters)}


def test_a_note_belongs_to_a_step_or_to_the_whole_and_is_in_the_audit_log(
    operator: Actor, rows: list[TrajectoryRecord]
) -> None:
    one = annotation_create(operator, rows[0], step=2, label="wrong tool", score=0.5, comment="Ask the calendar.")
    assert (one.step, one.label, one.score, one.by) == (2, "wrong tool", 0.5, "olivia")
    assert (one.month, one.trajectory_id, one.agent_id) == (rows[0].month, rows[0].pk, rows[0].agent_id)
    line = AuditEvent.objects.get(action="annotation.created")
    assert line.after["label"] == "wrong tool" and "calendar" not in str(line.after)
    annotation_update(operator, one, label="", score=None)
    one.refresh_from_db()
    assert (one.label, one.score, one.comment) == ("", None, "Ask the calendar.")
    annotation_delete(operator, one)
    assert not Annotation.objects.exists()
    assert AuditEvent.objects.filter(action__startswith="annotation.").count() == 3


def test_annotation_keeps_no_personal_data(operator: Actor, rows: list[TrajectoryRecord]) -> None:
    one = annotation_create(operator, rows[0], comment="Asked by jane.doe@example.org.")
    assert "example.org" not in one.comment


@pytest.mark.parametrize(
    "said",
    [{}, {"label": "  "}, {"label": "x" * 41}, {"score": float("nan")}, {"score": 1e9}, {"comment": "a\x00b"}],
)
def test_an_empty_or_unstorable_note_is_refused(
    said: dict[str, Any], operator: Actor, rows: list[TrajectoryRecord]
) -> None:
    with pytest.raises(Invalid):
        annotation_create(operator, rows[0], **said)


def test_there_is_no_note_on_a_step_that_there_is_not(operator: Actor, rows: list[TrajectoryRecord]) -> None:
    with pytest.raises(Invalid) as refused:
        annotation_create(operator, rows[0], step=3, label="x")
    assert "step" in refused.value.fields


def test_only_its_author_changes_an_annotation_and_a_stranger_learns_nothing(
    operator: Actor, dan: Any, stella: Any, charlie: Any, rows: list[TrajectoryRecord]
) -> None:
    one = annotation_create(operator, rows[0], label="good")
    for person, error in ((dan, Forbidden), (stella, Forbidden), (charlie, Missing)):
        with pytest.raises(error):
            annotation_update(Actor(person), one, label="bad")
        with pytest.raises(error):
            annotation_delete(Actor(person), one)
    with pytest.raises(Missing):
        annotation_create(Actor(charlie), rows[0], label="mine")
    assert Caller(charlie).get("annotations").json()["results"] == []
    assert Caller(charlie).get(f"annotations/{one.pk}").status_code == 404


def test_trajectories_are_filtered_by_annotation_label_and_score(operator: Actor, rows: list[TrajectoryRecord]) -> None:
    annotation_create(operator, rows[0], label="good", score=0.9)
    annotation_create(operator, rows[1], label="bad", score=0.2)
    annotation_create(operator, rows[1], score=0.7, step=1)
    assert passing(operator, annotated="true") == {rows[0].pk, rows[1].pk}
    assert rows[0].pk not in passing(operator, annotated="false") and rows[2].pk in passing(operator, annotated="false")
    assert passing(operator, label="good") == {rows[0].pk}
    assert passing(operator, min_score="0.6") == {rows[0].pk, rows[1].pk}
    # Both ends are of one score: 0.2 and 0.7 are no score between them.
    assert passing(operator, min_score="0.3", max_score="0.6") == set()
    assert passing(operator, max_score="0.5") == {rows[1].pk}


def test_rest_writes_and_reads_them(olivia: Any, rows: list[TrajectoryRecord]) -> None:
    api = Caller(olivia)
    made = api.post("annotations", {"trajectory": str(rows[0].pk), "step": 1, "label": "slow", "score": 2})
    assert made.status_code == 201, made.content
    assert made.json()["by"] == "olivia"
    assert api.patch(f"annotations/{made.json()['id']}", {"comment": "Twice as slow."}).status_code == 200
    [one] = api.get("annotations", trajectory=str(rows[0].pk), label="slow").json()["results"]
    assert (one["step"], one["comment"]) == (1, "Twice as slow.")
    assert api.get("trajectories", label="slow").json()["results"][0]["trajectory_id"] == str(rows[0].pk)
    [shown] = api.get(f"trajectories/{rows[0].pk}").json()["annotations"]
    assert shown["label"] == "slow"
    assert api.post("annotations", {"trajectory": str(rows[0].pk)}).status_code == 400
    assert api.delete(f"annotations/{made.json()['id']}").status_code == 204


def test_an_erasure_takes_the_words_out_and_the_notes_of_what_is_erased(
    operator: Actor, adam: Any, rows: list[TrajectoryRecord]
) -> None:
    one = annotation_create(operator, rows[0], comment="Zanzibar Shipping asked.", label="good")
    other = annotation_create(operator, rows[1], label="bad")
    subject_erase(Actor(adam), ["Zanzibar Shipping"])
    one.refresh_from_db()
    assert one.comment == "[erased] asked."
    subject_erase(Actor(adam), ["question 0:"])
    assert not Annotation.objects.filter(pk__in=[one.pk, other.pk]).exists()


# -- datasets ----------------------------------------------------------------------------------------------------------


def test_annotated_trajectories_become_a_dataset_with_the_answers_of_people_and_of_good_ones(
    operator: Actor, rows: list[TrajectoryRecord], agent: Agent
) -> None:
    by_scenario = {row.scenario: row for row in rows if row.rollout == 3}  # failed
    annotation_create(operator, by_scenario[0], answer="0", label="bad")
    annotation_create(operator, by_scenario[1], label="bad")  # without the right answer
    annotation_create(operator, next(row for row in rows if row.scenario == 2 and row.success), label="kept")
    made = dataset_from_annotated(operator, {"annotated": "true"}, name="from people")
    assert (made.name, made.version, made.origin, made.size) == ("from people", 1, DatasetOrigin.ANNOTATED, 2)
    assert agent.name in made.origin_detail
    by_query = {row["query"]: row for row in dataset_rows(made)}
    person, own = by_query["question 0: what is 0 + 0?"], by_query["question 2: what is 2 + 2?"]
    assert person["expected_outcome"] == {"answer": "0"} and person["metadata"]["answer_from"] == "person"
    assert own["expected_outcome"] == {"answer": "4"} and own["metadata"]["answer_from"] == "trajectory"
    assert person["metadata"]["trajectory"] == str(by_scenario[0].pk)


def test_a_label_of_good_vouches_for_the_trajectorys_own_answer(operator: Actor, rows: list[TrajectoryRecord]) -> None:
    failed = next(row for row in rows if not row.success)
    with pytest.raises(Invalid):
        dataset_from_annotated(operator, {"trajectory": str(failed.pk)})
    annotation_create(operator, failed, label="Good")
    made = dataset_from_annotated(operator, {"trajectory": str(failed.pk)})
    assert [row["expected_outcome"] for row in dataset_rows(made)] == [{"answer": "4"}]


def test_of_an_answer_in_many_words_the_dataset_has_what_was_scored(operator: Actor, run: TrainingRun) -> None:
    row = trajectory(9, 0, 0, "What is two and two?", True)
    row.steps[-1].action["parameters"] = {"text": "Two and two make it.\nAnswer: 4"}
    row.evidence = {"answer": "4", "expected": 4}
    trajectories_write(owner_of(run), [row])
    good = TrajectoryRecord.objects.get(job_id=run.pk, iteration=9)
    made = dataset_from_annotated(operator, {"trajectory": str(good.pk)})
    assert [row["expected_outcome"] for row in dataset_rows(made)] == [{"answer": "4"}]


def test_the_next_version_keeps_its_rows_and_a_known_query_gets_the_new_answer(
    operator: Actor, rows: list[TrajectoryRecord]
) -> None:
    first = dataset_from_annotated(operator, {"trajectory": str(rows[0].pk)}, answer="nought", name="sums")
    other = next(row for row in rows if row.scenario == 1)
    second = dataset_from_annotated(operator, {"trajectory": str(other.pk)}, answer="two", follows=first)
    assert (second.name, second.version, second.follows_id, second.size) == ("sums", 2, first.pk, 2)
    third = dataset_from_annotated(operator, {"trajectory": str(rows[0].pk)}, answer="zero", follows=second)
    assert [row["expected_outcome"]["answer"] for row in dataset_rows(third)] == ["zero", "two"]
    assert [row["expected_outcome"]["answer"] for row in dataset_rows(first)] == ["nought"]
    with pytest.raises(Conflict):
        dataset_from_annotated(operator, {"trajectory": str(other.pk)}, answer="2", follows=first)


def test_a_stakeholder_and_a_stranger_make_none(
    stella: Any, charlie: Any, operator: Actor, rows: list[TrajectoryRecord]
) -> None:
    annotation_create(operator, rows[0], answer="0")
    for person in (stella, charlie):
        with pytest.raises((Forbidden, Missing, Invalid)):
            dataset_from_annotated(Actor(person), {"trajectory": str(rows[0].pk)})
        with pytest.raises((Forbidden, Missing, Invalid)):
            dataset_from_annotated(Actor(person), {"annotated": "true"})
    assert Dataset.objects.count() == 0
