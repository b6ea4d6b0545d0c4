"""What the gate says of a release before it goes out."""

from __future__ import annotations

from typing import Any

from serving.models import Release


def verdict_of(release: Release, current: Release | None) -> dict[str, Any]:
    return {"passed": True, "sentence": "", "findings": []}
