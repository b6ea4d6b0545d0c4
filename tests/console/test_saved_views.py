"""Saved views: what a list shows, under a name of one's own, for oneself or for all."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from agentcore_site.audit.models import AuditEvent
from agentcore_site.console import saved
from agentcore_site.models import SavedView
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.erasure import subject_erase
from experiences.models import Agent
from tests.console.conftest import SignIn
from tests.console.test_lists import jobs, titles
from tests.support.pages import html
from training.models import TrainingRun

pytestmark = pytest.mark.django_db

QUERY = "status=queued&sort=oldest&q=run"


def save(client: Client, name: str, query: str = QUERY, **ticked: str) -> Any:
    return client.post("/views/save/", {"page": "training:jobs", "name": name, "query": query, **ticked})


def test_a_view_shows_its_filters_search_and_order_again(console: Client, operator: Actor, agent: Agent) -> None:
    jobs(operator, agent, ["first run", "second run", "another"])
    shown = html(console.get(f"/jobs/?{QUERY}&cursor=y"))
    assert "Save this view" in shown and 'name="query" value="q=run&amp;sort=oldest&amp;status=queued"' in shown
    answer = save(console, "Runs  that wait", f"{QUERY}&panel=x&cursor=y&as=csv")
    view = SavedView.objects.get()
    assert view.name == "Runs that wait" and view.asked == {"status": ["queued"], "sort": ["oldest"], "q": ["run"]}
    assert titles(console, answer["Location"]) == ["first run", "second run"]
    opened = html(console.get(answer["Location"]))
    assert "Change this view" in opened and "Save this view" not in opened
    # On the list as it is, the view is a link, and nothing is there to save.
    plain = html(console.get("/jobs/"))
    assert view.address.replace("&", "&amp;") in plain and "Save this view" not in plain
    logged = AuditEvent.objects.get(action="view.saved")
    assert logged.after["asked"] == view.asked and logged.actor == "olivia"


def test_a_view_with_the_former_key_of_an_order_opens_as_before(console: Client, run: TrainingRun) -> None:
    kept = {"page": "experiences:trajectories", "name": "High cost", "query": "sort=dearest"}
    opened = html(console.get(console.post("/views/save/", kept)["Location"]))
    assert '<option value="cost" selected' in opened and "Change this view" in opened


def test_a_list_opens_with_the_view_of_ones_choice_and_shows_everything_where_that_is_asked(
    console: Client, operator: Actor, agent: Agent, dan: Any, signed_in: SignIn
) -> None:
    jobs(operator, agent, ["first run", "another"])
    save(console, "Runs", opens="on", shared="on")
    view = SavedView.objects.get()
    answer = console.get("/jobs/")
    assert (answer.status_code, answer["Location"]) == (302, view.address)
    assert titles(console, view.address) == ["first run"]
    assert set(titles(console, "/jobs/?view=all")) == {"first run", "another"}
    # The other filters of an opened view lead away from it, and not back into it.
    assert 'href="?q=run&amp;sort=oldest&amp;' in html(console.get(view.address))
    # It is olivia's choice: another one's list opens as it is, with the view over it.
    other = html(signed_in(dan).get("/jobs/"))
    assert "another" in other and ">Runs<" in other.replace(" ", "")
    # One view opens a list: the next one takes the place.
    save(console, "Waiting", "status=queued", opens="on")
    assert [one.name for one in SavedView.objects.filter(opens=True)] == ["Waiting"]


def test_a_view_is_private_until_its_owner_shares_the_view(
    console: Client, run: TrainingRun, dan: Any, stella: Any, adam: Any, charlie: Any, signed_in: SignIn
) -> None:
    save(console, "Private")
    save(console, "Shared", shared="on")
    private, shared = SavedView.objects.order_by("name")
    for person in (dan, stella, adam):
        client = signed_in(person)
        shown = html(client.get("/jobs/?q=x"))
        assert str(shared.pk) in shown and str(private.pk) not in shown
        assert client.post(f"/views/{private.pk}/", {"name": "Mine"}).status_code == 404
        assert client.post(f"/views/{shared.pk}/", {"name": "Mine"}).status_code == 403
    assert signed_in(charlie).post(f"/views/{shared.pk}/remove/").status_code == 404
    assert signed_in(dan).post(f"/views/{shared.pk}/remove/").status_code == 403
    assert signed_in(adam).post(f"/views/{shared.pk}/remove/").status_code == 302, "an admin tidies up"
    assert list(SavedView.objects.all()) == [private]


def test_a_viewer_keeps_views_and_shares_none(stella: Any, signed_in: SignIn, run: TrainingRun) -> None:
    client = signed_in(stella)
    assert save(client, "Mine", shared="on").status_code == 403
    assert save(client, "Mine").status_code == 302
    shown = html(client.get("/jobs/?status=queued"))
    assert "Save this view" in shown and "Everybody of the organisation" not in shown


def test_a_view_is_renamed_and_removed(console: Client) -> None:
    save(console, "One")
    save(console, "Two", "q=x")
    one = SavedView.objects.get(name="One")
    assert console.post(f"/views/{one.pk}/", {"name": "Two"}).status_code == 409
    assert console.post(f"/views/{one.pk}/", {"name": " "}).status_code == 400
    assert console.post(f"/views/{one.pk}/", {"name": "Three", "shared": "on"})["Location"].startswith("/jobs/?")
    one.refresh_from_db()
    assert (one.name, one.shared) == ("Three", True)
    assert console.post(f"/views/{one.pk}/remove/")["Location"] == "/jobs/?view=all"
    assert AuditEvent.objects.get(action="view.removed").before["name"] == "Three"
    assert [view.name for view in SavedView.objects.all()] == ["Two"]


def test_views_are_found_by_name_from_every_page(console: Client, dan: Any, charlie: Any, signed_in: SignIn) -> None:
    save(console, "Runs that wait", shared="on")
    save(console, "Runs of mine")
    shown = html(console.get("/search/palette/?q=runs"))
    assert "Saved views" in shown and "Runs of mine" in shown and "Runs that wait" in shown
    assert SavedView.objects.get(name="Runs of mine").address.replace("&", "&amp;") in shown
    theirs = html(signed_in(dan).get("/search/palette/?q=runs"))
    assert "Jobs, shared by olivia" in theirs and "Runs of mine" not in theirs
    assert "Saved views" not in html(signed_in(charlie).get("/search/palette/?q=runs"))


def test_an_invalid_view_is_refused(console: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert console.post("/views/save/", {"page": "//evil.example", "name": "x", "query": "q=1"}).status_code == 400
    assert console.post("/views/save/", {"page": "training:job", "name": "x", "query": "q=1"}).status_code == 400
    assert save(console, "x", "q=%00").status_code == 400
    assert save(console, "x", "q=" + "y" * 3_000).status_code == 400
    assert save(console, "x" * 61).status_code == 400
    save(console, "One")
    assert save(console, "One", "q=2").status_code == 409
    monkeypatch.setattr(saved, "MOST", 1)
    assert save(console, "Two").status_code == 400
    assert SavedView.objects.count() == 1


def test_an_erasure_takes_the_views_that_name_the_person(console: Client, adam: Any) -> None:
    save(console, "Jobs of j.doe")
    save(console, "His", "q=j.doe%40x.de")
    save(console, "Others")
    subject_erase(Actor(adam), ["j.doe"])
    assert [view.name for view in SavedView.objects.all()] == ["Others"]
