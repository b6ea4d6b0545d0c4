"""The learning pipeline: one command from queries to a manifest, over real rows and a simulated model that listens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from agentcore_site import env
from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import Job, Status
from agentcore_site.jobs.services import job_cancel
from agentcore_site.jobs.tasks import run_slice
from agentcore_site.lib.errors import Invalid
from agentcore_site.tenancy.actors import Actor
from budgets.services import price_set
from evaluation.models import EvaluationRun
from evaluation.services import evaluation_start
from experiences.agents.services.agents import agent_create
from experiences.agents.services.datasets import dataset_create
from experiences.agents.services.endpoints import endpoint_create
from experiences.models import Agent, Dataset, Experience
from tests.support.callers import Caller, body_of
from tests.support.llm_server import ModelServer
from tests.support.running import run_to_end
from tests.support.simulated_model import simulated_server
from tests.support.world import World
from training.exports.manifests import averages, run_manifest
from training.models import Epoch, TrainingRun
from training.selectors.run_lessons import run_epochs
from training.services.pipeline import PipelineOptions, pipeline_config, pipeline_options, pipeline_start, sampled

pytestmark = pytest.mark.django_db(transaction=True)

WORLD = World(7)
ROWS = WORLD.rows(150, 7)
PRICE = (150_000, 600_000)
QUICK = {"group_size": 4, "sample_size": 60, "batch_size": 12, "epochs": 2, "seed": 3}


@pytest.fixture(autouse=True)
def long_slices(settings: Any) -> None:
    settings.JOB_SLICE_SECONDS = settings.JOB_ROUND_SECONDS = 600


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with simulated_server(WORLD, prices={"small": PRICE}) as running:
        yield running


@pytest.fixture
def learner(adam: Any, server: ModelServer) -> Agent:
    actor = Actor(adam)
    price_set(
        actor,
        model="small",
        organization=adam.memberships.get().organization,
        input_micros=PRICE[0],
        output_micros=PRICE[1],
    )
    endpoint = endpoint_create(
        actor, name="local", base_url=server.base_url, model="small", api_key="sk-test-123", options={"max_retries": 0}
    )
    return agent_create(
        actor,
        name="Learner",
        runtime="llm",
        philosophy="cot",
        environment="dataset",
        endpoint=endpoint,
        max_tokens=200,
        grouped_execution=True,
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "queries.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in ROWS))
    return path


@contextmanager
def a_worker() -> Iterator[None]:
    """A worker in this process: it takes every job that waits."""
    stop = threading.Event()

    def work() -> None:
        try:
            while not stop.is_set():
                for job_id in list(Job.objects.filter(status=Status.QUEUED).values_list("id", flat=True)):
                    if claimed := lifecycle.claim(job_id):
                        run_slice(claimed)
                stop.wait(0.05)
        finally:
            connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)


def command(*arguments: str, **options: Any) -> dict[str, Any]:
    """The last line that the command prints."""
    out = StringIO()
    call_command("tfgrpo_learning", *arguments, stdout=out, stderr=StringIO(), **options)
    body: dict[str, Any] = json.loads(out.getvalue())
    return body


# -- what is asked for -------------------------------------------------------------------------------------------------


def test_the_command_line_wins_over_the_environment_and_that_over_the_defaults(settings: Any) -> None:
    assert pipeline_options() == PipelineOptions(3, 2, 100, 0.7, 0.3)
    settings.TFGRPO_EPOCHS, settings.TFGRPO_GROUP_SIZE, settings.TFGRPO_TRAIN_TEMP = 5, 4, 0.9
    options = pipeline_options(group_size=6, epochs=None)
    assert (options.epochs, options.group_size, options.train_temperature) == (5, 6, 0.9)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("TFGRPO_GROUP_SIZE", "1", "TFGRPO_GROUP_SIZE must be between 2 and 32; got 1."),
        ("TFGRPO_EPOCHS", "many", "TFGRPO_EPOCHS must be a whole number"),
        ("TFGRPO_TRAIN_TEMP", "9", "TFGRPO_TRAIN_TEMP must be between 0.01 and 5"),
        ("FEATURE_TFGRPO_GROUP", "maybe", "FEATURE_TFGRPO_GROUP must be 1 or 0"),
    ],
)
def test_variables_of_the_environment_are_read_by_their_types(name: str, value: str, message: str) -> None:
    read = [sys.executable, "-c", "import agentcore_site.settings"]
    ended = subprocess.run(read, env=os.environ | {name: value}, cwd=env.ROOT, capture_output=True, text=True)
    assert ended.returncode == 1 and message in ended.stderr


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"group_size": 1}, "The group size must be at least 2: lessons are learned by comparing"),
        ({"sample_size": 3}, "The sample size must be at least 10; got 3."),
        ({"epochs": 0}, "Epochs must be between 1 and 100; got 0."),
        ({"batch_size": 500}, "The batch size must be between 1 and 128; got 500."),
        ({"algorithm": "ppo"}, "The algorithm must be one of tfgrpo, grpo; got 'ppo'."),
    ],
)
def test_settings_that_could_learn_nothing_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        pipeline_options(**given)


def test_a_sample_hangs_on_the_seed_alone() -> None:
    rows = [{"query": f"{n}"} for n in range(300)]
    assert sampled(rows, 100, 1) == sampled(rows, 100, 1) != sampled(rows, 100, 2)
    assert len(sampled(rows, 100, 1)) == 100 and sampled(rows, 300, 1) == rows
    assert [int(row["query"]) for row in sampled(rows, 100, 1)] == sorted(
        int(row["query"]) for row in sampled(rows, 100, 1)
    )


def test_each_epoch_passes_over_the_training_queries_once() -> None:
    config = pipeline_config(pipeline_options(), [f"query {n}" for n in range(100)])
    # 20 % are held out, a quarter of the rest selects: 60 train, in six batches.
    assert (config["n_iterations"], config["eval_interval"], config["batch_size"]) == (18, 6, 10)
    assert pipeline_config(pipeline_options(batch_size=128), ["a", "b", "c"])["batch_size"] == 1


# -- from queries to a manifest ----------------------------------------------------------------------------------------


@pytest.mark.thorough(reason="a whole run")
def test_pipeline_learns_and_keeps_the_evidence(operator: Actor, learner: Agent) -> None:
    run = pipeline_start(operator, agent=learner, rows=ROWS, options=pipeline_options(**QUICK, algorithm="grpo"))
    assert (run.dataset.size, run.preset) == (60, "recommended")  # type: ignore[union-attr]
    assert run_to_end(run.job).status == Status.COMPLETED
    evaluation = EvaluationRun.objects.filter(run=run).first() or evaluation_start(operator, run=run)
    assert run_to_end(evaluation.job).status == Status.COMPLETED
    run = TrainingRun.objects.select_related("job", "agent", "dataset").get(pk=run.pk)
    manifest = run_manifest(run)
    assert json.loads(json.dumps(manifest, default=str))["run"]["status"] == "completed"
    assert [one["epoch"] for one in manifest["epochs"]] == [1, 2]
    assert sum(one["rollouts"] for one in manifest["epochs"]) == run.trajectories
    assert manifest["per_epoch_averages"]["success_rate"] == pytest.approx(
        sum(one["success_rate"] for one in manifest["epochs"]) / 2
    )
    assert {row.handle for row in Experience.objects.filter(job=run.job)} == {
        one["handle"] for one in manifest["experiences"]
    }
    for one in manifest["experiences"]:
        assert len(one["stamp"]) == 64 and one["provenance"]["trajectories"] and one["reward"]["gt_score"] is not None
    proven = manifest["scores"]["held_out"]
    assert proven.get("p_value") is not None or proven["changed"] is False
    assert manifest["scores"]["selection"]
    assert manifest["gates"][-1]["candidate"] is not None
    held = manifest["guard_rails"]
    assert held["stamps"]["held"] and held["word_limit"]["held"] and held["group_size"]["held"]
    assert held["held_out"] == {"shared_with_training": 0, "met_in_training": 0, "held": True}
    assert len(set(manifest["data"]["fingerprints"].values())) == 3
    refused = sum(
        not change["taken"] and change["op"] != "NONE" for e in Epoch.objects.filter(run=run) for change in e.changes
    )
    assert sum(held["operations_refused"].values()) == refused
    asked = [stage for one in run_epochs(run) for stage in one["questions"]]
    assert all(stage["own_ms"] < 50 for stage in asked)  # our part of an answer: the rest is the model's
    files_agree_with(run, manifest, operator.user)
    # And the proof says what the context costs and brings.
    context = evaluation_report(evaluation)["context"]
    assert context["tokens"] == sum(row.tokens for row in Experience.objects.filter(job=run.job, status="active"))
    assert context["learning_cost"] == pytest.approx(manifest["run"]["cost_usd"])
    assert context["extra_cost"] > 0 or not context["lessons"]


def files_agree_with(run: TrainingRun, manifest: dict[str, Any], person: Any) -> None:
    """``metrics.jsonl`` and ``per-epoch.json``, over REST, beside the manifest's figures."""
    streamed = Caller(person).get(f"training-jobs/{run.pk}/metrics.jsonl")
    lines = [json.loads(line) for line in body_of(streamed).decode().splitlines()]
    assert "metrics.jsonl" in streamed["Content-Disposition"]
    assert [one["iteration"] for one in lines if one["type"] == "iteration"] == list(range(1, run.iteration + 1))
    ends = [at for at, one in enumerate(lines) if one["type"] == "epoch"]
    assert [lines[at]["epoch"] for at in ends] == [lines[at - 1]["epoch"] for at in ends] == [1, 2]
    assert ends[-1] == len(lines) - 1 and all(lines[at]["tools"] for at in ends)
    means = Caller(person).get(f"training-jobs/{run.pk}/per-epoch.json").json()
    assert means["complete"] and means["averages"] == manifest["per_epoch_averages"]
    assert [one["success_rate"] for one in means["epochs"]] == [one["success_rate"] for one in manifest["epochs"]]


