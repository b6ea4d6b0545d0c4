"""Lessons that two jobs wrote down in the same words: one row of the list, and one lesson once they are merged."""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from agentcore_site.audit.models import AuditEvent
from agentcore_site.lib.errors import Conflict
from agentcore_site.tenancy.actors import Actor
from experiences.learning.playbooks.evidence import EvolutionEvidence, ExecutionEvidence
from experiences.learning.playbooks.generator import proposed
from experiences.lessons.services.merging import experience_merge
from experiences.lessons.stamps import stamp_fault
from experiences.models import Agent, Experience, ExperienceChange
from tests.console.conftest import SignIn
from tests.factories import ExperienceFactory
from tests.support.callers import Caller
from tests.support.pages import html
from tests.support.rows import queued_run
from training.models import TrainingRun

SAID = "When there are many parts, count them first."


@pytest.fixture
def twins(run: TrainingRun, operator: Actor, agent: Agent) -> tuple[Experience, Experience]:
    """The same sentence from two jobs of one agent: the older one was measured more often."""
    other = queued_run(operator, run.agent, title="Another job").job
    common = {"agent": run.agent, "summary": SAID, "effect_error": 0.1}
    old = ExperienceFactory(
        **common, job=run.job, handle="old1", why="Of counting.", rollouts=300, effect=0.3, taught_by=[uuid4()]
    )
    time.sleep(0.002)  # an id orders rows by the millisecond
    new = ExperienceFactory(
        **common, job=other, handle="new1", why="Of adding.", rollouts=100, effect=0.1, taught_by=[uuid4()],
        status="proposed",
    )  # fmt: skip
    ExperienceFactory(agent=run.agent, job=other, summary="When in doubt, read again.")
    return old, new


@pytest.mark.django_db
def test_the_list_has_one_row_for_a_sentence_and_names_its_jobs(
    console: Client, twins: tuple[Experience, Experience]
) -> None:
    old, new = twins
    shown = html(console.get("/experiences/"))
    assert sorted(_sentences(shown)) == ["When in doubt, read again.", SAID] and "2 lessons" in shown
    assert f'href="/experiences/{new.pk}/#jobs"' in shown and ">2 jobs</a>" in shown and "Another job" in shown
    each = html(console.get("/experiences/?equal=each"))
    assert _sentences(each).count(SAID) == 2 and f"/experiences/{old.pk}/" in each
    # A filter that leaves one of them shows that one.
    assert f"/experiences/{old.pk}/" in html(console.get("/experiences/?status=active"))


def _sentences(shown: str) -> list[str]:
    return [one for one in (SAID, "When in doubt, read again.") for _ in range(shown.count(f">{one}</a>"))]


@pytest.mark.django_db
def test_merging_keeps_the_newest_handle_and_adds_up_what_was_seen(
    console: Client, twins: tuple[Experience, Experience]
) -> None:
    old, new = twins
    page = html(console.get(f"/experiences/{old.pk}/"))
    assert "Merge into new1" in page and "Duplicates" in page
    answer = console.post(f"/experiences/{old.pk}/merge/", {"version": 1})
    assert answer["Location"] == f"/experiences/{new.pk}/"
    old.refresh_from_db()
    new.refresh_from_db()
    assert (new.status, new.handle, new.rollouts, new.why) == ("active", "new1", 400, "Of adding.")
    # Equal precision: the mean, with the error of twice as much evidence.
    assert new.effect == pytest.approx(0.2) and new.effect_error == pytest.approx(0.1 / 2**0.5)
    assert {*new.taught_by} == {*old.taught_by, *new.taught_by} and len(new.taught_by) == 2
    assert new.parents == ["old1"] and not stamp_fault(new)
    assert (old.status, old.rollouts, old.why) == ("pruned", 300, "Of counting.")
    assert ExperienceChange.objects.get(experience=old).why == "merged into new1"
    logged = AuditEvent.objects.get(action="experience.merged")
    assert logged.target == "new1" and logged.after["merged"] == ["old1"] and logged.before["rollouts"] == 100
    assert "Merge into" not in html(console.get(f"/experiences/{new.pk}/"))


@pytest.mark.django_db
def test_one_that_is_brought_back_and_merged_again_is_not_counted_twice(
    operator: Actor, twins: tuple[Experience, Experience]
) -> None:
    old, new = twins
    experience_merge(operator, old)
    Experience.objects.filter(pk=old.pk).update(status="proposed")
    made = experience_merge(operator, Experience.objects.get(pk=new.pk))
    assert (made.rollouts, made.parents) == (400, ["old1"])


@pytest.mark.django_db
def test_only_who_edits_lessons_merges_them_and_only_equal_ones(
    stella: Any, charlie: Any, olivia: Any, operator: Actor, signed_in: SignIn, twins: tuple[Experience, Experience]
) -> None:
    old, new = twins
    assert "Merge into" not in html(signed_in(stella).get(f"/experiences/{old.pk}/"))
    assert signed_in(stella).post(f"/experiences/{old.pk}/merge/").status_code == 403
    assert signed_in(charlie).post(f"/experiences/{old.pk}/merge/").status_code == 404
    Experience.objects.filter(pk=new.pk).update(domain="sums")  # for other tasks: another lesson
    with pytest.raises(Conflict, match="nothing to merge"):
        experience_merge(operator, old)
    assert Caller(olivia).post(f"experiences/{old.pk}/merge", {}).status_code == 409
    Experience.objects.filter(pk=new.pk).update(domain="")
    with pytest.raises(Conflict, match="changed meanwhile"):
        experience_merge(operator, old, version=7)
    done = Caller(olivia).post(f"experiences/{old.pk}/merge", {})
    assert done.status_code == 200 and done.json()["id"] == str(new.pk) and done.json()["rollouts"] == 400


class Answering:
    """A model that suggests two things at once."""

    async def ask(self, shape: Any, messages: Any, *, key: str, stage: str) -> Any:
        values = {"type": "add", "category": "strategies", "confidence": 0.9}
        return shape.model_validate(
            {
                "deltas": [
                    values | {"content": "Weigh the marble.", "rationale": "Of marble.", "executions": [1]},
                    values | {"content": "Vent the xenon.", "rationale": "Of xenon.", "executions": [2]},
                ]
            }
        )


async def test_each_suggestion_of_an_answer_has_its_own_reason_and_evidence() -> None:
    lived = [ExecutionEvidence(name, {}, {}, success=True, duration_ms=1.0) for name in ("first", "second")]
    model: Any = Answering()
    result = await proposed(model, EvolutionEvidence((), lived, {}), key="k", marks=lambda: "mark")
    assert result is not None
    assert [(one.rationale, one.taught_by) for one in result] == [
        ("Of marble.", ("first",)),
        ("Of xenon.", ("second",)),
    ]
