"""The description of the API is the committed one, and names what there is."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.core.management import call_command
from drf_spectacular.generators import SchemaGenerator

from agentcore_site import env
from agentcore_site.rpc import METHODS
from tests.support.callers import Caller
from tests.support.openapi import COMMITTED, described


@pytest.mark.thorough(reason=".ci/run compares them by itself")
def test_the_committed_description_is_the_codes(tmp_path: Any) -> None:
    """It also is valid OpenAPI 3, and nothing in it had to be guessed."""
    path = tmp_path / "openapi.yaml"
    call_command("spectacular", "--validate", "--fail-on-warn", "--file", str(path))
    assert path.read_text() == COMMITTED.read_text(), "run `make openapi` and commit docs/openapi.yaml"


def test_each_former_name_of_a_field_leads_to_a_field_of_the_same_type() -> None:
    former = 0
    for name, schema in described()["components"]["schemas"].items():
        fields = schema.get("properties", {})
        for field, shape in fields.items():
            if shape.get("deprecated") and (found := re.search("former name of `(.+)`", shape.get("description", ""))):
                present = fields[found[1]]
                assert not present.get("deprecated") and present["type"] == shape["type"], (name, field)
                assert present.get("items") == shape.get("items"), (name, field)
                former += 1
    assert former


@pytest.mark.django_db
def test_description_is_served_to_every_caller() -> None:
    client = Caller().client
    response = client.get("/api/v1/schema/", headers={"Accept": "application/json"})
    assert response.status_code == 200 and response.json()["openapi"].startswith("3.")
    again = client.get("/api/v1/schema/", headers={"Accept": "application/json", "If-None-Match": response["ETag"]})
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", response["ETag"])
    text = client.get("/api/v1/schema/")
    assert text["ETag"] != response["ETag"] and text.content == (env.ROOT / "docs/openapi.yaml").read_bytes()


@pytest.mark.django_db
def test_description_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Caller().client
    client.get("/api/v1/schema/")
    monkeypatch.setattr(SchemaGenerator, "get_schema", lambda *_, **__: pytest.fail("it is made again"))
    assert client.get("/api/v1/schema/").status_code == 200


def test_every_operation_describes_its_purpose_and_its_errors() -> None:
    for path, operations in described()["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            assert operation.get("summary"), where
            assert operation.get("tags"), where
            if path != "/api/v1/jsonrpc":
                assert "application/problem+json" in operation["responses"]["400"]["content"], where


@pytest.mark.django_db
def test_no_list_ignores_an_unknown_query_parameter(adam: Any) -> None:
    admin = Caller(adam)
    lists = [path for path, operations in described()["paths"].items() if "get" in operations and "{" not in path]
    for path in lists:
        refused = admin.get(f"{path.removeprefix('/api/v1/')}?q=x")
        assert refused.status_code == 400 and "Unknown query parameter 'q'" in refused.json()["detail"], path
    assert len(lists) > 40


def test_every_post_that_makes_something_has_an_example_and_takes_an_idempotency_key() -> None:
    for path in ("agents", "datasets", "training-jobs", "evaluations"):
        operation = described()["paths"][f"/api/v1/{path}"]["post"]
        content = operation["requestBody"]["content"]["application/json"]
        assert content["examples"], path
        assert "Idempotency-Key" in {one["name"] for one in operation["parameters"]}, path


def test_the_documents_name_every_method_and_address() -> None:
    words = (env.ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert all(f"`{method}`" in words for method in METHODS)
    for path in described()["paths"]:
        last = [piece for piece in path.split("/") if piece and not piece.startswith("{")][-1]
        assert last in words, path
