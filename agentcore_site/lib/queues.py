"""The queues of workers, and the settings of each broker: Redis, Redis by Sentinels, or RabbitMQ."""

from __future__ import annotations

from typing import Any, Final

from kombu.entity import Queue

from agentcore_site.lib.redis_address import celery_broker

PRIORITIES: Final = (0, 3, 6)  # of jobs, the most urgent first
SHORT_TASKS: Final = "default"
AMQP: Final = ("amqp://", "amqps://", "pyamqp://")


def job_queue(priority: int) -> str:
    """The queue of wake messages of jobs: one for each priority, so that every broker has them. The most urgent comes
    first by name, the order in which Redis is polled."""
    return f"compute.{priority}"


JOB_QUEUES: Final = tuple(job_queue(priority) for priority in PRIORITIES)


def broker_settings(url: str) -> tuple[str, dict[str, Any], list[Queue]]:
    """Celery's address of the broker, its transport's options, and the queues for that broker."""
    if url.startswith(AMQP):
        # Quorum queues survive the loss of a node; a message is confirmed when most nodes have it.
        options: dict[str, Any] = {"confirm_publish": True, "confirm_timeout": 1, "write_timeout": 10}
        return url, options, _queues({"x-queue-type": "quorum"})
    address, options = celery_broker(url)
    options |= {
        "visibility_timeout": 3600,
        "queue_order_strategy": "sorted",
        "priority_steps": [0],
        "socket_timeout": 10,
        "socket_connect_timeout": 2,
    }
    return address, options, _queues({})


def _queues(arguments: dict[str, Any]) -> list[Queue]:
    names = (SHORT_TASKS, *JOB_QUEUES)
    return [Queue(name, routing_key=name, queue_arguments=arguments) for name in names]  # type: ignore[no-untyped-call]
