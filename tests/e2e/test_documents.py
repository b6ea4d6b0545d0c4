"""The documents, as `make docs` builds them, in a real browser under the product's policy."""

from __future__ import annotations

import os
from typing import Any

import pytest
from django.conf import settings

from tests.e2e.test_launch import chrome  # noqa: F401  (a fixture)
from tests.support.browser import Watched
from tests.support.workers import LiveSite

pytestmark = [
    pytest.mark.thorough(reason="a browser"),
    pytest.mark.skipif(
        not (settings.DOCUMENTS / "index.html").is_file() and not os.environ.get("CI"), reason="make docs was not run"
    ),
]


def test_pages_and_search_work_under_the_policy(live_site: LiveSite, chrome: Any) -> None:  # noqa: F811
    for width in (1440, 390):
        watched = Watched(chrome.new_page(viewport={"width": width, "height": 900}))
        page = watched.page
        for path in ("", "concepts/", "how-to/add-a-page/", "project/SECURITY/"):
            answer = page.goto(f"{live_site.url}/docs/{path}", wait_until="networkidle")
            assert answer.status == 200 and "'sha256-" in answer.headers["content-security-policy"], path
            assert page.evaluate("typeof __md_get") == "function", path  # the first inline script ran
            page.reload(wait_until="networkidle")  # a 304 keeps the policy
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        if width == 390:
            page.click("label[for=__search].md-header__button")
        page.type("[data-md-component=search-query]", "checkpoint")  # the theme waits for keys
        page.click(".md-search-result__link >> nth=0")
        page.wait_for_selector("article mark, article h1")
        assert "/docs/" in page.url and watched.complaints == [], width
