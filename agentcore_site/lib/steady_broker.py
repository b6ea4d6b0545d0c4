"""How often a worker asks for its broker while that is away."""

from __future__ import annotations

from typing import Any, Final

from celery.app.amqp import AMQP
from kombu.connection import Connection

AGAIN: Final = {"interval_start": 1, "interval_step": 0, "interval_max": 1}  # seconds


class SteadyConnection(Connection):
    """Asks each second. Kombu's own asks less and less often, up to twice a minute: so long jobs would stand still
    after their broker is back."""

    def ensure_connection(self, *args: Any, **kwargs: Any) -> Any:
        return super().ensure_connection(*args, **(AGAIN | kwargs))  # type: ignore[no-untyped-call]


class SteadyBroker(AMQP):
    Connection = SteadyConnection
