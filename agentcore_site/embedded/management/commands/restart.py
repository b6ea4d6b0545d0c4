"""``manage.py restart``: the processes of the running site are replaced one by one, and no call is lost."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agentcore_site import env
from agentcore_site.embedded.management.commands.up import ALL, ROLES
from agentcore_site.embedded.rolling import restart_asked
from agentcore_site.lib.service_paths import CannotStart


class Command(BaseCommand):
    help = (
        "Replace web, gateway, workers and beat of the site that runs on DATA_DIR, one after another, each once its"
        " successor is ready. Pending migrations are applied first. Data services go on."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--role", choices=sorted(ROLES), default=ALL, help="of the up that is asked (default: all)")

    def handle(self, *args: Any, **options: Any) -> None:
        role = "" if options["role"] == ALL else options["role"]
        try:
            for line in restart_asked(env.data_dir() / "run", role):
                self.stdout.write(line)
                self.stdout.flush()
        except (CannotStart, env.BadEnvironment) as error:
            raise CommandError(str(error)) from error
