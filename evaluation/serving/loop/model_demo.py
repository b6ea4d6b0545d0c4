"""Demo of a language model's own weights: a pretrained model learns sums by reward, at a model server of the site, and
goes into production through the gate. It uses the public interfaces, as ``demo`` does."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from agentcore_site import env
from agentcore_site.jobs.models import ENDED, Status
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.services import api_key_create
from evaluation.serving.deployments.gate import verdict_of
from evaluation.serving.deployments.services import deployment_start, serving_change
from evaluation.serving.gate.verdict import GateRule
from evaluation.serving.loop.demo import GatewayCaller, LoopFailed
from evaluation.serving.loop.model_picture import picture_shown
from evaluation.serving.models import Release, Suite, SuiteVersion
from evaluation.serving.releases.services import release_make
from evaluation.serving.suites.services import suite_create, suite_run_start
from experiences.agents.services.datasets import dataset_create
from experiences.models import Agent, Dataset
from experiences.rollouts.environments.scorers import check_for
from training.demo import SUMS_NAME
from training.management.follow_job import follow
from training.models import PolicyCheckpoint, TrainingRun
from training.services.runs import run_start
from training.weights.one_digit_sums import sums_rows

SUITE: Final = "sums-kept-back"
GAIN: Final = 0.15  # that the gate wants to see shown
# A language model needs a safety suite by default. A base model of this size is not expected to pass one.
FIRST_GATE: Final = GateRule(suites={SUITE: 0.0}, safety=False)
GATE: Final = GateRule(suites={SUITE: 0.0}, safety=False, gain=GAIN)
CONFIG: Final[dict[str, Any]] = {
    "learner": "weights",
    "weights": {"lora_rank": 16},
    "learning_rate": 5e-4,
    "n_iterations": 12,
    "batch_size": 8,
    "n_trajectories_per_query": 8,
    "credit": "uniform",
    "max_concurrent_rollouts": 64,
    "eval_interval": 100,
    "eval_samples": 2,
    "eval_temperature": 1.0,
    "early_stopping": {"enabled": False},
    "max_budget_usd": 1,
}
AT_ONCE: Final = 10  # requests to the gateway
LONGEST: Final = 900.0  # seconds of a run of the suite, on a busy machine


def model_learns(agent: Agent, url: str, say: Callable[[str], None], *, seed: int) -> dict[str, Any]:
    """Trains, proves, releases and asks. Returns the figures.

    Raises:
        LoopFailed: a step did not end as expected.
        DomainError: a service refused a step.
    """
    began, actor = time.monotonic(), Actor(agent.created_by, interface="command")
    _, kept_back = sums_rows()
    suite = _suite(actor, agent, kept_back)
    _, key = api_key_create(actor, name="the demo", scopes=["gateway:call"], days=1)
    gateway = GatewayCaller(url, key, f"agent:{agent.slug}")

    base = release_make(actor, agent)
    say(f"release {base.number}: the model as it was pretrained, measured on {len(kept_back)} sums that no job sees")
    _measured(actor, base, suite)
    serving_change(actor, agent, fallbacks=(), while_away_usd=0.0, gate=FIRST_GATE)
    deployment_start(actor, base, strategy="immediate", note="as it was pretrained")
    serving_change(actor, agent, fallbacks=(), while_away_usd=0.0, gate=GATE)
    before = _asked(gateway, kept_back)
    say(f"through the gateway {before} of its {len(kept_back)} answers are right")

    run, result = _trained(actor, agent, seed, say)
    release = release_make(
        actor,
        agent,
        checkpoint=run.best_checkpoint or PolicyCheckpoint.objects.filter(run=run).latest("iteration"),
    )
    _measured(actor, release, suite)
    verdict = verdict_of(release, base)
    say(f"release {release.number} at the gate: {verdict.sentence}")
    if verdict.passed:
        deployment_start(actor, release, strategy="immediate")
    after = _asked(gateway, kept_back)
    say(f"through the gateway {after} of its {len(kept_back)} answers are right now")
    return result | {
        "model": agent.endpoint.model if agent.endpoint else "",
        "released": verdict.passed,
        "gateway_right_before": before,
        "gateway_right_after": after,
        "gateway_asked": len(kept_back),
        "picture": str(_picture(agent, run, before / len(kept_back), after / len(kept_back))),
        "seconds": round(time.monotonic() - began, 1),
    }


def _suite(actor: Actor, agent: Agent, rows: Sequence[dict[str, Any]]) -> SuiteVersion:
    suite = Suite.objects.filter(organization=agent.organization, name=SUITE).first()
    if suite is None:
        dataset = Dataset.objects.filter(organization=agent.organization, name=SUITE).first()
        dataset = dataset or dataset_create(actor, name=SUITE, rows=rows)
        part = {"category": "sums", "dataset": str(dataset.pk)}
        suite = suite_create(actor, name=SUITE, spec={"parts": [part], "samples": 2, "temperature": 1.0})
    return suite.versions.latest("number")


def _trained(actor: Actor, agent: Agent, seed: int, say: Callable[[str], None]) -> tuple[TrainingRun, dict[str, Any]]:
    """A completed job with its summary. Raises LoopFailed."""
    dataset = Dataset.objects.get(organization=agent.organization, name=SUMS_NAME)
    run = run_start(actor, agent=agent, dataset=dataset, config=CONFIG | {"seed": seed})
    say(f"its weights are trained by reward: /jobs/{run.job_id}/")
    result = follow(run.job_id)
    if result["status"] != Status.COMPLETED:
        raise LoopFailed(f"the job ended as {result['status']}")
    return TrainingRun.objects.get(pk=run.pk), result


def _measured(actor: Actor, release: Release, version: SuiteVersion) -> None:
    """Runs the suite on a release. Raises LoopFailed."""
    run = suite_run_start(actor, version, release=release)
    deadline = time.monotonic() + LONGEST
    while run.job.status not in ENDED and time.monotonic() < deadline:
        time.sleep(0.5)
        run.job.refresh_from_db()
    if run.job.status != Status.COMPLETED:
        raise LoopFailed(f"the suite's run is {run.job.status}: {run.job.error or run.job.status_reason}")


def _asked(gateway: GatewayCaller, rows: Sequence[dict[str, Any]]) -> int:
    """The number of right answers. Some are asked at once: the model server draws them together."""

    def right(row: dict[str, Any]) -> bool:
        message = {"role": "user", "content": row["query"]}
        answer, _ = gateway.post("/v1/chat/completions", {"model": gateway.model, "messages": [message]})
        return check_for(row["expected_outcome"])(answer["choices"][0]["message"]["content"]).success

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return sum(pool.map(right, rows))


def _picture(agent: Agent, run: TrainingRun, before: float, after: float) -> Path:
    """Shows the course of the job and both proofs; the file that holds the same."""
    training = [
        (f"training, iteration {step.number}", float(step.metrics["success_rate"])) for step in run.iterations.all()
    ]
    proof = [
        (f"{run.n_held_out} held-out sums, {when}", float(run.verdict[rate]))
        for when, rate in (("before", "baseline_success_rate"), ("after", "success_rate"))
        if run.verdict.get(rate) is not None
    ]
    gateway = [("through the gateway, before", before), ("after", after)]
    path = env.data_dir() / "weights" / f"{agent.slug}.svg"
    picture_shown("make run MODEL=1: right answers", (training, proof, gateway), path)
    return path
