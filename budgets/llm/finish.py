"""Reasons why an answer ended, in the words of OpenAI's API. Servers and proxies have others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "stop": ("stop", "end_turn", "stop_sequence", "eos", "eos_token", "complete", "completed", "end", "finish", "done"),
    "length": ("length", "max_tokens", "model_length", "max_output_tokens", "model_context_window_exceeded"),
    "tool_calls": ("tool_calls", "tool_call", "tool_use", "tool"),
    "function_call": ("function_call",),
    "content_filter": (
        "content_filter", "safety", "sensitive", "refusal", "recitation", "blocklist", "prohibited_content", "spii",
        "content_filtered", "guardrail_intervened",
    ),
}  # fmt: skip
KNOWN: Final = {other: name for name, others in NAMES.items() for other in others}
# The service's failure in the middle of an answer: such an answer is cut.
BROKEN: Final = frozenset({
    "error", "network_error", "insufficient_system_resource", "abort", "aborted", "cancelled", "server_error",
    "malformed_function_call",
})  # fmt: skip
NO_REASONS: Final = frozenset({"", "null", "none", "unknown", "finish_reason_unspecified"})


def finish_of(reason: str) -> str:
    """``reason`` in OpenAI's words; one that is not known stays, and those that are no reason are ""."""
    small = reason.lower()
    return "" if small in NO_REASONS else KNOWN.get(small, reason)


def ends(reason: object) -> bool:
    """Whether a stream is whole when it gives this reason."""
    return isinstance(reason, str) and reason.lower() in KNOWN
