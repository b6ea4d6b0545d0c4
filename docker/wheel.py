"""A hook of the wheel's build: the documents' site is part of the wheel where `make docs` made it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SITE = "docker/docs/site"


class DocumentsHook(BuildHookInterface):  # type: ignore[misc, type-arg]  # an extra of development
    """Adds the site to the files of the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        site = Path(self.root) / SITE
        if site.is_dir():
            build_data["force_include"][str(site)] = f"agentcore_site/bundle/{SITE}"
