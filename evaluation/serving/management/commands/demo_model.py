"""``manage.py demo_model``: a pretrained language model learns a task at a running site."""

from __future__ import annotations

import argparse
import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agentcore_site import env
from agentcore_site.lib.errors import DomainError
from evaluation.serving.loop.demo import LoopFailed
from evaluation.serving.loop.model_demo import model_learns
from training import demo


class Command(BaseCommand):
    help = "Train the weights of a language model, prove the gain, release it by the gate, and ask it by the gateway."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--url", required=True, help="where the site is up, e.g. http://127.0.0.1:8000")
        parser.add_argument("--seed", type=int, default=0, help="seed of the job")

    def handle(self, *args: Any, **options: Any) -> None:
        agent = demo.seed_sums(env.text("WEIGHTS_URL"), env.text("WEIGHTS_NAME"), env.text("WEIGHTS_TOKEN"))
        self._say(f"agent {agent.name}; the passwords of the demo's people: {demo.passwords_file()}")
        try:
            found = model_learns(agent, options["url"].rstrip("/"), self._say, seed=options["seed"])
        except (LoopFailed, DomainError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(json.dumps(found))
        if not found["released"]:
            raise SystemExit(1)

    def _say(self, text: str) -> None:
        self.stderr.write(f"[model] {text}")
        self.stderr.flush()
