"""Artefacts of every run: the model card and the curves."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from agentcore_site.tenancy.actors import Actor
from tests.factories import ModelEndpointFactory
from tests.support.callers import Caller
from tests.support.rows import lived_run, queued_run
from training.services.runs import run_verdict_set

pytestmark = pytest.mark.django_db


def test_the_model_card_names_the_agent_the_data_and_the_proof(operator: Actor, agent: Any) -> None:
    run = lived_run(operator, agent)
    proof = {"verdict": "Better.", "success_rate": 0.7, "baseline_success_rate": 0.4, "p_value": 0.003}
    run_verdict_set(run, proof)
    answer = Caller(operator.user).get(f"training-jobs/{run.pk}/model-card.md")
    assert answer["Content-Type"] == "text/markdown; charset=utf-8"
    card = answer.content.decode()
    assert card.startswith(f"# {agent.name}: checkpoint-")
    assert "- Held-out success rate: 70.0%\n- Of the untrained baseline: 40.0%\n" in card
    assert f"{run.trajectories:,} in {run.iteration:,}" in card
    assert "- Base model: none: the policy chooses actions" in card
    assert [line for line in card.splitlines() if line.startswith("## ")] == [
        "## Model", "## Training data", "## Evaluation", "## Cost", "## Acceptance criteria", "## Warnings",
    ]  # fmt: skip


def test_the_curves_are_a_picture_of_what_was_measured(operator: Actor, agent: Any) -> None:
    run = lived_run(operator, agent, iterations=3)
    answer = Caller(operator.user).get(f"training-jobs/{run.pk}/curves.svg")
    picture = ElementTree.fromstring(answer.content)
    lines = picture.findall("{http://www.w3.org/2000/svg}polyline")
    assert [len(line.attrib["points"].split()) for line in lines] == [3, 3, 3]  # there is no loss in these rows
    assert b"not measured" in answer.content


def test_a_run_that_has_not_begun_has_both(operator: Actor, agent: Any) -> None:
    run = queued_run(operator, agent)
    api = Caller(operator.user)
    assert (
        "The held-out queries have not been asked." in api.get(f"training-jobs/{run.pk}/model-card.md").content.decode()
    )
    assert b"polyline" not in api.get(f"training-jobs/{run.pk}/curves.svg").content


def test_the_model_card_of_a_language_model_names_its_endpoints_model(operator: Actor, agent: Any) -> None:
    run = queued_run(operator, agent)
    endpoint = ModelEndpointFactory(organization=agent.organization, model="small-8b")
    agent.__class__.objects.filter(pk=agent.pk).update(runtime="llm", endpoint=endpoint, model="")
    api = Caller(operator.user)
    assert "- Base model: small-8b\n" in api.get(f"training-jobs/{run.pk}/model-card.md").content.decode()
    agent.__class__.objects.filter(pk=agent.pk).update(model="large-70b")
    assert "- Base model: large-70b\n" in api.get(f"training-jobs/{run.pk}/model-card.md").content.decode()
