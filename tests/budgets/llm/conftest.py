"""A model server per test, with prices that the client's table shares."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from budgets.meter_port import FreeMeter
from tests.support.llm_client import SERVER_PRICES
from tests.support.llm_server import ModelServer


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(prices=SERVER_PRICES) as started:
        yield started


@pytest.fixture
def meter() -> FreeMeter:
    return FreeMeter()
