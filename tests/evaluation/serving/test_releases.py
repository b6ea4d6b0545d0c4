"""Releases: made once, never changed, with what they were proven with."""

from __future__ import annotations

import io
import json
import tomllib
import zipfile
from typing import Any

import pytest
from django.db import DatabaseError, transaction
from django.test import Client

from agentcore_site.audit.models import AuditEvent
from agentcore_site.lib.errors import Conflict, Forbidden, Invalid, Missing
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.erasure import subject_erase
from evaluation.serving.models import Release
from evaluation.serving.releases.bundle import digest
from evaluation.serving.releases.presenters import proof_of
from evaluation.serving.releases.selectors import blame, bundle_of, moved_since, release_get, releases_differ
from evaluation.serving.releases.services import release_make
from experiences.models import Agent, Experience, ModelEndpoint
from experiences.playbooks.services.playbooks import playbook_edit
from tests.api.test_rest import problem
from tests.factories import AgentFactory
from tests.support.callers import Caller
from tests.support.pages import html
from tests.support.playbooks import SECTIONS
from tests.support.queries import queries_of

pytestmark = pytest.mark.django_db


def test_release_holds_the_agents_context_and_call_options(operator: Actor, agent: Agent) -> None:
    made = release_make(operator, agent, note="First")
    bundle = bundle_of(release_get(operator, made.pk))
    assert (made.number, made.source, made.evidence, made.note) == (1, "agent", {}, "First")
    assert made.digest == digest(made.bundle)
    assert (bundle.model.name, bundle.model.endpoint_name, bundle.system, bundle.tools) == (
        "small", "Zanzibar models", "You answer customers.", ("calculator",),
    )  # fmt: skip
    context = bundle.context.text_for("Where is my parcel?")
    assert context.startswith(f"## Strategies\n- [s1] {SECTIONS[0]['content']}")
    assert context.endswith("- When an order is late, say when it comes.") and "only tried" not in context
    event = AuditEvent.objects.get(action="release.made")
    assert (event.target_id, event.after["digest"]) == (str(made.pk), made.digest)


def test_nothing_changed_makes_no_release(operator: Actor, agent: Agent) -> None:
    release_make(operator, agent)
    with pytest.raises(Conflict, match="Nothing has changed since release 1"):
        release_make(operator, agent)
    playbook_edit(operator, agent.playbook, type="update", target="s1", content="Read the order first.")
    second = release_make(operator, agent)
    (difference,) = releases_differ(Release.objects.get(agent=agent, number=1), second)
    assert (second.number, difference.part, difference.name, difference.after) == (
        2, "item", "s1", "Read the order first.",
    )  # fmt: skip


def test_an_earlier_version_of_the_playbook_can_be_released(operator: Actor, agent: Agent) -> None:
    playbook_edit(operator, agent.playbook, type="update", target="s1", content="Read the order first.")
    made = release_make(operator, agent, playbook_version=1)
    assert (made.source, made.playbook_version) == ("playbook", 1)
    assert SECTIONS[0]["content"] in bundle_of(made).context.text_for("")
    with pytest.raises(Missing):
        release_make(operator, agent, playbook_version=9)


def test_each_text_shows_the_first_release_that_served_the_text(operator: Actor, agent: Agent) -> None:
    release_make(operator, agent)
    playbook_edit(operator, agent.playbook, type="update", target="s2", content="Refunds need a ticket.")
    release_make(operator, agent)
    Experience.objects.filter(handle="x0000000001").update(status="pruned")
    third = release_make(operator, agent)
    assert {one.lesson.handle: one.since.number for one in blame(third)} == {"s1": 1, "s2": 2}


def test_release_is_stale_where_the_agent_has_another_model_prompt_or_tool(operator: Actor, agent: Agent) -> None:
    made = release_make(operator, agent)
    assert moved_since(made) == []
    ModelEndpoint.objects.filter(pk=agent.endpoint_id).update(model="large")
    Agent.objects.filter(pk=agent.pk).update(tools=[], system_prompt="You help.")
    values = {(one.part, one.before, one.after) for one in moved_since(release_get(operator, made.pk))}
    assert values == {
        ("model", "small", "large"),
        ("prompt", "You answer customers.", "You help."),
        ("tool", "calculator", ""),
    }
    # What is served is what was made.
    assert bundle_of(release_get(operator, made.pk)).model.name == "small"


