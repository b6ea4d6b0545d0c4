"""The headers that Portkey's gateway reads (https://portkey.ai/docs/api-reference/inference-api/headers)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from budgets.llm.secret import Secret


def portkey_headers(
    *,
    api_key: Secret | None = None,
    provider: str = "",
    config: str | Mapping[str, Any] | None = None,
    virtual_key: Secret | None = None,
    custom_host: str = "",
    trace_id: str = "",
    metadata: Mapping[str, str] | None = None,
) -> dict[str, str | Secret]:
    """Headers for ``Endpoint.headers``; what is not given is left out.

    ``config`` is the slug of a saved config, or a config itself: that may hold keys of providers, so that it becomes
    a secret. The provider's own key goes into ``Endpoint.api_key``. Portkey cuts values of ``metadata`` at 128
    characters and refuses what is no text; ours become texts here.
    """
    written: dict[str, str | Secret | None] = {
        "x-portkey-api-key": api_key,
        "x-portkey-provider": provider,
        "x-portkey-config": config if isinstance(config, str) else None,
        "x-portkey-virtual-key": virtual_key,
        "x-portkey-custom-host": custom_host,
        "x-portkey-trace-id": trace_id,
        "x-portkey-metadata": metadata_header(metadata) if metadata else None,
    }
    if config is not None and not isinstance(config, str):
        written["x-portkey-config"] = Secret(json.dumps(config))
    return {name: value for name, value in written.items() if value}


def metadata_header(metadata: Mapping[str, Any]) -> str:
    """Metadata as one ASCII line of JSON: no newline of a value can start another header."""
    return json.dumps({str(name): str(value)[:128] for name, value in metadata.items()})
