"""``manage.py seed_demo``: the demo's people and agent; with ``--train`` also its training job, followed."""

from __future__ import annotations

import argparse
import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agentcore_site import env
from agentcore_site.lib.errors import DomainError
from agentcore_site.tenancy.actors import Actor
from training import demo
from training.management.follow_job import follow
from training.services.runs import run_start


class Command(BaseCommand):
    help = "Make the demo users (passwords are generated) and the demo agent."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--train", action="store_true", help="also train the agent, and follow")
        parser.add_argument("--seed", type=int, default=0, help="seed of the run")

    def handle(self, *args: Any, **options: Any) -> None:
        agent = demo.seed()
        if url := env.text("WEIGHTS_URL"):
            demo.seed_weights(url, env.text("WEIGHTS_NAME"), env.text("WEIGHTS_TOKEN"))
        people = ", ".join(f"{name} ({role.label.lower()})" for name, role in demo.PEOPLE.items())
        self.stdout.write(f"people: {people}, charlie (operator of another organisation)")
        self.stdout.write(f"passwords: {demo.passwords_file()}")
        self.stdout.write(f"a superuser over all organisations: {env.COMMAND} createsuperuser")
        if not options["train"]:
            return
        try:
            run = run_start(Actor(agent.created_by, interface="command"), agent=agent, config={"seed": options["seed"]})
        except DomainError as error:
            raise CommandError(error.message) from error
        self.stdout.write(f"job: /jobs/{run.job_id}/")
        self.stdout.flush()
        result = follow(run.job_id)
        self.stdout.write(json.dumps(result))
        if result["status"] != "completed" or result["success_rate"] is None:
            raise SystemExit(1)
