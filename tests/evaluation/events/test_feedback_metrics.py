"""The design's metrics, by name, label and bucket."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from prometheus_client import REGISTRY

from agentcore_site.jobs.models import Status
from agentcore_site.lib import feedback_metrics
from agentcore_site.tenancy.actors import Actor
from evaluation.serving.models import AgentServing, ProductionTrace
from evaluation.serving.releases.services import release_make
from experiences.models import Agent
from tests import factories
from tests.support.rows import queued_run
from tests.support.running import run_to_end

pytestmark = pytest.mark.django_db

HISTOGRAMS = {
    "agent_rl_training_duration_seconds": [300, 600, 1800, 3600, 7200, 14400],
    "agent_rl_training_samples": [1000, 5000, 10000, 50000, 100000],
    "agent_rl_trajectory_length": [1, 3, 5, 10, 20, 50],
    "agent_rl_trajectory_reward": [0.0, 0.2, 0.4, 0.6, 0.8, 1.0],
}


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_buckets_and_labels_are_the_designs() -> None:
    values = {
        metric.name: sorted({float(one.labels["le"]) for one in metric.samples if one.name.endswith("_bucket")})[:-1]
        for metric in REGISTRY.collect()
        if metric.name in HISTOGRAMS
    }
    assert values == HISTOGRAMS
    counters = (
        feedback_metrics.training_jobs,
        feedback_metrics.trajectories_collected,
        feedback_metrics.model_deployments,
    )
    assert [one._labelnames for one in counters] == [("status",), ("agent_type", "task_domain"), ("status",)]


def test_a_job_counts_itself_its_trajectories_and_its_time(operator: Actor, agent: Any) -> None:
    names = ("agent_rl_training_duration_seconds_count", "agent_rl_training_samples_count")
    before = [value(name) for name in names]
    ended = value("agent_rl_training_jobs_total", status="completed")
    collected = value("agent_rl_trajectories_collected_total", agent_type="action", task_domain="general")
    job = run_to_end(queued_run(operator, agent, config={"n_iterations": 1}).job)
    assert job.status == Status.COMPLETED
    assert [value(name) for name in names] == [one + 1 for one in before]
    assert value("agent_rl_training_jobs_total", status="completed") == ended + 1
    now = value("agent_rl_trajectories_collected_total", agent_type="action", task_domain="general")
    assert now - collected == job.training_run.trajectories
    feedback_metrics.trajectory_collected("main", "a domain of theirs", turns=3, reward=None)
    assert value("agent_rl_trajectories_collected_total", agent_type="main", task_domain="other") > 0


def test_models_in_production_are_read_when_they_are_asked_for(operator: Actor, acme: Any) -> None:
    agent = factories.AgentFactory(organization=acme, runtime="llm", environment="dataset", slug="clerk")
    release = release_make(operator, agent)
    AgentServing.objects.create(organization=acme, agent=agent, release=release)
    for status, reward in (("ok", 0.5), ("failed", None)):
        ProductionTrace.objects.create(
            organization=acme,
            agent=agent,
            release_id=release.pk,
            model="m",
            status=status,
            reward=reward,
            cost_micros=1_500,
        )
    text = Client().get("/metrics").content.decode()
    version = '{model_version="acme/clerk-1"}'
    assert f"agent_rl_model_traffic_percentage{version} 100.0" in text
    assert f"agent_rl_model_reward_mean{version} 0.5" in text
    assert f"agent_rl_model_error_rate{version} 0.5" in text
    assert f"agent_rl_model_cost_per_1000_queries_usd{version} 1.5" in text
    Agent.objects.filter(pk=agent.pk).update(archived_at=timezone.now())
    assert version not in Client().get("/metrics").content.decode()  # what is archived gets no request
