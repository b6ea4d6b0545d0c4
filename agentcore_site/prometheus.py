"""``/metrics``: what web and workers counted, and the present states of jobs in the database."""

from __future__ import annotations

import ipaddress
import os
import secrets
from collections.abc import Iterator

from django.conf import settings
from django.db import Error
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from agentcore_site.embedded import status_server
from agentcore_site.jobs.models import ACTIVE, Job, Status
from agentcore_site.lib.money import dollars
from agentcore_site.lib.row_scope import everything
from agentcore_site.tenancy.authentication import bearer
from evaluation.serving.deployments.production_metrics import model_shares
from evaluation.warehouse.models import ChangeSink
from evaluation.warehouse.selectors import behind
from experiences.models import Agent
from experiences.playbooks.figures import evolution_figures
from training import metrics as training_metrics
from training.models import TrainingRun, with_money

# Histograms that only workers fill. Named here, so that each name is there before the first job ran.
NAMED = (training_metrics.rollout_seconds, training_metrics.update_seconds)
FORWARDED = ("HTTP_X_FORWARDED_FOR", "HTTP_FORWARDED", "HTTP_X_REAL_IP")


class JobsCollector(Collector):
    """Figures that are true of all processes and hosts at once: counted in the database when they are asked for."""

    def collect(self) -> Iterator[Metric]:
        yield from self._created()
        yield from self._by_status()
        usage = GaugeMetricFamily("training_budget_usage_usd", "Spent by active training jobs.", labels=["job_id"])
        limit = GaugeMetricFamily("training_budget_limit_usd", "Budget of active training jobs.", labels=["job_id"])
        for run in with_money(TrainingRun.objects.filter(job__status__in=ACTIVE)).defer("config"):
            usage.add_metric([str(run.job_id)], dollars(run.spent_micros))
            limit.add_metric([str(run.job_id)], dollars(run.limit_micros))
        yield usage
        yield limit

    def _created(self) -> Iterator[Metric]:
        """Every job is a row of the transaction that made it, by whichever process: a command's counters are lost."""
        training = CounterMetricFamily("training_jobs_created", "Training jobs created.")
        created = CounterMetricFamily("jobs_created", "Jobs created, by kind.", labels=["kind"])
        counts = dict(Job.objects.order_by().values_list("kind").annotate(n=Count("id")))
        training.add_metric([], counts.get("training", 0))
        for kind, n in counts.items():
            created.add_metric([kind], n)
        yield from (training, created)

    def _by_status(self) -> Iterator[Metric]:
        rows = Job.objects.filter(status__in=ACTIVE).values_list("kind", "status").annotate(n=Count("id"))
        counts = {(kind, status): n for kind, status, n in rows}
        active = GaugeMetricFamily("active_training_jobs", "Training jobs that are queued, running or paused.")
        active.add_metric([], sum(n for (kind, _), n in counts.items() if kind == "training"))
        yield active
        jobs = GaugeMetricFamily(
            "jobs_active", "Jobs that have not ended, by kind and status.", labels=["kind", "status"]
        )
        for kind in (
            "training", "evaluation", "suite", "survival", "external_training", "retention", "encryption", "export",
            "evolution",
        ):  # fmt: skip
            for status in ACTIVE:
                jobs.add_metric([kind, str(status)], counts.get((kind, status), 0))
        yield jobs
        # What an autoscaler watches: work that no worker holds.
        waiting = GaugeMetricFamily("jobs_waiting", "Active jobs that no worker holds now.")
        free = Job.objects.filter(status__in=(Status.QUEUED, Status.RUNNING), lease_until=None)
        waiting.add_metric([], free.count())
        yield waiting


class ModelsCollector(Collector):
    """Figures of models in production: those that serve an agent, and those on their way. A model's version is
    ``organisation/agent-number``; reward and errors are of the last half hour."""

    def collect(self) -> Iterator[Metric]:
        shares = model_shares()
        version = ["model_version"]
        traffic = GaugeMetricFamily(
            "agent_rl_model_traffic_percentage", "Traffic percentage for deployed model", labels=version
        )
        reward = GaugeMetricFamily("agent_rl_model_reward_mean", "Mean reward of deployed model", labels=version)
        errors = GaugeMetricFamily("agent_rl_model_error_rate", "Error rate by model version", labels=version)
        cost = GaugeMetricFamily(
            "agent_rl_model_cost_per_1000_queries_usd", "What 1,000 queries cost, by model version", labels=version
        )
        scores = GaugeMetricFamily(
            "agent_rl_model_benchmark_score", "Benchmark score by task type", labels=[*version, "task_type"]
        )
        for model in shares:
            traffic.add_metric([model.version], 100 * model.share)
            if model.reward is not None:
                reward.add_metric([model.version], model.reward)
            if model.error_rate is not None:
                errors.add_metric([model.version], model.error_rate)
            if model.query_micros is not None:
                cost.add_metric([model.version], dollars(round(1000 * model.query_micros)))
            for name, score in model.scores.items():
                scores.add_metric([model.version, name], score)
        yield from (traffic, reward, errors, cost, scores)


