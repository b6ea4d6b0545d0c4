"""The NATS server of the tests of events."""

from tests.evaluation.events.conftest import nats_server

__all__ = ["nats_server"]
