"""No element of a page ends outside of its card or the window, at ten widths, and each target can be hit.

The suite looks at the pages with the widest tables and forms. ``AXE_PAGES=all`` looks at every page that has an address
(minutes).
"""

from __future__ import annotations

import os
from typing import Any, Final

import pytest

from tests.e2e.test_accessibility import MOST_USED, pages, run, short_pings, values  # noqa: F401
from tests.e2e.test_launch import chrome, sign_in  # noqa: F401
from tests.e2e.test_second_step import web  # noqa: F401
from tests.support.geometry import misplaced
from tests.support.routes import CONSOLE
from tests.support.workers import LiveSite
from training.models import TrainingRun
from training.presenters.tabs import TABS

pytestmark = pytest.mark.thorough(reason="a browser")

WIDE: Final = (
    *MOST_USED, "agents/", "trajectories/", "evaluations/", "traces/", "budgets/prices/", "datasets/", "keys/",
    "dashboards/models/", "checkpoints/<uuid:checkpoint_id>/promote/", "notices/settings/", "system/", "audit/",
    "playground/", "playground/rows/",
)  # fmt: skip


def test_no_element_sticks_out_at_any_width(
    web: LiveSite,  # noqa: F811
    chrome: Any,  # noqa: F811
    adam: Any,
    run: TrainingRun,  # noqa: F811
    values: dict[str, Any],  # noqa: F811
) -> None:
    everything = os.environ.get("AXE_PAGES") == "all"
    paths = pages(adam, values, sorted(CONSOLE) if everything else [one for one in WIDE if one in CONSOLE])
    paths += [f"/jobs/{run.pk}/?tab={tab.key}" for tab in TABS]
    page = chrome.new_page()
    result: dict[str, list[str]] = {}
    sign_in(page, web, "adam")
    for path in paths:
        page.goto(f"{web.url}{path}", wait_until="load")
        if wrong := misplaced(page):
            result[path] = wrong
    assert len(paths) >= (100 if everything else len(WIDE))
    assert not result, "\n" + "\n".join(f"{path}\n  " + "\n  ".join(wrong) for path, wrong in result.items())
