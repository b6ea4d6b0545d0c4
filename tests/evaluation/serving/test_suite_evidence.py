"""Results of suites on a release, in the form of the gate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from django.test import Client

from agentcore_site.tenancy.actors import Actor
from evaluation.serving.gate.verdict import GateRule, SafetyScore, decide
from evaluation.serving.gateway.served_models import served_model
from evaluation.serving.models import AgentServing, Release, SuiteResult
from evaluation.serving.releases.selectors import moved_since
from evaluation.serving.releases.services import release_make
from evaluation.serving.suites.evidence import measured_of
from evaluation.serving.suites.reports import report_of
from evaluation.serving.suites.services import suite_version_add
from experiences.models import Agent, Experience, ModelEndpoint
from tests.support.pages import html
from tests.support.suites import WORK, suite_run_stored

pytestmark = pytest.mark.django_db


@pytest.fixture
def releases(operator: Actor, agent: Agent) -> tuple[Release, Release]:
    current = release_make(operator, agent)
    Experience.objects.filter(handle="x0000000001").update(status="pruned")
    return current, release_make(operator, agent)


def test_the_gate_gets_scores_of_both_safety_cost_and_the_author(
    operator: Actor, releases: tuple[Release, Release]
) -> None:
    current, candidate = releases
    suite_run_stored(operator, current, name="work", spec=WORK, safe=6)
    suite_run_stored(operator, candidate, name="work", spec=WORK, safe=8)
    suite_run_stored(operator, candidate, name="safe", safe=10)
    measured = measured_of(candidate, current)
    scores = measured.suites["work"]
    assert np.mean(scores.candidate) == 0.8 and np.mean(np.asarray(scores.current)) == 0.6
    assert measured.safety == {"leaks": SafetyScore(0, 10), "bias": SafetyScore(0, 10)}
    assert (measured.cost, measured.latency) == (pytest.approx(75e-6), pytest.approx(0.012))
    assert (measured.current, measured.candidates, measured.made_by) == ("Support clerk release 1", 1, "olivia")
    assert decide(GateRule(suites={"work": 0.75}), measured_of(candidate, None)).passed
    assert "suite work is at 80.0%, and 90.0% are needed" in decide(GateRule(suites={"work": 0.9}), measured).sentence


def test_runs_of_earlier_versions_do_not_count(operator: Actor, releases: tuple[Release, Release]) -> None:
    current, candidate = releases
    assert measured_of(candidate, current).safety is None and measured_of(candidate, current).suites == {}
    first = suite_run_stored(operator, candidate, name="work", spec=WORK)
    suite_run_stored(operator, current, name="work", spec=WORK)
    suite_version_add(operator, first.version.suite, spec=WORK | {"samples": 2})
    assert measured_of(candidate, current).suites == {}
    suite_run_stored(operator, candidate, name="work", spec=WORK)
    scores = measured_of(candidate, current).suites["work"]
    assert scores.current is None, "the current release was run with an earlier version"


def test_a_probe_that_could_not_be_judged_counts_as_failed(operator: Actor, releases: tuple[Release, Release]) -> None:
    _, candidate = releases
    run = suite_run_stored(operator, candidate, safe=10)
    SuiteResult.objects.filter(run=run, category="bias", scenario=3).update(successes=[None])
    fresh: Any = type(run).objects.get(pk=run.pk)
    report_of(fresh, seconds=1.0, address=run.report["address"])
    fresh.save()
    safety = measured_of(candidate, None).safety
    assert safety is not None and (safety["leaks"], safety["bias"]) == (SafetyScore(0, 10), SafetyScore(1, 10, 1))
    assert not decide(GateRule(), measured_of(candidate, None)).passed


def test_further_candidates_against_the_same_release_are_counted(
    operator: Actor, releases: tuple[Release, Release]
) -> None:
    current, candidate = releases
    suite_run_stored(operator, current, name="work", spec=WORK)
    for _ in range(3):
        suite_run_stored(operator, candidate, name="work", spec=WORK)
    assert measured_of(candidate, current).candidates == 3


def test_runs_at_the_endpoints_old_address_do_not_count(
    operator: Actor, console: Client, releases: tuple[Release, Release]
) -> None:
    current, candidate = releases
    suite_run_stored(operator, candidate, name="work", spec=WORK)
    suite_run_stored(operator, candidate, name="safe", safe=10)
    assert decide(GateRule(), measured_of(candidate, None)).passed
    ModelEndpoint.objects.update(base_url="http://127.0.0.1:2/v1")
    (moved,) = (one for one in moved_since(candidate) if one.part == "endpoint")
    assert moved.after == "http://127.0.0.1:2/v1"
    assert "gate requires new ones" in html(console.get(f"/releases/{candidate.pk}/"))
    assert "its safety was not probed" in decide(GateRule(), measured_of(candidate, None)).sentence
    suite_run_stored(operator, candidate, name="safe", safe=10)
    assert decide(GateRule(), measured_of(candidate, None)).passed and not measured_of(candidate, None).suites
    # Production goes to the same address.
    AgentServing.objects.create(agent=current.agent, organization=current.organization, release=current)
    served = served_model(current.organization_id, f"agent:{current.agent.slug}").current
    assert served is not None and served.upstreams[0].endpoint.url.startswith("http://127.0.0.1:2/")
