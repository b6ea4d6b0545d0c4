"""The head of an answer that is streamed as events."""

from __future__ import annotations

from typing import Final

# The last one has nginx, and others that know its header, pass each event on as it comes.
EVENT_STREAM: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