def evaluation_report(evaluation: EvaluationRun) -> dict[str, Any]:
    evaluation.refresh_from_db()
    return evaluation.report


@pytest.mark.thorough(reason="a whole job, with its command")
def test_the_command_follows_its_job_and_writes_the_manifest(learner: Agent, data: Path, tmp_path: Path) -> None:
    path = tmp_path / "kept" / "manifest.json"
    quick = ["--epochs=1", "--sample-size=40", "--batch-size=16", "--group-size=2", "--budget-usd=5"]
    with a_worker():
        result = command("--agent", learner.slug, "--data", str(data), "--manifest", str(path), *quick)
    assert result["status"] == "completed" and result["manifest"] == str(path)
    kept = json.loads(path.read_text())
    assert kept["run"]["job_id"] == result["job_id"]
    assert kept["config"]["algorithm"] == "tfgrpo" and kept["config"]["n_trajectories_per_query"] == 2
    assert kept["config"]["max_budget_usd"] == 5.0 and kept["scores"]["held_out"]


def test_a_budget_that_is_used_up_ends_the_pipeline_with_3_and_the_manifest_says_so(
    learner: Agent, data: Path, tmp_path: Path
) -> None:
    path = tmp_path / "manifest.json"
    with a_worker(), pytest.raises(SystemExit) as ended:
        command("--agent", learner.slug, "--data", str(data), "--budget-usd=0.007", "--manifest", str(path))
    assert ended.value.code == 3
    run = json.loads(path.read_text())["run"]
    assert (run["status"], run["status_reason"]) == ("paused", "budget_exceeded")


