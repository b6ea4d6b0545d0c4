"""``manage.py evaluate``: evaluates a checkpoint against the start of its run, follows the job, prints the verdict."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from agentcore_site.jobs.models import ENDED, Status
from agentcore_site.lib.errors import DomainError
from agentcore_site.tenancy.actors import Actor
from evaluation.models import Against, EvaluationRun
from evaluation.rpc import EvaluatedOut
from evaluation.services import evaluation_of_agent
from training.management.arguments import agent_named, rows_of_file

POLL_SECONDS: Final = 0.5
SAID_SECONDS: Final = 2.0


class Command(BaseCommand):
    help = "Evaluate an agent's checkpoint on queries that it never saw, or on your own."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--agent", required=True, help="slug of the agent")
        parser.add_argument("--organization", help="slug of the organisation, where the agent's slug is not unique")
        parser.add_argument("--checkpoint", help="id of a checkpoint; default: the agent's best")
        parser.add_argument("--queries", type=Path, help="queries as JSONL or CSV; default: the held-out queries")
        parser.add_argument("--samples", type=int, help="rollouts of each query and side")
        parser.add_argument("--against", choices=Against.values, default=Against.BEGAN.value)
        parser.add_argument("--no-follow", action="store_true", help="queue the evaluation, print its id, and end")
        parser.add_argument("--json", action="store_true", help="print one JSON object, as training.evaluate answers")

    def handle(self, *args: Any, **options: Any) -> None:
        agent = agent_named(options["agent"], options["organization"])
        actor = Actor(agent.created_by, interface="command")
        try:
            made = evaluation_of_agent(
                actor,
                agent,
                checkpoint_id=options["checkpoint"],
                queries=rows_of_file(options["queries"]) if options["queries"] else None,
                samples=options["samples"],
                against=options["against"],
            )
        except DomainError as error:
            raise CommandError(error.message) from error
        self.stderr.write(f"evaluation {made.job_id}")
        found = made if options["no_follow"] else self._followed(made.job_id)
        if options["json"]:
            self.stdout.write(json.dumps(EvaluatedOut(found).data, default=str))
        else:
            self.stdout.write(found.report.get("verdict") or found.job.error or f"It is {found.job.status}.")
        if not options["no_follow"] and found.job.status != Status.COMPLETED:
            raise SystemExit(1)

    def _followed(self, job_id: UUID) -> EvaluationRun:
        """Prints the progress to standard error, until the evaluation is done or paused."""
        reported = 0.0
        while True:
            found = EvaluationRun.objects.select_related("job", "run").get(job_id=job_id)
            if found.job.status in ENDED or found.job.status == Status.PAUSED:
                return found
            if time.monotonic() - reported > SAID_SECONDS:
                self.stderr.write(f"{found.job.status:>9}  {100 * found.job.progress:.0f} %")
                reported = time.monotonic()
            time.sleep(POLL_SECONDS)
