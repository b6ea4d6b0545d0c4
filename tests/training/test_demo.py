"""The demo's rows are made once, and follow what moved."""

from __future__ import annotations

import pytest

from experiences.models import Agent, Dataset, ModelEndpoint
from training import demo

pytestmark = pytest.mark.django_db


def test_an_agent_of_weights_is_made_once_and_its_endpoint_follows_the_model_server() -> None:
    first = demo.seed_weights("http://127.0.0.1:8300/v1", "random", "key-1")
    again = demo.seed_weights("http://127.0.0.1:8301/v1", "random", "key-2")
    assert first == again and first.organization == demo.seed().organization
    [endpoint] = ModelEndpoint.objects.all()
    assert (endpoint.kind, endpoint.base_url, endpoint.pk) == ("weights", "http://127.0.0.1:8301/v1", again.endpoint_id)
    assert Dataset.objects.get().name == "Letters" and Agent.objects.count() == 2


def test_the_demo_of_an_earlier_release_keeps_its_endpoint() -> None:
    first = demo.seed_weights("http://127.0.0.1:8300/v1", "random", "key-1")
    ModelEndpoint.objects.update(name=demo.FORMER_ENDPOINT_NAME)
    assert demo.seed_weights("http://127.0.0.1:8301/v1", "random", "key-2") == first
    assert ModelEndpoint.objects.get().base_url == "http://127.0.0.1:8301/v1"


def test_a_pretrained_model_gets_a_task_of_its_own_and_is_not_called_random() -> None:
    sums = demo.seed_weights("http://127.0.0.1:8300/v1", "SmolLM2-135M-Instruct", "key-1")
    assert (sums.name, sums.max_tokens, Dataset.objects.get().name) == ("Sums", 20, "Sums")
    assert "random" not in sums.description and not Agent.objects.filter(slug="letters").exists()
    assert demo.seed_weights("http://127.0.0.1:8300/v1", "SmolLM2-135M-Instruct", "key-1") == sums
