"""REST: what people do with a playbook and its items."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore_site.tenancy.actors import Actor
from experiences.models import Agent, Playbook, PlaybookChange
from tests.api.test_rest import problem
from tests.support.callers import Caller
from tests.support.playbooks import SECTIONS, playbook_of

pytestmark = pytest.mark.django_db

NEW = {"category": "learnings", "content": "Ask for the order's number first."}


@pytest.fixture
def playbook(operator: Actor, agent: Agent) -> Playbook:
    return playbook_of(operator, agent)


def test_an_item_is_written_read_changed_removed_and_brought_back(api: Caller, playbook: Playbook) -> None:
    items = f"playbooks/{playbook.agent.slug}/items"
    made = api.post(items, NEW | {"rationale": "Customers name none."}, Idempotency_Key="k")
    body = made.json()
    assert made.status_code == 201, body
    assert body["item"]["content"] == NEW["content"] and body["version"] == playbook.version + 1
    assert api.post(items, NEW | {"rationale": "Customers name none."}, Idempotency_Key="k").json() == body
    path = made["Location"].removeprefix("/api/v1/")
    assert api.get(path).json() == body
    changed = api.patch(path, {"content": "Ask for the order's number, then look it up."}).json()
    assert changed["item"]["category"] == "learnings" and changed["item"]["content"].endswith("look it up.")
    assert [one["action"] for one in changed["history"]] == ["updated", "added"]
    assert changed["history"][0]["by"] == "olivia"
    assert api.delete(path).status_code == 204
    gone = api.get(path).json()
    assert gone["item"] is None and gone["history"][0]["action"] == "removed"
    problem(api.delete(path), 404)
    problem(api.patch(path, {"content": "x"}), 404)
    back = api.post(f"{path}/revert", {"as_in": body["version"]}).json()
    assert back["item"]["content"] == NEW["content"]
    problem(api.get(f"{items}/s999"), 404)


def test_two_who_read_the_same_playbook_do_not_overwrite_each_other(api: Caller, playbook: Playbook) -> None:
    base = f"playbooks/{playbook.agent.slug}"
    read = api.get(base)
    assert api.get(f"{base}/items/s1")["ETag"] == read["ETag"]
    first = api.send("patch", f"{base}/items/s1", {"content": "Read it twice."}, {"If_Match": read["ETag"]})
    assert first.status_code == 200 and first["ETag"] != read["ETag"]
    problem(api.send("delete", f"{base}/items/s2", None, {"If_Match": read["ETag"]}), 412)
    problem(api.post(f"{base}/items", NEW, If_Match=read["ETag"]), 412)
    assert api.post(f"{base}/items", NEW, If_Match=first["ETag"]).status_code == 201


def test_a_playbook_is_made_rolled_back_and_deleted(api: Caller, agent: Agent) -> None:
    items = [{"category": one["category"], "content": one["content"]} for one in SECTIONS]
    made = api.post("playbooks", {"agent": agent.slug, "items": items})
    assert made.status_code == 201 and made.json()["section_count"] == len(items), made.json()
    problem(api.post("playbooks", {"agent": agent.slug}), 409)
    base = f"playbooks/{agent.slug}"
    version = made.json()["version"]
    assert api.delete(f"{base}/items/s1").status_code == 204
    back = api.post(f"{base}/roll-back", {"to": version}).json()
    assert (back["section_count"], back["version"]) == (len(items), version + 2)
    problem(api.post(f"{base}/roll-back", {"to": 99}), 404)
    assert api.delete(base).status_code == 204
    problem(api.get(base), 404)


def test_viewers_and_strangers_change_no_playbook(playbook: Playbook, stella: Any, charlie: Any) -> None:
    before = PlaybookChange.objects.count()
    for person, status in ((stella, 403), (charlie, 404)):
        caller, base = Caller(person), f"playbooks/{playbook.agent.slug}"
        problem(caller.post(f"{base}/items", NEW), status)
        problem(caller.patch(f"{base}/items/s1", {"content": "x"}), status)
        problem(caller.delete(f"{base}/items/s1"), status)
        problem(caller.post(f"{base}/items/s1/revert", {"as_in": 1}), status)
        problem(caller.post(f"{base}/roll-back", {"to": 1}), status)
        problem(caller.delete(base), status)
    assert PlaybookChange.objects.count() == before
