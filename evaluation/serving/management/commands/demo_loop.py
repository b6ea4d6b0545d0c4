"""``manage.py demo_loop``: the learning loop with simulated users, against a running site."""

from __future__ import annotations

import argparse
import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agentcore_site.lib.errors import DomainError
from evaluation.serving.loop.demo import LoopFailed, circle
from training import demo


class Command(BaseCommand):
    help = "Let simulated users make an agent better through its own production traces."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--url", required=True, help="where the site is up, e.g. http://127.0.0.1:8000")

    def handle(self, *args: Any, **options: Any) -> None:
        agent = demo.seed_loop()
        try:
            found = circle(agent, options["url"].rstrip("/"), self._say)
        except (LoopFailed, DomainError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(json.dumps(found))
        if not (found["promoted"] and found["rolled_back"]):
            raise SystemExit(1)

    def _say(self, text: str) -> None:
        self.stderr.write(f"[loop] {text}")
        self.stderr.flush()