@pytest.mark.parametrize("change", [{"number": 7}, {"bundle": {}}, {"evidence": {"held_out": {"verdict": "Good."}}}])
def test_the_database_refuses_to_change_or_delete_one(operator: Actor, agent: Agent, change: dict[str, Any]) -> None:
    made = release_make(operator, agent)
    with pytest.raises(DatabaseError, match=r"immutable|permission denied"), transaction.atomic():
        Release.objects.filter(pk=made.pk).update(**change)
    with pytest.raises(DatabaseError, match="immutable"), transaction.atomic():
        made.delete()
    operator.user.delete()  # its maker may go
    assert Release.objects.get(pk=made.pk).created_by is None


def test_each_role_makes_a_release_or_is_refused(agent: Agent, dan: Any, stella: Any, charlie: Any) -> None:
    for person, refusal in ((dan, Forbidden), (stella, Forbidden), (charlie, Missing)):
        with pytest.raises(refusal):
            release_make(Actor(person), agent)


def test_a_release_of_an_archived_agent_or_without_a_checkpoint_is_refused(operator: Actor, agent: Agent) -> None:
    with pytest.raises(Invalid, match="at most 300"):
        release_make(operator, agent, note="x" * 301)
    chooser = AgentFactory(organization=agent.organization, created_by=operator.user)
    with pytest.raises(Conflict, match="from a checkpoint"):
        release_make(operator, chooser)
    Agent.objects.filter(pk=agent.pk).update(archived_at="2026-01-01T00:00:00Z")
    with pytest.raises(Conflict, match="archived"):
        release_make(operator, agent)


def test_an_erasure_deletes_releases_that_hold_the_words(operator: Actor, adam: Any, agent: Agent) -> None:
    playbook_edit(operator, agent.playbook, type="add", category="learnings", content="Berta Beispiel asks twice.")
    holding = release_make(operator, agent)
    playbook_edit(operator, agent.playbook, type="remove", target="s3")
    other = release_make(operator, agent)
    report = subject_erase(Actor(adam), ["Berta Beispiel"])
    assert report.found["releases"] == 1 and not any(report.left.values())
    assert list(Release.objects.values_list("pk", flat=True)) == [other.pk] and holding.pk != other.pk
    assert AuditEvent.objects.filter(action="history.deleted", target_type="serving_release").exists()
    # The number of the newest is not given again.
    playbook_edit(operator, agent.playbook, type="add", category="learnings", content="Berta Beispiel asks again.")
    assert release_make(operator, agent).number == 3
    subject_erase(Actor(adam), ["Berta Beispiel"])
    playbook_edit(operator, agent.playbook, type="update", target="s1", content="Read the order first.")
    assert release_make(operator, agent).number == 4


# -- REST --------------------------------------------------------------------------------------------------------------


def test_rest_makes_reads_and_compares_releases(api: Caller, operator: Actor, agent: Agent) -> None:
    body = api.post("releases", {"agent": "clerk", "note": "First"})
    assert body.status_code == 201, body.content
    first = body.json()
    assert (first["number"], first["source"], first["by"], first["agent"]) == (1, "agent", "olivia", "clerk")
    problem(api.post("releases", {"agent": "clerk"}), 409)
    problem(api.post("releases", {"agent": "clerk", "checkpoint": "x"}), 400)
    playbook_edit(operator, agent.playbook, type="remove", target="s2")
    second = api.post("releases", {"agent": str(agent.pk)}).json()
    detail = api.get(f"releases/{second['id']}").json()
    assert detail["bundle"]["system"] == "You answer customers." and detail["moved"] == []
    assert [(one["handle"], one["since"]) for one in detail["context_texts"]] == [("x0000000001", 1), ("s1", 1)]
    assert detail["told"] == detail["context_texts"]  # the former name
    difference = api.get(f"releases/{second['id']}/diff").json()
    assert (difference["before"], difference["after"]) == (1, 2)
    assert [(one["part"], one["change"]) for one in difference["differences"]] == [("item", "removed")]
    back = api.get(f"releases/{first['id']}/diff", to=second["id"]).json()
    assert [one["change"] for one in back["differences"]] == ["added"]
    context = api.get(f"releases/{second['id']}/context", query="Where is it?").json()
    assert context["context"] == bundle_of(Release.objects.get(pk=second["id"])).context.text_for("Where is it?")
    assert context["told"] == context["context_handles"] == ["x0000000001", "s1"]  # the former name
    assert [one["number"] for one in api.get("releases", agent="clerk", source="agent").json()["results"]] == [2, 1]
    assert api.get("releases", search="first").json()["results"][0]["id"] == first["id"]
    problem(api.get("releases", sauce="agent"), 400)


def test_strangers_find_no_release(charlie: Any, operator: Actor, agent: Agent) -> None:
    made = release_make(operator, agent)
    stranger = Caller(charlie)
    assert stranger.get("releases").json()["results"] == []
    for path in ("", "/diff", "/context?query=x"):
        problem(stranger.get(f"releases/{made.pk}{path}"), 404)
    problem(stranger.post("releases", {"agent": str(agent.pk)}), 404)


