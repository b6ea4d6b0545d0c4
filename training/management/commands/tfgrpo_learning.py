"""``manage.py tfgrpo_learning``: the learning pipeline as one command, with its evidence as a manifest.

Ends with 0 when the job and its proof are done, 1 when it failed or was refused, 3 when it is paused (a budget that is
used up, a model that is away): `manage.py` says why, and the job can be resumed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from agentcore_site.env import private_file
from agentcore_site.jobs.models import Status
from agentcore_site.lib.errors import DomainError
from agentcore_site.tenancy.actors import Actor
from training.exports.manifests import run_manifest
from training.management.arguments import agent_named, dataset_named, rows_of_file
from training.management.follow_job import follow
from training.models import TrainingRun
from training.services.pipeline import ALGORITHMS, pipeline_options, pipeline_start

FAILED, PAUSED = 1, 3
OPTIONS: Final = (
    "epochs", "group_size", "sample_size", "train_temperature", "eval_temperature", "batch_size", "budget_usd",
    "algorithm", "seed",
)  # fmt: skip


class Command(BaseCommand):
    help = "Learn the context of an agent of a language model: sample queries, train in epochs, keep the evidence."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--agent", required=True, help="slug of the agent")
        parser.add_argument("--data", required=True, help="queries as JSONL or CSV, or the id of a dataset")
        parser.add_argument("--domain", default="", help="what these queries are about, as prompt packs name it")
        parser.add_argument("--epochs", type=int, help="passes over the training queries (TFGRPO_EPOCHS, 3)")
        parser.add_argument("--group-size", type=int, help="rollouts of each query (TFGRPO_GROUP_SIZE, 2); at least 2")
        parser.add_argument("--sample-size", type=int, help="queries that are taken at most (TFGRPO_SAMPLE_SIZE, 100)")
        parser.add_argument("--train-temperature", type=float, help="of training rollouts (TFGRPO_TRAIN_TEMP, 0.7)")
        parser.add_argument("--eval-temperature", type=float, help="of evaluations (TFGRPO_EVAL_TEMP, 0.3)")
        parser.add_argument("--batch-size", type=int, help="queries of an iteration (10)")
        parser.add_argument("--budget-usd", type=float, help="the job pauses before it would spend more")
        parser.add_argument("--algorithm", choices=list(ALGORITHMS), help="tfgrpo (default), or grpo")
        parser.add_argument("--seed", type=int, help="of sample, split and rollouts (0)")
        parser.add_argument("--organization", help="slug of the organisation, where the agent's slug is not unique")
        parser.add_argument(
            "--follow",
            action=argparse.BooleanOptionalAction,
            default=True,
            help="show the progress until job and proof are done",
        )
        parser.add_argument("--manifest", type=Path, help="where the manifest is written (in the data folder)")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["manifest"] and not options["follow"]:
            raise CommandError("--manifest is written at the end, which --no-follow does not wait for.")
        run = self._started(options)
        for warning in run.warnings:
            self.stderr.write(f"warning: {warning}")
        self.stderr.write(f"job {run.job_id}")
        if not options["follow"]:
            self.stdout.write(json.dumps({"job_id": str(run.job_id), "status": run.job.status}))
            return
        result = follow(run.job_id)
        path = self._write(run, options["manifest"])
        self.stdout.write(json.dumps(result | {"manifest": str(path)}))
        if result["status"] == Status.PAUSED:
            raise SystemExit(PAUSED)
        if result["status"] != Status.COMPLETED:
            raise SystemExit(FAILED)

    def _started(self, options: dict[str, Any]) -> TrainingRun:
        agent = agent_named(options["agent"], options["organization"])
        actor = Actor(agent.created_by, interface="command")
        dataset = dataset_named(actor, options["data"])
        rows = None if dataset is not None else rows_of_file(Path(options["data"]))
        try:
            asked = pipeline_options(**{name: options[name] for name in OPTIONS})
            return pipeline_start(
                actor, agent=agent, dataset=dataset, rows=rows, domain=options["domain"], options=asked
            )
        except DomainError as error:
            raise CommandError(error.message) from error

    def _write(self, run: TrainingRun, path: Path | None) -> Path:
        """Writes the manifest, also of a job that failed or was paused."""
        path = path or settings.DATA_DIR / "manifests" / f"{run.job_id}.json"
        fresh = TrainingRun.objects.select_related("job", "agent", "dataset").get(job_id=run.job_id)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            private_file(path, json.dumps(run_manifest(fresh), indent=2, ensure_ascii=False, default=str) + "\n")
        except OSError as error:
            raise CommandError(f"The manifest can't be written to {path}: {error.strerror}.") from error
        return path
