"""Share links: they end by themselves, one by one, and say when they were last seen."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from agentcore_site.audit.models import AuditEvent
from agentcore_site.jobs.models import ShareLink
from agentcore_site.jobs.selectors import share_alive
from agentcore_site.jobs.services import share_create, share_revoke
from agentcore_site.lib.errors import Forbidden, Invalid, Missing
from agentcore_site.tenancy.actors import Actor
from experiences.models import Agent
from tests.support.callers import Caller
from tests.support.pages import html
from tests.support.rows import queued_run
from training.models import TrainingRun

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(operator: Actor, agent: Agent) -> TrainingRun:
    return queued_run(operator, agent)


def status(token: str) -> int:
    return int(Client().get(f"/shared/{token}/").status_code)


def test_a_link_ends_by_itself_after_thirty_days_or_as_was_chosen(operator: Actor, run: TrainingRun) -> None:
    token, short = share_create(operator, run.job), share_create(operator, run.job, days=1)
    ends = sorted(ShareLink.objects.values_list("expires_at", flat=True))
    assert [round((end - timezone.now()) / timedelta(days=1)) for end in ends] == [1, 30]
    ShareLink.objects.filter(expires_at=ends[0]).update(expires_at=timezone.now())
    assert (status(token), status(short)) == (200, 404)
    assert share_alive(token) and not share_alive(short)
    assert Client().get(f"/shared/{short}/status/").status_code == 404
    assert Client().get(f"/shared/{short}/series/").status_code == 404
    for days in (0, 367):
        with pytest.raises(Invalid, match="between 1 and 366 days"):
            share_create(operator, run.job, days=days)


def test_one_link_is_revoked_and_the_others_go_on(operator: Actor, run: TrainingRun, stella: Any) -> None:
    tokens = [share_create(operator, run.job) for _ in range(2)]
    first = ShareLink.objects.order_by("created_at").first()
    assert first is not None
    with pytest.raises(Forbidden):
        share_revoke(Actor(stella), run.job, first.id)
    share_revoke(operator, run.job, first.id)
    share_revoke(operator, run.job, first.id)
    assert [status(token) for token in tokens] == [404, 200]
    assert AuditEvent.objects.filter(action="job.unshared").count() == 1
    with pytest.raises(Missing):
        share_revoke(operator, run.job, run.pk)


def test_list_says_when_a_link_was_last_seen(operator: Actor, run: TrainingRun) -> None:
    token = share_create(operator, run.job)
    assert ShareLink.objects.get().last_seen_at is None
    status(token)
    seen = ShareLink.objects.get().last_seen_at
    assert seen is not None
    status(token)
    assert ShareLink.objects.get().last_seen_at == seen  # not written again with each request


def test_the_jobs_page_lists_its_links_and_revokes_one(olivia: Any, stella: Any, run: TrainingRun) -> None:
    browser, viewer = Client(), Client()
    browser.force_login(olivia)
    viewer.force_login(stella)
    made = html(browser.post(f"/jobs/{run.pk}/share/", {"days": "7"}, headers={"HX-Request": "true"}))
    match = re.search(r"/shared/([^/\"]+)/", made)
    assert match is not None
    link = ShareLink.objects.get()
    assert round((link.expires_at - timezone.now()) / timedelta(days=1)) == 7
    page = html(browser.get(f"/jobs/{run.pk}/"))
    assert "not opened yet" in page and match.group(1) not in page
    assert f"/jobs/{run.pk}/unshare/{link.pk}/" in page
    assert "/unshare/" not in html(viewer.get(f"/jobs/{run.pk}/"))
    browser.post(f"/jobs/{run.pk}/unshare/{link.pk}/")
    assert status(match.group(1)) == 404


def test_links_are_listed_and_revoked_over_rest(olivia: Any, stella: Any, charlie: Any, run: TrainingRun) -> None:
    api, path = Caller(olivia), f"jobs/{run.pk}/share"
    url = api.post(path, {"days": 2}).json()["url"]
    assert api.post(path, {"days": 1000}).status_code == 400
    assert api.post(path).status_code == 201
    listed = api.get(path).json()
    assert [one["created_by"] for one in listed] == ["olivia", "olivia"] and "digest" not in str(listed)
    assert url.split("/")[-2] not in str(listed)
    assert Caller(stella).get(path).status_code == 403 and Caller(charlie).get(path).status_code == 404
    assert Caller(charlie).delete(f"{path}/{listed[1]['id']}").status_code == 404
    assert api.delete(f"{path}/{listed[1]['id']}").status_code == 204
    assert len(api.get(path).json()) == 1 and Client().get(url).status_code == 404
