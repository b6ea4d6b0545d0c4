"""The headers that Portkey's gateway reads (https://portkey.ai/docs/api-reference/inference-api/headers)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from budgets.llm.secret import SHORTEST, Secret, looks_like_a_key

SECRET_NAME: Final = re.compile(
    r"token|.*(?:(?:api|virtual|access|private|secret)[_-]?key|(?:access|auth|bearer|session)[_-]?token"
    r"|secret|password|authorization)",
    re.IGNORECASE,
)
MAY_BE_KEY: Final = re.compile(r"(?=.*\d)[^\s/]{16,}")  # under any name


def portkey_headers(
    *,  # a header each
    api_key: Secret | None = None,
    provider: str = "",
    config: str = "",
    inline_config: Secret | None = None,
    virtual_key: Secret | None = None,
    custom_host: str = "",
    trace_id: str = "",
    metadata: Mapping[str, str] | None = None,
) -> dict[str, str | Secret]:
    """Headers for ``Endpoint.headers``; what is not given is left out.

    ``config`` is the id of a saved config; ``inline_config`` a config itself, as ``config_text`` writes it: that may
    hold keys of providers. The provider's own key goes into ``Endpoint.api_key``. Portkey cuts values of ``metadata``
    at 128 characters and refuses what is no text; ours become texts here.
    """
    written: dict[str, str | Secret | None] = {
        "x-portkey-api-key": api_key,
        "x-portkey-provider": provider,
        "x-portkey-config": inline_config or config,
        "x-portkey-virtual-key": virtual_key,
        "x-portkey-custom-host": custom_host,
        "x-portkey-trace-id": trace_id,
        "x-portkey-metadata": metadata_header(metadata) if metadata else None,
    }
    return {name: value for name, value in written.items() if value}


def metadata_header(metadata: Mapping[str, Any]) -> str:
    """Metadata as one ASCII line of JSON: no newline of a value can start another header."""
    return json.dumps({str(name): str(value)[:128] for name, value in metadata.items()})


def config_text(config: str | Mapping[str, Any]) -> str:
    """A config, given as an object or as its JSON, as one ASCII line of JSON.

    Raises:
        ValueError: it is no JSON object. The message shows nothing of it.
    """
    try:
        value = json.loads(config) if isinstance(config, str) else config
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        raise ValueError("The config is no JSON. Paste it as Portkey shows it, or name a saved config.") from None
    if not isinstance(value, Mapping) or not value:
        raise ValueError('The config is no JSON object, e.g. {"strategy": …, "targets": […]}.')
    return text


def is_written_out(config: str) -> bool:
    """True if the text is a config itself, and not the id of a saved one."""
    return config.lstrip().startswith(("{", "["))


def secrets_in(value: Any, *, strict: bool = False, name: str = "") -> Iterator[str]:
    """The texts in a value of JSON that are keys by their name or their look, at any depth.

    ``strict``: also those that may be one, for masking. In a value that people set they are most often something else.
    """
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from secrets_in(part, strict=strict, name=str(key))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from secrets_in(part, strict=strict, name=name)
    elif isinstance(value, str) and len(value) >= SHORTEST:
        may_be = strict and name != "model" and MAY_BE_KEY.fullmatch(value) is not None
        if may_be or SECRET_NAME.fullmatch(name) or looks_like_a_key(value):
            yield value


def hidden_in(config: str) -> tuple[Secret, ...]:
    """Secrets of a config, which messages hide: a provider's error quotes the key that was wrong, not the header."""
    if not config:
        return ()
    return tuple(Secret(one) for one in sorted({*secrets_in(json.loads(config), strict=True)}, key=len, reverse=True))
