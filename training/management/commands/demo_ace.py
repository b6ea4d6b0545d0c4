"""``manage.py demo_ace``: a playbook that evolves, by the requests of a service, against a running site."""

from __future__ import annotations

import argparse
import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agentcore_site.lib.errors import DomainError
from training import ace_demo


class Command(BaseCommand):
    help = "Let a simulated service make a playbook, record executions, and let it evolve."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--url", required=True, help="where the site is up, e.g. http://127.0.0.1:8000")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            with ace_demo.simulated_model() as address:
                found = ace_demo.example(ace_demo.seed(address), options["url"].rstrip("/"), self._say)
        except (ace_demo.DemoFailed, DomainError, OSError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(json.dumps(found))
        if not ace_demo.as_planned(found):
            raise SystemExit(1)

    def _say(self, text: str) -> None:
        self.stderr.write(f"[ace] {text}")
        self.stderr.flush()
