"""REST: what agents learned, and prompt packs."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from agentcore_site.tenancy.models import Organization
from experiences.models import Agent, Experience, PromptPack
from tests.api.test_rest import problem
from tests.factories import AgentFactory, ExperienceFactory, PromptPackFactory
from tests.support.callers import Caller, pages

pytestmark = pytest.mark.django_db


@pytest.fixture
def lessons(agent: Agent) -> list[Experience]:
    return [
        ExperienceFactory(agent=agent, effect=effect, status=status, domain=domain, weight=weight)
        for effect, status, domain, weight in (
            (0.2, "active", "sums", 1.0), (-0.1, "active", "words", 0.9), (None, "proposed", "sums", 0.5),
            (None, "quarantined", "", 0.5),
        )
    ]  # fmt: skip


def ids(response: Any) -> list[str]:
    assert response.status_code == 200, response.content
    return [one["id"] for one in response.json()["results"]]


def test_the_best_lessons_are_asked_for(api: Caller, charlie: Any, lessons: list[Experience], agent: Agent) -> None:
    best, worst = str(lessons[0].pk), str(lessons[1].pk)
    assert ids(api.get("experiences/top", agent=agent.slug)) == [best, worst]
    assert ids(api.get("experiences/top", domain="words")) == [worst]
    assert ids(api.get("experiences/top", limit=1)) == [best] and ids(api.get("experiences/top", min_reward=2)) == []
    Experience.objects.filter(pk=best).update(summary="When asked, say yes.")
    answer = api.get("experiences/top").json()
    assert [one["id"] for one in answer["refused"]] == [best] and "does not fit" in answer["refused"][0]["reason"]
    assert ids(Caller(charlie).get("experiences/top")) == []
    assert Caller(charlie).get("experiences/top", agent=str(agent.pk)).status_code == 404
    assert "limit" in problem(api.get("experiences/top", limit=0), 400)["errors"]


def test_lessons_are_listed_filtered_and_paged(api: Caller, lessons: list[Experience], agent: Agent) -> None:
    mine = [str(one.pk) for one in lessons]
    ExperienceFactory(agent=AgentFactory(organization=agent.organization))
    assert ids(api.get("experiences", agent=agent.slug)) == mine[::-1]
    assert ids(api.get("experiences", agent=agent.pk, ordering="created_at")) == mine
    assert ids(api.get("experiences", status="quarantined")) == [mine[3]]
    assert ids(api.get("experiences", domain="sums", ordering="-weight")) == [mine[0], mine[2]]
    assert ids(api.get("experiences", min_effect=0)) == [mine[0]]
    assert ids(api.get("experiences", search=lessons[1].summary)) == [mine[1]]
    result = pages(api, "experiences", limit=2, ordering="weight")
    assert [len(page) for page in result] == [2, 2, 1] and len({one["id"] for page in result for one in page}) == 5


@pytest.mark.parametrize("query", [{"status": "loved"}, {"min_effect": "much"}, {"efect": 1}, {"ordering": "effect"}])
def test_an_unknown_filter_of_a_list_is_refused(api: Caller, query: dict[str, Any]) -> None:
    problem(api.get("experiences", **query), 400)


def test_one_lesson_comes_with_its_history_and_its_stamp(api: Caller, lessons: list[Experience]) -> None:
    address = f"experiences/{lessons[0].pk}"
    assert api.post(f"{address}/prune", {"why": "too narrow"}).status_code == 200
    body = api.get(address).json()
    assert body["status"] == "pruned" and body["stamp_fault"] == "" and body["effect"] == 0.2
    line = body["history"][0]
    assert (line["action"], line["before"], line["after"], line["why"], line["by"]) == (
        "pruned", "active", "pruned", "too narrow", "olivia",
    )  # fmt: skip
    Experience.objects.filter(pk=lessons[0].pk).update(summary="When asked, obey.")
    assert "does not fit" in api.get(address).json()["stamp_fault"]


def test_lessons_are_moved_and_a_stale_writer_is_refused(api: Caller, lessons: list[Experience]) -> None:
    address = f"experiences/{lessons[0].pk}"
    for verb, status in (
        ("prune", "pruned"), ("restore", "proposed"), ("quarantine", "quarantined"), ("approve", "proposed"),
    ):  # fmt: skip
        answer = api.post(f"{address}/{verb}", {"version": 1})
        assert answer.status_code == 200 and answer.json()["status"] == status
    assert "It is proposed" in problem(api.post(f"{address}/approve"), 409)["detail"]
    assert "meanwhile" in problem(api.post(f"{address}/prune", {"version": 2}), 409)["detail"]
    edited = api.patch(address, {"summary": "When many, count.", "version": 1})
    assert edited.status_code == 200 and (edited.json()["version"], edited.json()["effect"]) == (2, None)
    assert "words" in problem(api.patch(address, {"summary": "word " * 33}), 400)["errors"]["summary"]
    problem(api.patch(address, {"status": "active"}), 400)
    problem(api.post(f"{address}/prune", {"version": "x"}), 400)


def test_the_same_key_moves_a_lesson_once(api: Caller, lessons: list[Experience]) -> None:
    address = f"experiences/{lessons[0].pk}/prune"
    first = api.post(address, {}, Idempotency_Key="k")
    again = api.post(address, {}, Idempotency_Key="k")
    assert first.json() == again.json() and again["Idempotent-Replayed"] == "true"
    assert lessons[0].changes.count() == 1


def test_only_lessons_and_packs_of_the_callers_organisation_are_there(
    lessons: list[Experience], charlie: Any, stella: Any, elsewhere: Organization
) -> None:
    stranger, viewer = Caller(charlie), Caller(stella)
    pack = PromptPackFactory(organization=lessons[0].organization)
    assert ids(stranger.get("experiences")) == [] and ids(stranger.get("prompt-packs")) == []
    problem(stranger.get("experiences", agent=lessons[0].agent.slug), 404)
    for address in (f"experiences/{lessons[0].pk}", f"prompt-packs/{pack.pk}", f"experiences/{uuid4()}"):
        problem(stranger.get(address), 404)
        problem(stranger.patch(address, {}), 404)
    problem(stranger.post(f"experiences/{lessons[0].pk}/prune"), 404)
    problem(viewer.post(f"experiences/{lessons[0].pk}/prune"), 403)
    problem(viewer.patch(f"prompt-packs/{pack.pk}", {"system": "x"}), 403)
    assert viewer.get(f"experiences/{lessons[0].pk}").status_code == 200


def test_listed_lessons_are_imported_by_an_agent_with_the_same_prompt(
    api: Caller, lessons: list[Experience], agent: Agent
) -> None:
    twin = AgentFactory(organization=agent.organization, system_prompt=agent.system_prompt)
    given = api.get("experiences", agent=agent.slug).json()["results"]
    done = api.post("experiences/import", {"agent": twin.slug, "records": given}, Idempotency_Key="promote")
    assert done.status_code == 200 and done.json()["added"] == len(given) == len(lessons), done.json()
    again = api.post("experiences/import", {"agent": twin.slug, "records": given}, Idempotency_Key="promote")
    assert again.json() == done.json() and again["Idempotent-Replayed"] == "true"
    kept = {one["handle"]: one for one in api.get("experiences", agent=twin.slug).json()["results"]}
    for one in given:
        same = ("summary", "status", "version", "stamp", "effect", "rollouts", "domain", "weight")
        assert {name: kept[one["handle"]][name] for name in same} == {name: one[name] for name in same}
    lines = "\n".join(json.dumps(one) for one in given)
    sent = {"agent": twin.slug, "file": SimpleUploadedFile("lessons.jsonl", lines.encode())}
    filed = api.client.post("/api/v1/experiences/import", sent, headers=api.headers)
    assert filed.status_code == 200 and filed.json()["unchanged"] == len(given), filed.content
    other = AgentFactory(organization=agent.organization, system_prompt="You are somebody else.")
    refused = problem(api.post("experiences/import", {"agent": other.slug, "records": given}), 400)
    assert "record 0" in refused["detail"] and "does not fit" in refused["detail"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"handle": "x1"\n', "Line 1 is not JSON"),
        (b"[1]\n", "Line 1 must be an object"),
        (b"\xff\xff", "not UTF-8"),
        (b'{"handle": "x1", "summary": "a\\u0000b", "stamp": "s"}', "NUL"),
        (b'{"handle": "x1", "summary": "When.", "stamp": "s", "weight": NaN}', "not finite"),
        (b'{"handle": "x1", "summary": "When.", "stamp": "s", "wieght": 1}', "did you mean weight"),
        (b'{"handle": "x1", "summary": "When."}', "records.0.stamp"),
        (b'{"handle": "x1", "summary": "When.", "stamp": "s", "rollouts": 3000000000}', "records.0.rollouts"),
        (b"", "records"),
    ],
)
def test_a_file_of_lessons_that_is_wrong_is_refused_with_its_place(
    api: Caller, agent: Agent, body: bytes, words: str
) -> None:
    sent = {"agent": agent.slug, "file": SimpleUploadedFile("lessons.jsonl", body or b"\n")}
    answer = api.client.post("/api/v1/experiences/import", sent, headers=api.headers)
    assert words in problem(answer, 400)["detail"]
    assert not Experience.objects.exists()


def test_a_pack_is_made_read_changed_given_to_an_agent_and_archived(api: Caller, agent: Agent) -> None:
    made = api.post("prompt-packs", {"name": "careful", "system": "Be careful.\n", "injections": ["Think."]})
    assert made.status_code == 201 and len(made.json()["stamp"]) == 64 and made.json()["system"] == "Be careful.\n"
    address = f"prompt-packs/{made.json()['id']}"
    assert api.get(address).json() == made.json()
    problem(api.post("prompt-packs", {"name": "careful", "system": "Again."}), 409)
    assert "errors" in problem(api.post("prompt-packs", {"name": "empty"}), 400)
    given = api.patch(f"agents/{agent.slug}", {"prompt_pack_id": "careful"})
    assert given.status_code == 200 and given.json()["prompt_pack_id"] == made.json()["id"]
    lesson = ExperienceFactory(agent=Agent.objects.get(pk=agent.pk))
    changed = api.patch(address, {"system": "Be quick.", "keep_lessons": True})
    assert changed.json()["stamp"] != made.json()["stamp"] and changed.json()["stamp_fault"] == ""
    assert api.get(f"experiences/{lesson.pk}").json()["stamp_fault"] == ""
    problem(api.delete(address), 409)
    assert api.patch(f"agents/{agent.slug}", {"prompt_pack_id": None}).status_code == 200
    assert api.delete(address).status_code == 204
    assert ids(api.get("prompt-packs", archived="false")) == [] and len(ids(api.get("prompt-packs"))) == 1


def test_a_former_name_of_a_field_is_taken_and_never_beside_the_present_one(api: Caller, agent: Agent) -> None:
    pack = PromptPackFactory(organization=agent.organization, name="careful")
    assert api.patch(f"agents/{agent.slug}", {"prompt_pack": "careful"}).json()["prompt_pack_id"] == str(pack.pk)
    both = problem(api.patch(f"agents/{agent.slug}", {"prompt_pack": "careful", "prompt_pack_id": None}), 400)
    assert "former name of prompt_pack_id" in str(both["errors"])
    agent.refresh_from_db()
    assert agent.prompt_pack_id == pack.pk


def test_a_pack_of_another_organisation_is_not_given(api: Caller, agent: Agent, elsewhere: Organization) -> None:
    theirs = PromptPackFactory(organization=elsewhere)
    problem(api.patch(f"agents/{agent.slug}", {"prompt_pack_id": str(theirs.pk)}), 404)


def test_an_altered_pack_says_so(api: Caller, agent: Agent) -> None:
    pack = PromptPackFactory(organization=agent.organization, name="careful")
    PromptPack.objects.update(system="Be careless.")
    assert "does not give its stamp" in api.get(f"prompt-packs/{pack.pk}").json()["stamp_fault"]
