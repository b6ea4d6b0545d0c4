"""``manage.py import_trajectories``: imports files of other trainers as trajectories of an agent."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError

from agentcore_site.lib.errors import DomainError
from agentcore_site.tenancy.actors import Actor
from evaluation.events.imports.formats import FORMATS
from evaluation.events.imports.services import trajectories_import
from experiences.models.agent_lookup import agent_get


class Command(BaseCommand):
    help = "Import rollouts of verifiers, OpenEnv or ART (JSONL) as trajectories of an agent."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="traces.jsonl, results.jsonl …")
        parser.add_argument("--agent", required=True, help="the agent's slug or id")
        parser.add_argument("--user", required=True, help="who imports; they may record what agents do")
        parser.add_argument("--format", choices=sorted(FORMATS), default="", help="by default from the lines' fields")

    def handle(self, *args: Any, **options: Any) -> None:
        user = get_user_model().objects.filter(username=options["user"]).first()
        if user is None:
            raise CommandError(f"There is no user {options['user']!r}.")
        actor = Actor(user, interface="command")
        try:
            agent = agent_get(actor, options["agent"])
            with options["file"].open("rb") as lines:
                report = trajectories_import(actor, agent, lines, kind=options["format"])
        except OSError as error:
            raise CommandError(f"{options['file']} can't be read: {error.strerror}.") from error
        except DomainError as error:
            raise CommandError(error.message) from error
        for fault in report.faults:
            self.stderr.write(fault)
        self.stdout.write(f"{report.new:,} new, {report.known:,} known, {report.refused:,} refused")
