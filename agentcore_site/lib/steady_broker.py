"""A worker's interval of reconnection to an unavailable broker."""

from __future__ import annotations

from typing import Any, Final

from celery.app.amqp import AMQP
from kombu.connection import Connection

AGAIN: Final = {"interval_start": 1, "interval_step": 0, "interval_max": 1}  # seconds


class SteadyConnection(Connection):
    """Tries each second. Kombu's own interval grows up to half a minute: jobs would stay idle that long after their
    broker is back."""

    def ensure_connection(self, *args: Any, **kwargs: Any) -> Any:
        return super().ensure_connection(*args, **(AGAIN | kwargs))  # type: ignore[no-untyped-call]


class SteadyBroker(AMQP):
    Connection = SteadyConnection
