"""The documents in the product: public pages, each with the digests of its own inline scripts."""

from __future__ import annotations

import os
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from tests.support.pages import html

PAGES = {"": "var start=1", "concepts/": "var concepts=1", "how-to/add-a-page/": "var page=1"}


@pytest.fixture
def site(tmp_path: Path, settings: Any) -> Path:
    settings.DOCUMENTS = site = tmp_path / "site"
    for address, script in PAGES.items():
        (site / address).mkdir(parents=True)
        page = f'<script>{script}</script><script src="main.js"></script><h1>{address}</h1>'
        (site / address / "index.html").write_text(page, encoding="utf-8")
    for name, content in {"main.js": "1", "main.css": "", "found.json": "{}", "api.yaml": "", "example.py": ""}.items():
        (site / name).write_text(content, encoding="utf-8")
    (tmp_path / "secret.txt").write_text("a secret", encoding="utf-8")
    return site


def policy(response: Any) -> dict[str, list[str]]:
    directives = [one.split() for one in response["Content-Security-Policy"].split(";")]
    return {name: values for name, *values in directives}


def scripts(source: str) -> list[str]:
    return ["'self'", f"'sha256-{b64encode(sha256(source.encode()).digest()).decode()}'"]


@pytest.mark.parametrize(("address", "script"), PAGES.items())
def test_each_page_allows_its_own_inline_script(site: Path, address: str, script: str) -> None:
    response = Client().get(f"/docs/{address}")
    assert response.status_code == 200 and response["Content-Type"] == "text/html; charset=utf-8"
    assert policy(response)["script-src"] == scripts(script) and policy(response)["style-src"] == ["'self'"]
    # The browser takes the policy of the 304 for the page that it kept.
    again = Client().get(f"/docs/{address}", headers={"If-None-Match": response["ETag"]})
    assert again.status_code == 304 and policy(again) == policy(response)


def test_a_page_that_was_built_again_has_the_digest_of_its_new_script(site: Path) -> None:
    before = Client().get("/docs/")
    (site / "index.html").write_text("<script>var other=1</script>", encoding="utf-8")
    os.utime(site / "index.html", ns=(1, 1))
    after = Client().get("/docs/", headers={"If-None-Match": before["ETag"]})
    assert after.status_code == 200 and policy(after)["script-src"] == scripts("var other=1")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("main.js", "text/javascript; charset=utf-8"),
        ("main.css", "text/css; charset=utf-8"),
        ("found.json", "application/json"),
        ("api.yaml", "text/plain; charset=utf-8"),
        ("example.py", "text/plain; charset=utf-8"),
    ],
)
def test_a_file_has_the_type_of_its_kind(site: Path, name: str, kind: str) -> None:
    response = Client().get(f"/docs/{name}")
    assert (response.status_code, response["Content-Type"]) == (200, kind)
    assert policy(response)["script-src"] == ["'self'"]


def test_a_folder_is_shown_with_a_slash(site: Path) -> None:
    assert Client().get("/docs/concepts?a=1")["Location"] == "/docs/concepts/?a=1"
    assert Client().get("/docs")["Location"] == "/docs/"
    assert Client().post("/docs/").status_code == 405


def test_nothing_outside_of_the_folder_is_shown(site: Path, tmp_path: Path, db: None) -> None:
    (site / "leak.txt").symlink_to(tmp_path / "secret.txt")
    (site / "up").symlink_to(tmp_path)
    (site / "linked").mkdir()
    (site / "linked" / "index.html").symlink_to(tmp_path / "secret.txt")
    (site / "circle").symlink_to("circle")
    traversals = [
        "../secret.txt",
        "%2e%2e/secret.txt",
        "concepts/../../secret.txt",
        "..",
        "../",
        f"/{tmp_path}/secret.txt",
    ]
    links = ["leak.txt", "up", "up/", "up/secret.txt", "linked/", "circle"]
    others = ["nothing", "nothing/", "main.js/", "how-to/", "a%00b", "a" * 300, "..%5csecret.txt"]
    for path in (*traversals, *links, *others):
        response = Client().get(f"/docs/{path}")
        assert response.status_code == 404 and "a secret" not in html(response), path
        assert "This page does not exist" in html(response), path


def test_without_a_site_the_page_names_the_command(settings: Any, tmp_path: Path, db: None) -> None:
    settings.DOCUMENTS = tmp_path / "none"
    for path in ("", "concepts/"):
        response = Client().get(f"/docs/{path}")
        assert response.status_code == 404
        assert "The documentation was not built" in html(response) and "make docs" in html(response)


def test_the_menu_and_the_api_reference_lead_to_the_documents(console: Client) -> None:
    for path in ("/", "/api/v1/docs/"):
        assert 'href="/docs/"' in html(console.get(path)), path
    assert 'href="/docs/"' in html(Client().get("/api/v1/docs/"))
