"""People's words about jobs: notes, tags, comments, pins; and the columns of their list."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from agentcore_site.audit.models import AuditEvent
from agentcore_site.console import pages
from agentcore_site.console.pages import listing
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.erasure import subject_erase
from experiences.models import Agent
from tests.console.conftest import SignIn
from tests.console.test_lists import jobs, titles
from tests.support.callers import Caller
from tests.support.pages import html
from tests.support.rows import checkpoint_of_run
from training.models import JobComment, JobPin, TrainingRun
from training.services import notes

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "wanted",
    [
        "",
        "[[[",  # no name of a page
        "overview",  # nor one that is
        "//elsewhere.example/",
        "/\\elsewhere.example/",
        "https://elsewhere.example/",
        "javascript:alert(1)",
    ],
)
def test_a_form_leads_back_to_pages_of_this_site_alone(
    wanted: str, console: Client, operator: Actor, agent: Agent, run: TrainingRun
) -> None:
    [one] = jobs(operator, agent, ["one"])
    forms: list[tuple[str, dict[str, Any], str]] = [
        ("/columns/", {"list": "jobs", "column": ["status"]}, "/jobs/"),
        (f"/jobs/{one.pk}/pin/", {}, "/jobs/"),
        ("/jobs/chosen/", {"pick": [str(one.pk)], "act": "pause"}, "/jobs/"),
        (f"/checkpoints/{checkpoint_of_run(run).pk}/tags/", {"tags": "best"}, "/checkpoints/"),
    ]
    for address, fields, home in forms:
        assert console.post(address, fields | {"next": wanted})["Location"] == home, address
        there = console.post(address, fields | {"next": "/agents/?q=a"})
        assert there["Location"] == "/agents/?q=a", address


def test_a_note_and_tags_are_on_the_page_and_find_the_job_in_the_list(
    console: Client, operator: Actor, agent: Agent
) -> None:
    one, _ = jobs(operator, agent, ["one", "two"])
    answer = console.post(
        f"/jobs/{one.pk}/note/", {"note": "Warmer.\r\nTry <b>20</b>.", "tags": " nightly, x ,nightly"}
    )
    assert answer["Location"] == f"/jobs/{one.pk}/"
    one.refresh_from_db()
    assert (one.note, one.tags) == ("Warmer.\nTry <b>20</b>.", ["nightly", "x"])
    shown = html(console.get(f"/jobs/{one.pk}/"))
    assert "Try &lt;b&gt;20&lt;/b&gt;." in shown and 'href="/jobs/?tag=nightly"' in shown
    assert titles(console, "/jobs/?tag=nightly") == titles(console, "/jobs/?q=warmer") == ["one"]
    assert titles(console, "/jobs/?q=nightly") == ["one"] and titles(console, "/jobs/?tag=other") == []
    logged = AuditEvent.objects.get(action="job.described")
    assert logged.before == {"note": "", "tags": []} and logged.after["tags"] == ["nightly", "x"]
    # What is the same already is no change.
    notes.job_describe(operator, one, tags=["x", "nightly"])
    assert AuditEvent.objects.filter(action="job.described").count() == 1


def test_a_note_or_tag_that_is_too_long_is_refused(console: Client, operator: Actor, agent: Agent) -> None:
    [one] = jobs(operator, agent, ["one"])
    for sent in ({"note": "x" * 2_001}, {"tags": "y" * 41}, {"tags": ",".join(map(str, range(21)))}):
        assert console.post(f"/jobs/{one.pk}/note/", sent).status_code == 400
    assert console.post(f"/jobs/{one.pk}/comments/", {"text": " "}).status_code == 400
    one.refresh_from_db()
    assert (one.note, one.tags, JobComment.objects.count()) == ("", [], 0)


def test_a_viewer_comments_nothing_and_pins_for_themselves(
    stella: Any, charlie: Any, signed_in: SignIn, operator: Actor, agent: Agent
) -> None:
    [one] = jobs(operator, agent, ["one"])
    client, stranger = signed_in(stella), signed_in(charlie)
    for address, sent in ((f"/jobs/{one.pk}/note/", {"note": "x"}), (f"/jobs/{one.pk}/comments/", {"text": "x"})):
        assert (client.post(address, sent).status_code, stranger.post(address, sent).status_code) == (403, 404)
    shown = html(client.get(f"/jobs/{one.pk}/"))
    assert "Note and tags</summary>" not in shown and "Your comment" not in shown
    assert client.post(f"/jobs/{one.pk}/pin/").status_code == 302
    assert stranger.post(f"/jobs/{one.pk}/pin/").status_code == 404
    assert [(pin.person_id, pin.run_id) for pin in JobPin.objects.all()] == [(stella.pk, one.pk)]


def test_a_search_shows_its_number_of_results_on_each_page(
    console: Client, operator: Actor, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = jobs(operator, agent, ["plum a", "plum b", "pear", "plum c"])
    console.post(f"/jobs/{runs[0].pk}/pin/")
    monkeypatch.setitem(listing.__kwdefaults__, "size", 1)
    first = html(console.get("/jobs/?q=plum"))
    assert "3 jobs" in first and titles(console, "/jobs/?q=plum") == ["plum a", "plum c"]
    following = first.split('rel="next" href="')[1].split('"')[0].replace("&amp;", "&")
    assert "3 jobs" in html(console.get(f"/jobs/{following}"))
    assert titles(console, f"/jobs/{following}") == ["plum b"]
    assert titles(console, f"/jobs/?q={str(runs[2].pk)[-8:].upper()}") == ["pear"]
    assert titles(console, "/jobs/?q=quince") == []
    monkeypatch.setattr(pages, "COUNT_LIMIT", 2)
    assert "more than 2 jobs" in html(console.get("/jobs/?q=plum"))


def test_pinned_jobs_come_first_in_ones_own_list_and_once_on_all_its_pages(
    console: Client, operator: Actor, agent: Agent, dan: Any, signed_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = jobs(operator, agent, ["a", "b", "quince", "d"])
    answer = console.post(f"/jobs/{runs[0].pk}/pin/", {"next": "/jobs/?status=queued"})
    assert answer["Location"] == "/jobs/?status=queued"
    console.post(f"/jobs/{runs[0].pk}/pin/")
    console.post(f"/jobs/{runs[1].pk}/pin/", {"next": "https://evil.example/"})
    assert titles(console, "/jobs/") == ["b", "a", "d", "quince"]
    assert titles(signed_in(dan), "/jobs/") == ["d", "quince", "b", "a"]
    assert titles(console, "/jobs/?q=quince") == ["quince"], "a filter takes pinned jobs away too"
    monkeypatch.setitem(listing.__kwdefaults__, "size", 1)
    first = html(console.get("/jobs/"))
    assert "4 jobs" in first
    following = first.split('rel="next" href="')[1].split('"')[0]
    assert titles(console, f"/jobs/{following}") == ["quince"]
    console.post(f"/jobs/{runs[1].pk}/unpin/")
    assert titles(console, "/jobs/") == ["a", "d"]
    logged = AuditEvent.objects.filter(action__contains="pinned").order_by("at")
    assert [one.action for one in logged] == ["job.pinned", "job.pinned", "job.unpinned"]
    monkeypatch.setattr(notes, "PINS", 1)
    assert console.post(f"/jobs/{runs[2].pk}/pin/").status_code == 400


def test_comments_are_a_thread_that_only_their_author_takes_back(
    console: Client, dan: Any, signed_in: SignIn, operator: Actor, agent: Agent
) -> None:
    [one] = jobs(operator, agent, ["one"])
    other = signed_in(dan)
    console.post(f"/jobs/{one.pk}/comments/", {"text": "Why so slow?"})
    other.post(f"/jobs/{one.pk}/comments/", {"text": "The endpoint <i>sleeps</i>."})
    shown = html(console.get(f"/jobs/{one.pk}/"))
    assert shown.index("Why so slow?") < shown.index("The endpoint &lt;i&gt;sleeps&lt;/i&gt;.")
    asked, answered = JobComment.objects.order_by("created_at")
    assert f"/comments/{asked.pk}/remove/" in shown and f"/comments/{answered.pk}/remove/" not in shown
    assert other.post(f"/jobs/{one.pk}/comments/{asked.pk}/remove/").status_code == 403
    assert console.post(f"/jobs/{one.pk}/comments/{asked.pk}/remove/").status_code == 302
    assert [row.author_id for row in JobComment.objects.all()] == [dan.pk]
    dan.delete()
    assert "former member" in html(console.get(f"/jobs/{one.pk}/"))


def test_an_author_edits_a_comment_and_the_comment_says_so(
    console: Client, dan: Any, signed_in: SignIn, operator: Actor, agent: Agent
) -> None:
    [one] = jobs(operator, agent, ["one"])
    console.post(f"/jobs/{one.pk}/comments/", {"text": "Why so slow?"})
    response = JobComment.objects.get()
    address = f"/jobs/{one.pk}/comments/{response.pk}/edit/"
    assert ", edited" not in html(console.get(f"/jobs/{one.pk}/"))
    assert signed_in(dan).post(address, {"text": "Why so fast?"}).status_code == 403
    assert address not in html(signed_in(dan).get(f"/jobs/{one.pk}/"))
    assert console.post(address, {"text": " "}).status_code == 400
    # The same words again are no edit.
    console.post(address, {"text": "Why so slow?"})
    assert JobComment.objects.get().edited_at is None
    assert console.post(address, {"text": "Why so slow on Mondays?"})["Location"].endswith(f"#comment-{response.pk}")
    shown = html(console.get(f"/jobs/{one.pk}/"))
    assert "Why so slow on Mondays?" in shown and ", edited" in shown and "Why so slow?" not in shown
    [logged] = AuditEvent.objects.filter(action="job.comment_edited")
    assert (logged.user.username, logged.after) == ("olivia", {"comment": str(response.pk)})
    again = Caller(operator.user).send(
        "patch", f"training-jobs/{one.pk}/comments/{response.pk}", {"text": "Solved."}, {}
    )
    assert (again.status_code, again.json()["text"], bool(again.json()["edited_at"])) == (200, "Solved.", True)


def test_programs_read_and_write_notes_tags_and_comments(operator: Actor, agent: Agent, olivia: Any, dan: Any) -> None:
    [one] = jobs(operator, agent, ["one"])
    caller, path = Caller(olivia), f"training-jobs/{one.pk}"
    assert caller.get(path).json()["tags"] == []
    changed = caller.send("patch", path, {"tags": ["kept"]}, {})
    assert (changed.status_code, changed.json()["tags"], changed.json()["note"]) == (200, ["kept"], "")
    assert caller.send("patch", path, {"note": "Good."}, {}).json()["tags"] == ["kept"], "what is not given stays"
    assert caller.send("patch", path, {"note": "x" * 2_001}, {}).status_code == 400
    listed = caller.get("training-jobs", tag="kept").json()["results"]
    assert [(row["job_id"], row["note"]) for row in listed] == [(str(one.pk), "Good.")]
    assert caller.get("training-jobs", tag="other").json()["results"] == []
    response = caller.post(f"{path}/comments", {"text": "Look."})
    assert response.status_code == 201 and caller.get(f"{path}/comments").json() == [response.json()]
    assert response.json()["author"] == "olivia"
    gone = f"{path}/comments/{response.json()['id']}"
    assert Caller(dan).send("delete", gone, {}, {}).status_code == 403
    assert caller.send("delete", gone, {}, {}).status_code == 204
    assert caller.send("delete", gone, {}, {}).status_code == 404


def test_an_erasure_takes_the_words_out_of_notes_tags_and_comments(operator: Actor, agent: Agent, adam: Any) -> None:
    [one] = jobs(operator, agent, ["one"])
    notes.job_describe(operator, one, note="Asked by j.doe on Monday.", tags=["j.doe", "kept"])
    notes.comment_add(operator, one, "Told j.doe.")
    report = subject_erase(Actor(adam), ["j.doe"])
    one = TrainingRun.objects.get(pk=one.pk)
    assert (one.note, one.tags) == ("Asked by [erased] on Monday.", ["[erased]", "kept"])
    assert JobComment.objects.get().text == "Told [erased]." and not any(report.left.values())


def test_a_person_chooses_the_columns_of_the_list(console: Client, operator: Actor, agent: Agent) -> None:
    jobs(operator, agent, ["one"])
    assert 'data-label="Verdict"' in html(console.get("/jobs/"))
    answer = console.post("/columns/", {"list": "jobs", "column": ["status", "started"], "next": "/jobs/?q=one"})
    assert answer["Location"] == "/jobs/?q=one"
    shown = html(console.get("/jobs/"))
    assert 'data-label="Status"' in shown and 'data-label="Started"' in shown
    assert 'data-label="Verdict"' not in shown and 'data-label="Cost"' not in shown and ">Cost</a>" not in shown
    assert console.post("/columns/", {"list": "jobs", "column": "nonsense"}).status_code == 400
    # The few jobs on an agent's page are shown as ever.
    assert 'data-label="Verdict"' in html(console.get(f"/agents/{TrainingRun.objects.get().agent_id}/"))
    assert console.post("/columns/", {"list": "nonsense", "column": "status"}).status_code == 400
    console.cookies["jobs_without"] = "nonsense.<b>"
    assert 'data-label="Verdict"' in html(console.get("/jobs/"))