class PlaybooksCollector(Collector):
    """Figures of agents whose playbooks evolve. Cost and tokens are of this month, the other counts of all time."""

    def collect(self) -> Iterator[Metric]:
        names = GaugeMetricFamily("agent_info", "Names of agents by their ids.", labels=["agent_id", "agent"])
        agents = Agent.objects.filter(archived_at=None).order_by().values_list("pk", "organization__slug", "slug")
        for agent_id, organization, slug in agents:
            names.add_metric([str(agent_id), f"{organization}/{slug}"], 1)
        yield names
        agent = ["agent"]
        version = GaugeMetricFamily("ace_playbook_version", "Version of an agent's playbook.", labels=agent)
        cost = GaugeMetricFamily("ace_agent_cost_usd", "Cost of an agent's evolutions this month.", labels=agent)
        budget = GaugeMetricFamily("ace_agent_budget_usd", "Monthly budget of an agent's evolutions.", labels=agent)
        tokens = GaugeMetricFamily("ace_agent_tokens", "Tokens of an agent's evolutions this month.", labels=agent)
        ended = GaugeMetricFamily("ace_agent_evolutions", "Ended evolutions.", labels=["agent", "outcome"])
        deltas = GaugeMetricFamily("ace_agent_deltas", "Changes proposed and applied.", labels=["agent", "state"])
        sure = GaugeMetricFamily("ace_agent_confidence", "Mean confidence of proposed changes.", labels=agent)
        for one in evolution_figures():
            playbook = one.playbook
            version.add_metric([one.name], playbook.version)
            cost.add_metric([one.name], dollars(one.cost_micros))
            budget.add_metric([one.name], one.budget_usd)
            tokens.add_metric([one.name], one.tokens)
            ended.add_metric([one.name, "success"], playbook.successes)
            ended.add_metric([one.name, "failure"], playbook.failures)
            deltas.add_metric([one.name, "proposed"], playbook.deltas_generated)
            deltas.add_metric([one.name, "applied"], playbook.deltas_applied)
            if playbook.deltas_generated:
                sure.add_metric([one.name], playbook.average_confidence)
        yield from (version, cost, budget, tokens, ended, deltas, sure)


class WarehouseCollector(Collector):
    """Age of the oldest change that waits for the roll-ups, and for the warehouse."""

    def collect(self) -> Iterator[Metric]:
        lag = GaugeMetricFamily(
            "warehouse_lag_seconds", "How long the oldest change waits for the sink.", labels=["sink"]
        )
        for sink in ChangeSink.values:
            lag.add_metric([sink], behind(sink))
        yield lag


@require_safe
@never_cache
@everything()
def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus' text format. With the database away it still shows the counters of the processes."""
    if not allowed(request):
        return HttpResponse(
            "Give METRICS_TOKEN as a bearer token, or ask from the machine itself.\n",
            status=401,
            content_type="text/plain",
            headers={"WWW-Authenticate": "Bearer"},
        )
    body = generate_latest(counted())
    try:
        body += generate_latest(from_database())
    except Error:
        body += b"# the database can't be reached: no gauges of jobs\n"
    return HttpResponse(body, content_type=CONTENT_TYPE_LATEST)


def allowed(request: HttpRequest) -> bool:
    """The token where one is set, else loopback only: the figures name jobs and costs of every organisation."""
    if settings.METRICS_TOKEN:
        given = bearer(request.headers.get("Authorization", ""))
        return secrets.compare_digest(given.encode(), settings.METRICS_TOKEN.encode())
    # Behind a proxy on this machine all clients come from loopback; its headers identify them.
    if any(request.META.get(name) for name in FORWARDED):
        return False
    try:
        return ipaddress.ip_address(request.META.get("REMOTE_ADDR") or "").is_loopback
    except ValueError:
        return False


def counted() -> CollectorRegistry:
    """Web and workers together where they share a folder (``manage.py up`` sets it), else this process alone."""
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    return status_server.counted(folder) if folder else REGISTRY


def from_database() -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(JobsCollector())
    registry.register(ModelsCollector())
    registry.register(PlaybooksCollector())
    registry.register(WarehouseCollector())
    return registry
