"""Static files: hashed names and compression where they were collected, plain where they were not (development)."""

from __future__ import annotations

from typing import Any

from whitenoise.storage import CompressedManifestStaticFilesStorage


class ConsoleStaticFiles(CompressedManifestStaticFilesStorage):
    # A file that is missing from the manifest must not take a page down; its plain name is served instead.
    manifest_strict = False

    def stored_name(self, name: str) -> Any:
        try:
            return super().stored_name(name)
        except ValueError:
            return name
