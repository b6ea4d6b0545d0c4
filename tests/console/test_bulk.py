"""One action on several rows of a list, its refusals and its undo."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from agentcore_site.audit.models import AuditEvent
from agentcore_site.tenancy.actors import Actor
from experiences.agents.services.datasets import dataset_create
from experiences.lessons.services.lessons import experience_prune
from experiences.models import Agent, Dataset, Experience, ExperienceChange
from tests.console.conftest import SignIn
from tests.factories import AgentFactory, ExperienceFactory
from tests.support.pages import html

pytestmark = pytest.mark.django_db

LESSONS, DATASETS = "/experiences/chosen/", "/datasets/chosen/"


@pytest.fixture
def three(agent: Agent) -> list[Experience]:
    """An active lesson, a proposed one and one in quarantine."""
    return [
        ExperienceFactory(agent=agent, handle=status, status=status, summary=f"When it is {status}, count.", effect=0.2)
        for status in ("active", "proposed", "quarantined")
    ]


def statuses(rows: list[Experience]) -> list[str]:
    found = Experience.objects.in_bulk([one.pk for one in rows])
    return [found[one.pk].status for one in rows]


def picked(rows: Any, act: str, **more: str) -> dict[str, Any]:
    return {"pick": [str(one.pk) for one in rows], "act": act, **more}


def undo_of(page: str) -> dict[str, str]:
    """The fields of the undo form in the page's notice."""
    [form] = re.findall(r'<div class="words">.*?</form>', page)
    fields = dict(re.findall(r'<input type="hidden" name="(pick|next)" value="([^"]*)"', form))
    [act] = re.findall(r'name="act" value="(\w+)"', form)
    return fields | {"act": act}


def test_lessons_are_pruned_at_once_and_the_refusal_is_said(console: Client, three: list[Experience]) -> None:
    answer = console.post(LESSONS, picked(three, "prune", next="/experiences/?status=active"), follow=True)
    assert answer.redirect_chain[-1][0] == "/experiences/?status=active"
    shown = html(answer)
    assert "2 lessons were pruned." in shown
    assert "When it is quarantined, count: It is quarantined, so it can" in shown
    assert statuses(three) == ["pruned", "pruned", "quarantined"]
    assert AuditEvent.objects.filter(action="experience.pruned").count() == 2


def test_an_undo_puts_each_lesson_back_to_its_own_status(console: Client, three: list[Experience]) -> None:
    form = undo_of(html(console.post(LESSONS, picked(three[:2], "prune"), follow=True)))
    assert form["act"] == "undo"
    shown = html(console.post(LESSONS, form, follow=True))
    assert "2 lessons were put back to the former status." in shown and "Undo" not in shown
    assert statuses(three) == ["active", "proposed", "quarantined"]
    assert AuditEvent.objects.filter(action="experience.undone").count() == 2
    assert Experience.objects.get(pk=three[0].pk).effect == 0.2, "its measurement stays"
    again = html(console.post(LESSONS, form, follow=True))
    assert "there is nothing to undo" in again and statuses(three)[:2] == ["active", "proposed"]


def test_an_undo_is_of_ones_own_move_within_ten_minutes(
    console: Client, three: list[Experience], dan: Any, signed_in: SignIn
) -> None:
    console.post(LESSONS, picked(three[:1], "prune"))
    assert "no move of yours" in html(signed_in(dan).post(LESSONS, picked(three[:1], "undo"), follow=True))
    assert statuses(three)[0] == "pruned"
    experience_prune(dan, Experience.objects.get(pk=three[1].pk))
    assert "no move of yours" in html(console.post(LESSONS, picked(three[1:2], "undo"), follow=True))

    # What was recorded can't be changed, so an old move is written as an old one.
    old = three[2]
    ExperienceChange.objects.create(
        experience=old, version=old.version, action="quarantined", before="active", after="quarantined", by="olivia",
        at=timezone.now() - timedelta(minutes=11),
    )  # fmt: skip
    assert "older than ten minutes" in html(console.post(LESSONS, picked([old], "undo"), follow=True))
    assert statuses(three)[2] == "quarantined"


def test_lessons_of_others_and_unknown_acts_are_refused(
    console: Client, three: list[Experience], stella: Any, signed_in: SignIn, elsewhere: Any
) -> None:
    foreign = ExperienceFactory(agent=AgentFactory(organization=elsewhere), status="active")
    assert console.post(LESSONS, picked([three[0], foreign], "prune")).status_code == 404
    assert console.post(LESSONS, picked(three, "delete")).status_code == 400
    assert console.post(LESSONS, {"act": "prune"}).status_code == 400
    assert console.post(LESSONS, {"act": "prune", "pick": "x"}).status_code == 404
    assert statuses([three[0], foreign]) == ["active", "active"]

    viewer = signed_in(stella)
    assert 'name="pick"' not in html(viewer.get("/experiences/"))
    viewer.post(LESSONS, picked(three, "prune"))
    assert statuses(three) == ["active", "proposed", "quarantined"]


def test_the_list_offers_the_acts_that_fit_its_status(console: Client, three: list[Experience]) -> None:
    offered = re.findall(r'name="act" value="(\w+)"', html(console.get("/experiences/?status=quarantined")))
    assert offered == ["approve", "reject"]
    assert set(re.findall(r'name="act" value="(\w+)"', html(console.get("/experiences/")))) == {
        "approve", "restore", "prune", "quarantine", "reject",
    }  # fmt: skip


def test_datasets_are_archived_and_brought_back_by_undo(
    console: Client, operator: Actor, stella: Any, signed_in: SignIn
) -> None:
    rows = [
        dataset_create(operator, name=f"set {i}", rows=[{"query": f"What is {i} + 1?", "expected_outcome": str(i + 1)}])
        for i in range(2)
    ]
    signed_in(stella).post(DATASETS, picked(rows, "archive"))
    assert not Dataset.objects.exclude(archived_at=None).exists()
    shown = html(console.post(DATASETS, picked(rows, "archive"), follow=True))
    assert "2 datasets were archived." in shown
    assert Dataset.objects.exclude(archived_at=None).count() == 2
    shown = html(console.post(DATASETS, undo_of(shown), follow=True))
    assert "2 datasets were restored." in shown and not Dataset.objects.exclude(archived_at=None).exists()
    assert 'name="act" value="restore"' not in html(console.get("/datasets/"))
    assert 'name="act" value="archive"' not in html(console.get("/datasets/?show=archived"))
