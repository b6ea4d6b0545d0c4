"""``manage.py train``: starts a training job and, if asked, follows it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agentcore_site.lib.errors import DomainError
from agentcore_site.tenancy.actors import Actor
from training.management.arguments import agent_named, rows_of_file
from training.management.follow_job import follow
from training.services.runs import run_start


class Command(BaseCommand):
    help = "Train an agent on a dataset or an environment."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--agent", required=True, help="slug of the agent")
        source = parser.add_mutually_exclusive_group(required=True)
        source.add_argument("--data", type=Path, help="queries as JSONL or CSV")
        parser.add_argument("--domain", default="", help="what the queries are about, as prompt packs name it")
        source.add_argument("--environment", help="name of an environment, e.g. reasoning_gym")
        parser.add_argument("--config", type=Path, help="configuration as JSON (see docs/configuration.md)")
        parser.add_argument("--preset", default="recommended")
        parser.add_argument("--organization", help="slug of the organisation, where the agent's slug is not unique")
        parser.add_argument("--follow", action="store_true", help="show the progress until job and evaluation are done")

    def handle(self, *args: Any, **options: Any) -> None:
        agent = agent_named(options["agent"], options["organization"])
        try:
            run = run_start(
                Actor(agent.created_by, interface="command"),
                agent=agent,
                rows=rows_of_file(options["data"]) if options["data"] else None,
                domain=options["domain"],
                environment=options["environment"],
                config=self._config(options["config"]),
                preset=options["preset"],
            )
        except DomainError as error:
            raise CommandError(error.message) from error
        for warning in run.warnings:
            self.stderr.write(f"warning: {warning}")
        self.stderr.write(f"job {run.job_id}")
        if options["follow"]:
            result = follow(run.job_id)
            self.stdout.write(json.dumps(result))
            if result["status"] != "completed":
                raise SystemExit(1)
        else:
            self.stdout.write(json.dumps({"job_id": str(run.job_id), "status": run.job.status}))

    def _config(self, path: Path | None) -> dict[str, Any]:
        if path is None:
            return {}
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CommandError(f"{path} is not a readable JSON file: {error}.") from error
        if not isinstance(value, dict):
            raise CommandError(f"{path} must hold one JSON object.")
        return value
