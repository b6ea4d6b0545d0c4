"""In a real browser: a release leaves as a skill, comes back with a byte changed and as it was, and its lessons wait at
another agent; wide and narrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentcore_site.tenancy.actors import Actor
from evaluation.serving.releases.services import release_make
from experiences.models import Experience
from tests.e2e.test_launch import chrome, sign_in  # noqa: F401
from tests.evaluation.serving.test_skill import files_of, packed
from tests.evaluation.serving.test_skill_imports import TEXTS, agent_of
from tests.factories import ExperienceFactory
from tests.support.accessibility import violations
from tests.support.browser import Watched
from tests.support.workers import LiveSite

pytestmark = pytest.mark.thorough(reason="a browser")
FITS = "document.documentElement.scrollWidth <= window.innerWidth"


@pytest.mark.parametrize("width", [1440, 390])
def test_a_skill_goes_out_and_its_lessons_come_back(
    live_site: LiveSite,
    acme: Any,
    olivia: Any,
    chrome: Any,  # noqa: F811
    tmp_path: Path,
    width: int,
) -> None:
    desk, twin = (agent_of(acme, slug, name=slug.title(), created_by=olivia) for slug in ("desk", "twin"))
    for at, text in enumerate(TEXTS):
        ExperienceFactory(agent=desk, handle=f"x{at}", status="active", summary=text)
    release = release_make(Actor(olivia), desk)
    watched = Watched(chrome.new_page(viewport={"width": width, "height": 900}))
    page = watched.page
    sign_in(page, live_site, "olivia")

    page.goto(f"{live_site.url}/releases/{release.pk}/")
    with page.expect_download() as downloading:
        page.click("a:has-text('As a skill')")
    whole, changed = tmp_path / "desk-1.zip", tmp_path / "changed.zip"
    downloading.value.save_as(whole)
    files = files_of(whole.read_bytes())
    name = "desk-1/SKILL.md"
    changed.write_bytes(packed(files | {name: files[name].replace(b"2026", b"2027")}))

    page.goto(f"{live_site.url}/agents/{twin.pk}/")
    page.click("a:has-text('import a skill')")
    for file, words in (
        (changed, "SKILL.md was changed since it was signed"),
        (whole, f"Unchanged since {acme.name} signed"),
    ):
        page.set_input_files("#file", file)
        assert page.locator("#agent option:checked").inner_text() == "Twin"
        page.click("button:has-text('Check the file')")
        page.wait_for_selector(f"text={words}")
        assert page.evaluate(FITS), (width, words)
    boxes = [one.bounding_box() for one in page.locator("dd code").all()]
    assert len(boxes) == 4 and all(box["x"] >= 0 and box["x"] + box["width"] <= width for box in boxes), boxes
    assert violations(page) == []
    assert not Experience.objects.filter(agent=twin).exists()
    page.click("button:has-text('Import 2 lessons into quarantine')")
    page.wait_for_selector("text=2 lessons wait in quarantine")
    assert page.evaluate(FITS), width
    assert list(Experience.objects.filter(agent=twin).order_by("created_at").values_list("summary", "status")) == [
        (text, "quarantined") for text in TEXTS
    ]
    page.click(f"text={TEXTS[0]}")
    page.wait_for_selector("text=from the skill desk-1")
    assert watched.complaints == []
