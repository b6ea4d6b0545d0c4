"""``manage.py retention``: what the hourly task and its jobs do, at once; ``--dry-run`` says what that would be."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agentcore_site.lib.errors import DomainError
from agentcore_site.lib.retention import rules
from agentcore_site.tenancy.models import Organization


class Command(BaseCommand):
    help = "Let everything age by its rule: archive months, delete what is over. Safe to end and to run again."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="say what would go, and change nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["dry_run"]:
            for name, rule in rules.items():
                state = "kept" if rule.due is None else f"{rule.due():,} rows are due"
                self.stdout.write(f"{name}: {state}. {rule.says}")
            return
        try:
            done = self._archive()
        except (DomainError, FileNotFoundError) as error:
            raise CommandError(str(error)) from error
        for name, rule in rules.items():
            if rule.age is not None and (gone := rule.age()):
                self.stdout.write(f"{name}: {gone:,}")
                done = True
        if not done:
            self.stdout.write("Nothing is due. --dry-run says by which rule each kind of row ages.")

    def _archive(self) -> bool:
        """Here and now, and not by jobs. Returns whether there was anything to do."""
        from experiences.trajectories.archive.archive_lifecycle import Unhindered, stray_delete
        from experiences.trajectories.archive.execution import done, months_drop, todo

        busy = False
        for organization in Organization.objects.all():
            left = todo(organization.pk)
            busy = busy or bool(left)
            for place, (_, state, _) in enumerate(done(Unhindered(), left), 1):
                self.stdout.write(f"{organization.slug} {place}/{len(left)}: {state}")
            stray_delete(organization.pk)
        for month in months_drop():
            self.stdout.write(f"{month} is in the archive alone now.")
            busy = True
        return busy
