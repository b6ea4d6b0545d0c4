"""The browsable index and the reference: what a person finds there works when it is copied."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from django.test import Client

from agentcore_site.urls import rest_urls
from agentcore_site.views.api_reference import document, reference
from tests.support.callers import Caller
from tests.support.pages import html

pytestmark = pytest.mark.django_db

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


def test_a_program_gets_a_map_of_addresses_and_each_answers(api: Caller) -> None:
    for accept in ("application/json", "*/*", ""):
        response = Client().get("/api/v1/", headers={"Accept": accept} if accept else {})
        assert response["Content-Type"] == "application/json", accept
    found = response.json()["resources"]
    registered = {prefix for prefix, _, _ in rest_urls.router.registry}
    listed = {one for one in registered if f"/api/v1/{one}" in document()["paths"]}
    assert {one for one in listed if "get" in document()["paths"][f"/api/v1/{one}"]} <= set(found)
    for name, address in found.items():
        assert address == f"http://testserver/api/v1/{name}"
        # 400: it asks for a parameter; 403: for another role.
        assert api.get(name).status_code in {200, 400, 403}, name


def test_a_browser_gets_a_page_that_leads_everywhere(olivia: Any) -> None:
    signed_in = Client()
    signed_in.force_login(olivia)
    for client, known in ((Client(), False), (signed_in, True)):
        response = client.get("/api/v1/", headers=BROWSER)
        assert response["Content-Type"].startswith("text/html") and "Accept" in response["Vary"]
        shown = html(response)
        assert ("Create a key" in shown, 'aria-label="Main menu"' in shown) == (known, known)
        for address in set(re.findall(r'href="(/api/v1/[^"#]*)', shown)):
            assert client.get(address, headers=BROWSER).status_code == 200, address


def test_every_operation_is_in_the_reference_with_its_fields_and_a_request(client: Client) -> None:
    shown = {slug: html(client.get(f"/api/v1/docs/{slug}/")) for slug in reference()}
    for path, operations in document()["paths"].items():
        for verb, operation in operations.items():
            [page] = [text for text in shown.values() if f'id="{operation["operationId"]}"' in text]
            assert f"{verb.upper()} {path}" in page
            for parameter in operation.get("parameters", ()):
                assert f"<code>{parameter['name']}</code>" in page, (path, parameter["name"])
    assert all("A set of REST addresses" not in text for text in shown.values())
    assert client.get("/api/v1/docs/nothing/").status_code == 404


def test_the_requests_of_the_reference_keep_the_key_out_and_are_one_command_each() -> None:
    from agentcore_site.console.snippets import snippets

    for tag in reference().values():
        for one in tag.operations:
            for snippet in snippets(one.call, "https://agents.example.org"):
                assert "AGENTCORE_KEY" in snippet.text and "ac_" not in snippet.text
                if snippet.key == "curl":
                    words = shlex.split(snippet.text)
                    assert words[0] == "curl" and f"https://agents.example.org{one.path}" in words
                if snippet.key == "python":
                    compile(snippet.text, one.path, "exec")
