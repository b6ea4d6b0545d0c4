"""The page of settings says what the schema says."""

from __future__ import annotations

from agentcore_site.env import ROOT
from training.config.reference import page


def test_the_page_of_settings_has_not_drifted() -> None:
    written = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert written == page(), "run: .venv/bin/python -m training.config.reference > docs/configuration.md"