def test_pipeline_takes_a_dataset_by_id_and_need_not_wait(operator: Actor, learner: Agent) -> None:
    dataset = dataset_create(operator, name="words", rows=ROWS[:40], domain="words")
    result = command("--agent", learner.slug, "--data", str(dataset.pk), "--no-follow")
    run = TrainingRun.objects.get(pk=result["job_id"])
    assert (result["status"], run.dataset, Dataset.objects.count()) == ("queued", dataset, 1)
    assert run.config["temperature"] == 0.7 and run.config["eval_temperature"] == 0.3
    assert run.config["context"]["epochs"] == 3
    job_cancel(operator, run.job)
    sample = command("--agent", learner.slug, "--data", str(dataset.pk), "--sample-size=30", "--no-follow")
    of_sample = TrainingRun.objects.select_related("dataset").get(pk=sample["job_id"]).dataset
    assert of_sample is not None and (of_sample.size, of_sample.domain) == (30, "words")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--group-size=1"], "The group size must be at least 2"),
        (["--train-temperature=0"], "temperature must be greater than 0"),
        (["--manifest=x.json", "--no-follow"], "--manifest is written at the end"),
        (["--data=nowhere.jsonl"], "nowhere.jsonl can't be read"),
        (["--data=0199f1f3-0c4e-7a51-8d7a-1b2c3d4e5f60"], "There is no dataset"),
        (["--agent=nobody"], "There is no agent with the slug 'nobody'"),
    ],
)
def test_each_mistake_is_reported_and_nothing_is_started(
    learner: Agent, data: Path, arguments: list[str], message: str
) -> None:
    with pytest.raises(CommandError, match=message) as refused:
        command("--agent", learner.slug, "--data", str(data), *arguments)
    assert refused.value.returncode == 1 and not TrainingRun.objects.exists()


def test_an_agent_that_chooses_actions_is_sent_elsewhere(agent: Agent, data: Path) -> None:
    with pytest.raises(CommandError, match="chooses actions and reads nothing"):
        command("--agent", agent.slug, "--data", str(data))


def test_the_switch_refuses_training_free_grpo_at_every_interface(learner: Agent, data: Path, settings: Any) -> None:
    settings.FEATURE_TFGRPO_GROUP = False
    with pytest.raises(CommandError, match="Training-free GRPO is switched off here"):
        command("--agent", learner.slug, "--data", str(data))
    assert command("--agent", learner.slug, "--data", str(data), "--algorithm=grpo", "--no-follow")["job_id"]


def test_averages_leave_out_what_no_epoch_measured() -> None:
    names = ("success_rate", "reward_mean", "steps_mean", "tokens_mean", "latency_ms", "cost_usd", "tokens")
    some = dict.fromkeys(names, 1.0)
    result = averages([some, some | {"reward_mean": None, "tokens": 3.0}])
    assert (result["reward_mean"], result["tokens"]) == (1.0, 2.0)
    assert averages([])["success_rate"] is None
