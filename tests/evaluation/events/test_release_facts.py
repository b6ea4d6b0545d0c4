"""A deployment's event says what was measured of the release, and null of all else."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from evaluation.events.models import OutboxEvent
from evaluation.events.payloads.status import StoredRun, status_payload
from evaluation.events.release_facts import _proven, _regressed
from evaluation.events.subjects import DEPLOYED
from evaluation.serving.deployments.services import deployment_start, release_approve, serving_change
from evaluation.serving.feedback.services import feedback_give
from evaluation.serving.gate.verdict import GateRule
from evaluation.serving.models import Deployment, ProductionTrace, Release
from evaluation.serving.releases.services import release_make
from experiences.models import Agent
from tests import factories
from tests.support.events import faults, outgoing_payloads
from tests.support.suites import WORK, suite_run_stored

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent(published: Organization, olivia: Any) -> Agent:
    endpoint = factories.ModelEndpointFactory(organization=published)
    return factories.AgentFactory(
        organization=published, created_by=olivia, runtime="llm", environment="dataset", endpoint=endpoint
    )


def deployed(actor: Actor, release: Release, **wanted: Any) -> dict[str, Any]:
    """The newest event of a deployment at once."""
    deployment_start(actor, release, strategy="immediate", **wanted)
    payloads = outgoing_payloads()
    assert faults({DEPLOYED: payloads[DEPLOYED]}) == []
    OutboxEvent.objects.all().delete()
    return payloads[DEPLOYED][-1]


def gate(actor: Actor, agent: Agent, **asked: Any) -> None:
    serving_change(actor, agent, fallbacks=[], while_away_usd=0, gate=GateRule(**asked))


def test_a_gate_that_asks_nothing_passes_no_benchmark(operator: Actor, agent: Agent) -> None:
    gate(operator, agent, safety=False)
    event = deployed(operator, release_make(operator, agent))
    assert event["validation_results"] == {
        "benchmark_passed": None,
        "safety_checks_passed": None,
        "performance_regression": None,
        "human_eval_score": None,
    }
    assert event["metadata"]["approval_status"] == "automated"
    about = event["model_info"]
    assert (about["checkpoint_path"], about["training_samples"], event["training_job_id"]) == (None, None, None)


def test_suites_of_exactly_this_release_count_where_the_gate_asks_nothing(operator: Actor, agent: Agent) -> None:
    gate(operator, agent, safety=False)
    release = release_make(operator, agent)
    suite_run_stored(operator, release, name="work", spec=WORK | {"threshold": 0.7}, safe=8)
    assert deployed(operator, release)["validation_results"]["benchmark_passed"] is True
    factories.ExperienceFactory(agent=agent, handle="x0000000009")
    other = release_make(operator, agent)
    assert deployed(operator, other)["validation_results"]["benchmark_passed"] is None


def test_the_gate_is_quoted_also_where_a_person_overrode_the_gate(operator: Actor, adam: Any, agent: Agent) -> None:
    gate(operator, agent, safety=False, suites={"work": 0.9})
    release = release_make(operator, agent)
    suite_run_stored(operator, release, name="work", spec=WORK, safe=8)
    event = deployed(Actor(adam), release, override="It has to go out.")
    assert event["validation_results"]["benchmark_passed"] is False
    assert event["metadata"]["approval_status"] == "manual_approved"


def test_a_person_who_approved_is_named_as_such(operator: Actor, adam: Any, agent: Agent) -> None:
    gate(operator, agent, safety=False, approval=True)
    release = release_make(operator, agent)
    release_approve(Actor(adam), release)
    event = deployed(operator, release)
    assert event["metadata"]["approval_status"] == "manual_approved"
    assert event["validation_results"]["benchmark_passed"] is None  # an approval is no benchmark


def test_the_opinions_of_people_on_its_answers_are_the_human_score(operator: Actor, agent: Agent) -> None:
    gate(operator, agent, safety=False)
    first, other = release_make(operator, agent), None
    deployed(operator, first)
    factories.ExperienceFactory(agent=agent, handle="x0000000009")
    other = release_make(operator, agent)
    for release, stars in ((first, 1), (other, 5), (other, 4)):
        trace = ProductionTrace.objects.create(
            organization=agent.organization, agent=agent, model="m", status="ok", release_id=release.pk
        )
        feedback_give(operator, trace, metric="stars", value=stars)
        feedback_give(operator, trace, metric="comment", text="Thanks.")
    assert deployed(operator, other)["validation_results"]["human_eval_score"] == pytest.approx(0.875)
    assert Deployment.objects.count() == 2


@pytest.mark.parametrize(
    ("found", "passed"),
    [
        ({}, None),
        ({"changed": False, "improvement": 0.0}, None),
        ({"improvement": None, "p_value": 1.0, "low": None, "high": None}, None),
        ({"improvement": 0.2, "p_value": 0.001, "low": 0.1, "high": 0.3}, True),
        ({"improvement": 0.2, "p_value": 0.3, "low": -0.1, "high": 0.5}, False),
        ({"improvement": -0.2, "p_value": 0.001, "low": -0.3, "high": -0.1}, False),
    ],
)
def test_held_out_queries_pass_only_by_a_gain_that_was_shown(found: dict[str, Any], passed: bool | None) -> None:
    assert _proven(found) is passed


def test_a_regression_is_one_that_was_shown() -> None:
    def compared(passed: bool, high: float | None) -> dict[str, Any]:
        return {"check": "no worse on work", "passed": passed, "figures": {} if high is None else {"high": high}}

    assert _regressed([{"check": "suite work", "passed": False, "figures": {}}]) is None
    assert _regressed([compared(True, -0.01)]) is False
    assert _regressed([compared(True, 0.1), compared(False, 0.1)]) is None
    assert _regressed([compared(False, None)]) is None
    assert _regressed([compared(False, 0.1), compared(False, -0.2)]) is True


@pytest.mark.parametrize(
    ("reason", "error", "code"),
    [
        ("diverged", "the loss is no number", "CONVERGENCE"),
        ("error", "MemoryError: ", "OOM"),
        ("error", "KeyError: 'x'", "INFRA"),
        ("crashed", "", "INFRA"),
        ("", "the dataset is empty", "DATA"),
    ],
)
def test_a_failed_job_has_one_of_the_four_codes(reason: str, error: str, code: str) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    run = StoredRun("job", at, "failed", reason, 1, 2, (1, 1), None, {}, None, {}, 0.0, 1.0, error=error)
    payload = status_payload(run)
    assert payload["error"]["code"] == code
    assert payload["resource_usage"]["gpu_hours"] is None and payload["resource_usage"]["peak_memory_gb"] is None
