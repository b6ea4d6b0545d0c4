"""The committed description of the REST API, parsed once a process: with libyaml, which takes a tenth of the time."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import yaml

from agentcore_site import env

COMMITTED: Final = env.ROOT / "docs" / "openapi.yaml"


@cache
def described() -> dict[str, Any]:
    """The whole description. A test that changes it takes a copy."""
    return dict(yaml.load(COMMITTED.read_text(encoding="utf-8"), yaml.CSafeLoader))