# -- pages -------------------------------------------------------------------------------------------------------------


def test_the_pages_show_what_is_served_and_what_moved(console: Client, operator: Actor, agent: Agent) -> None:
    assert "No release yet" in html(console.get("/releases/"))
    assert "version 1 of its playbook" in html(console.get(f"/releases/?agent={agent.pk}"))
    posted = console.post(f"/agents/{agent.pk}/releases/make/", {"from": "agent", "note": "First"})
    made = Release.objects.get()
    assert posted["Location"] == f"/releases/{made.pk}/"
    again = console.post(f"/agents/{agent.pk}/releases/make/", {"from": "playbook:1", "note": "Once more"}, follow=True)
    assert "Nothing has changed since release 1" in html(again) and 'value="Once more"' in html(again)
    for wrong in ("", "playbook:x", "playbook:99999999999", "agents"):
        refused = console.post(f"/agents/{agent.pk}/releases/make/", {"from": wrong}, follow=True)
        assert "Choose the source of the release" in html(refused) and Release.objects.count() == 1
    page = html(console.get(f"/releases/{made.pk}/?query=Where"))
    assert "As it was measured: the gateway adds the instructions of ReAct, runs its tool and returns" in page
    assert "Use the tools you have where they help" in page
    assert "Release 1 of Support clerk" in page and "- [s1]" in page and "Outdated" not in page
    assert "No measurements" in page
    Agent.objects.filter(pk=agent.pk).update(system_prompt="You help.")
    assert "Outdated: the agent has changed since" in html(console.get(f"/releases/{made.pk}/"))
    listed = html(console.get("/releases/?q=first"))
    assert "Support clerk, release 1" in listed
    assert "No release matches" in html(console.get("/releases/?q=nothing+of+it"))
    stored = json.loads(console.get(f"/releases/{made.pk}/json/").content)
    assert AuditEvent.objects.get(action="release.downloaded").after == {"digest": made.digest, "form": "json"}
    assert digest(stored["bundle"]) == stored["digest"] == made.digest


def test_a_release_can_be_taken_to_tensorzero(
    console: Client, api: Caller, operator: Actor, agent: Agent, charlie: Any
) -> None:
    made = release_make(operator, agent)
    assert f"/releases/{made.pk}/tensorzero/" in html(console.get(f"/releases/{made.pk}/"))
    answer = api.get(f"releases/{made.pk}/tensorzero").json()
    assert "ZANZIBAR_MODELS_API_KEY" in answer["sentence"]
    got = console.get(f"/releases/{made.pk}/tensorzero/")
    with zipfile.ZipFile(io.BytesIO(got.content)) as archive:
        assert {name: archive.read(name).decode() for name in archive.namelist()} == answer["files"]
    config = tomllib.loads(answer["files"]["tensorzero.toml"])
    assert config["functions"]["clerk"]["experimentation"]["candidate_variants"] == {"release-1": 1.0}
    problem(Caller(charlie).get(f"releases/{made.pk}/tensorzero"), 404)
    ModelEndpoint.objects.filter(pk=agent.endpoint_id).update(kind="portkey")
    second = release_make(operator, Agent.objects.get(pk=agent.pk))
    assert "kind 'portkey'" in problem(api.get(f"releases/{second.pk}/tensorzero"), 409)["detail"]


def test_the_list_asks_as_much_for_many_as_for_few(console: Client, operator: Actor, agent: Agent) -> None:
    release_make(operator, agent)
    console.get("/releases/")
    few = queries_of(console, "/releases/")
    for n in range(4):
        playbook_edit(operator, agent.playbook, type="update", target="s1", content=f"Read it {n} times.")
        release_make(operator, agent)
    assert queries_of(console, "/releases/") == few


def test_a_proof_is_of_the_agent_that_was_measured() -> None:
    held_out = {"verdict": "Better by 12 points.", "low": 0.05, "high": 0.2}
    evidence = {"held_out": held_out, "moved": [], "validation_score": 0.8}
    assert (proof_of(Release(evidence=evidence)).tone, proof_of(Release(evidence=evidence)).text) == (
        "good", "Better by 12 points.",
    )  # fmt: skip
    moved = proof_of(Release(evidence=evidence | {"moved": ["model", "tools"], "held_out": {}}))
    assert moved.tone == "warn" and "another model and tools" in moved.text
    assert "80.0%" in proof_of(Release(evidence=evidence | {"held_out": {}})).text
