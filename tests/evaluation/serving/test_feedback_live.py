"""Feedback on what the real gateway answered, by the id that it answered with."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import httpx
import pytest

from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.services import api_key_create
from tests.evaluation.serving.production import production
from tests.support.llm_server import ModelServer
from tests.support.playbooks import PRICE
from tests.support.workers import Fleet

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_program_that_sends_feedback_at_once_is_accepted_and_the_feedback_is_stored_within_a_second(
    fleet: Fleet, adam: Any, acme: Any, journal: str
) -> None:
    with ModelServer(prices={"small": PRICE}) as server:
        shop = production(fleet, Actor(adam), server, acme, GATEWAY_JOURNAL=journal)
        _, gives = api_key_create(Actor(adam), name="gives", scopes=["feedback:write"])
        _, reads = api_key_create(Actor(adam), name="reads", scopes=["training:view"])
        api, took = f"http://127.0.0.1:{shop.port}/api/v1", []
        for _ in range(5):
            name = shop.ask().headers["x-agentcore-trace-id"]
            began = time.perf_counter()
            body = {"trace": name, "metric": "thumbs", "value": "down"}
            given = httpx.post(f"{api}/feedback", json=body, headers={"authorization": f"Bearer {gives}"})
            assert given.status_code == 201, given.text
            seen = httpx.get(f"{api}/traces/{name}", headers={"authorization": f"Bearer {reads}"}).json()
            took.append(time.perf_counter() - began)
            assert [(one["metric"], one["value"]) for one in seen["feedback"]] == [("thumbs", 0.0)]
    assert median(took) < 1, took
    print(f"feedback to visible: {median(took) * 1e3:.0f} ms")
