"""A receiver, and events to send."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.receiver import WebhookReceiver, receiving


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with receiving() as server:
        yield server
