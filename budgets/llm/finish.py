"""Reasons why an answer ended, in the words of OpenAI's API. Servers and proxies have others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "stop": (
        "stop", "end_turn", "stop_sequence", "eos", "eos_token", "complete", "completed", "end", "finish", "finished",
        "done", "normal", "endoftext", "end_of_text", "word",
    ),
    "length": (
        "length", "max_tokens", "model_length", "max_output_tokens", "model_context_window_exceeded", "limit",
        "token_limit", "error_limit", "max_output", "max_length", "context_length_exceeded",
    ),
    "tool_calls": ("tool_calls", "tool_call", "tool_use", "tool"),
    "function_call": ("function_call",),
    "content_filter": ("content_filter",),
}  # fmt: skip
KNOWN: Final = {other: name for name, others in NAMES.items() for other in others}
NO_REASONS: Final = frozenset({"", "null", "none", "unknown", "not_finished", "finish_reason_unspecified"})
# Words within other names. A filter is named first: "ERROR_TOXIC" is one.
_FILTERED: Final = re.compile(
    r"safety|unsafe|filter|toxic|harmful|sensitive|moderat|polic(?:y|ies)|prohibited|block(?:ed|list)|guardrail|refus"
    r"|recitation|copyright|censor|(?:^|_)s?pii(?:_|$)"
)
_BROKEN: Final = re.compile(
    r"error|fail|abort|cancel|time_?(?:d_)?(?:out|limit)|overload|insufficient|unavailable|interrupt|exception|malformed"
    r"|crash|disconnect|preempt|evict|exhaust|rate_limit|quota|(?:unexpected|too_many|invalid|missing)_"
)
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def finish_of(reason: str) -> str:
    """``reason`` in OpenAI's words; one that is not known stays, and those that are no reason are ""."""
    small = _plain(reason)
    if small in NO_REASONS:
        return ""
    return KNOWN.get(small) or ("content_filter" if _FILTERED.search(small) else reason)


def reason_in(choice: Mapping[str, Any]) -> Any:
    """The reason of a choice; of SGLang's and others' objects the type."""
    reason = choice.get("finish_reason")
    return reason.get("type") if isinstance(reason, Mapping) else reason


def ends(reason: object) -> bool:
    """Whether a stream is whole when it gives this reason."""
    return isinstance(reason, str) and finish_of(reason) in NAMES


def breaks_off(reason: object) -> bool:
    """True if the reason is a failure of the service in the middle of an answer, which is cut."""
    return isinstance(reason, str) and not ends(reason) and bool(_BROKEN.search(_plain(reason)))


def _plain(reason: str) -> str:
    """In small letters with underscores: "MaxTokens", "content-filter" and "end turn" too."""
    return _HUMP.sub("_", reason.strip()).replace("-", "_").replace(" ", "_").lower()
