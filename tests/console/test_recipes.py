"""The recipes of a page and of a REST resource, executed word for word on a site that does not have them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.template import engines
from django.urls import path
from rest_framework.routers import SimpleRouter

from agentcore_site import rest_urls, urls
from agentcore_site.jobs import api as jobs_api
from agentcore_site.jobs import selectors
from tests.support.callers import Caller
from tests.support.recipes import address_of, defined, run_tests_of, template_into

pytestmark = pytest.mark.django_db


@pytest.fixture
def api(olivia: Any) -> Caller:
    return Caller(olivia)


@pytest.fixture
def jobs_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = defined("add-a-page", "jobs_failed", selectors)
    monkeypatch.setattr(selectors, "jobs_failed", found, raising=False)


def site_with(patterns: list[Any], settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    site = ModuleType("site_with_a_recipe")
    site.__dict__.update(vars(urls) | {"urlpatterns": [*patterns, *urls.urlpatterns]})
    monkeypatch.setitem(sys.modules, site.__name__, site)
    settings.ROOT_URLCONF = site.__name__


def test_the_recipe_of_a_page_works_word_for_word(
    jobs_failed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any, request: pytest.FixtureRequest
) -> None:
    template_into("add-a-page", tmp_path)
    engine: Any = engines["django"]
    monkeypatch.setattr(engine.engine, "dirs", [tmp_path, *engine.engine.dirs])
    views = ModuleType("failed_jobs")
    views.failed_jobs = defined("add-a-page", "failed_jobs", ModuleType("agentcore_site.views.failed_jobs"))  # type: ignore[attr-defined]
    site_with([address_of("add-a-page", "path", {"path": path, "failed_jobs": views})], settings, monkeypatch)
    assert run_tests_of("add-a-page", request) == 1


def test_the_recipe_of_a_rest_resource_works_word_for_word(
    jobs_failed: None, monkeypatch: pytest.MonkeyPatch, settings: Any, request: pytest.FixtureRequest
) -> None:
    router = SimpleRouter(trailing_slash=False, use_regex_path=False)
    view_set = defined("add-a-rest-resource", "FailedJobViewSet", jobs_api)
    address_of("add-a-rest-resource", "router.register", {"router": router, "FailedJobViewSet": view_set})
    assert rest_urls.router.trailing_slash == router.trailing_slash
    site_with([path(f"api/v1/{one.pattern}", one.callback) for one in router.urls], settings, monkeypatch)
    assert run_tests_of("add-a-rest-resource", request) == 1
