"""``manage.py erase_subject``: deletes what an organisation keeps of a person, and prints the report."""

from __future__ import annotations

import argparse
import json
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError

from agentcore_site.lib.errors import DomainError
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.erasure import subject_erase


class Command(BaseCommand):
    help = "Erase everything that holds one of the identifiers, and print a report that names no person."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--user", required=True, help="who asks: an admin of the organisation")
        parser.add_argument("--identifier", action="append", required=True, help="repeatable: an address, a name")
        parser.add_argument("--dry-run", action="store_true", help="only count")

    def handle(self, *args: Any, **options: Any) -> None:
        user = get_user_model().objects.filter(username=options["user"]).first()
        if user is None:
            raise CommandError(f"There is no user {options['user']!r}.")
        try:
            report = subject_erase(Actor(user, interface="command"), options["identifier"], dry_run=options["dry_run"])
        except DomainError as error:
            raise CommandError(error.message) from error
        counts = {"found": report.found, "left": report.left, "notes": report.notes}
        self.stdout.write(json.dumps(counts | {"dry_run": options["dry_run"]}))
