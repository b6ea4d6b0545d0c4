"""REST: saved views of lists, which the console shows over them."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore_site.audit.models import AuditEvent
from agentcore_site.models import SavedView
from tests.api.test_rest import problem
from tests.support.callers import Caller
from training.models import TrainingRun

pytestmark = pytest.mark.django_db

VIEW = {"page": "training:jobs", "name": "Dear failures", "query": "status=failed&sort=cost&cursor=x"}


def test_a_view_that_a_program_saves_is_shown_above_the_list(api: Caller, olivia: Any, run: TrainingRun) -> None:
    made = api.post("saved-views", VIEW | {"shared": True}, Idempotency_Key="k")
    body = made.json()
    assert made.status_code == 201, body
    assert (body["query"], body["by"], body["shared"]) == ("sort=cost&status=failed", "olivia", True)
    again = api.post("saved-views", VIEW | {"shared": True}, Idempotency_Key="k")
    assert again["Idempotent-Replayed"] == "true" and SavedView.objects.count() == 1
    assert api.get("saved-views", page="training:jobs").json()["results"] == [body]
    assert api.get("saved-views", page="events:events").json()["results"] == []
    assert api.get(f"saved-views/{body['id']}").json() == body
    api.client.force_login(olivia)
    assert b"Dear failures" in api.client.get("/jobs/").content
    assert api.client.get(body["address"]).status_code == 200
    logged = AuditEvent.objects.get(action="view.saved")
    assert logged.after["asked"] == {"sort": ["cost"], "status": ["failed"]}


def test_only_its_owner_renames_a_view_and_only_in_the_version_read(api: Caller, dan: Any, charlie: Any) -> None:
    made = api.post("saved-views", VIEW | {"shared": True})
    path = f"saved-views/{made.json()['id']}"
    renamed = api.send("patch", path, {"name": "Failures"}, {"If_Match": made["ETag"]})
    assert renamed.json() == made.json() | {"name": "Failures"}
    problem(api.send("delete", path, None, {"If_Match": made["ETag"]}), 412)
    assert Caller(dan).get(path).status_code == 200
    problem(Caller(dan).patch(path, {"name": "Mine"}), 403)
    problem(Caller(charlie).get(path), 404)
    assert api.send("delete", path, None, {"If_Match": renamed["ETag"]}).status_code == 204
    assert not SavedView.objects.exists()


def test_a_viewer_shares_no_view_and_an_unknown_list_is_refused(api: Caller, stella: Any) -> None:
    reader = Caller(stella)
    problem(reader.post("saved-views", VIEW | {"shared": True}), 403)
    assert reader.post("saved-views", VIEW).status_code == 201
    problem(api.post("saved-views", VIEW | {"page": "no:list"}), 400)
    problem(api.post("saved-views", VIEW | {"name": " "}), 400)
    assert api.get("saved-views").json()["results"] == []  # hers is her own
