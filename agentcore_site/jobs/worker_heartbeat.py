"""Heartbeats of a worker's main process: from its event loop, and while it waits for an unavailable broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import bootsteps
from celery.worker.consumer import Consumer

from agentcore_site.lib.heartbeats import SECONDS, heartbeat


class WorkerHeartbeat(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery has no types
    """Starts again with each connection to the broker: a consumer that lost its connection drops its timers."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def start(self, consumer: Any) -> None:
        consumer.timer.call_repeatedly(SECONDS, heartbeat)


class HeartbeatConsumer(Consumer):  # type: ignore[misc]
    """While it waits for the broker, it sleeps outside of the event loop, and checks each second whether to stop."""

    def ensure_connected(self, conn: Any) -> Any:
        ensure = conn.ensure_connection

        def ensure_and_heartbeat(*args: Any, callback: Callable[[], None], **options: Any) -> Any:
            def asked() -> None:
                heartbeat()
                callback()

            return ensure(*args, callback=asked, **options)

        conn.ensure_connection = ensure_and_heartbeat
        return super().ensure_connected(conn)
