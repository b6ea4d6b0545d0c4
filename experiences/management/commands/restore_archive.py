"""``manage.py restore_archive``: archived trajectories back into the database, where they age again."""

from __future__ import annotations

import argparse
from datetime import date
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import DomainError


def month(text: str) -> date:
    return date.fromisoformat(f"{text}-01")


class Command(BaseCommand):
    help = "Bring archived trajectories back into the database: those of a job, or of a whole month."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--job", type=UUID, help="the id of a job")
        what.add_argument("--month", type=month, metavar="YYYY-MM")

    def handle(self, *args: Any, **options: Any) -> None:
        from experiences.trajectories.archive.restoring import archived_jobs, job_restore

        parts = list(archived_jobs(job_id=options["job"], month=options["month"]))
        if not parts:
            raise CommandError("Nothing of that is in the archive alone.")
        rows = 0
        for place, part in enumerate(parts, 1):
            try:
                rows += job_restore(part)
            except (DomainError, FileNotFoundError) as error:
                raise CommandError(f"{error} {rows:,} trajectories are back; run it again for the others.") from error
            record(None, "trajectories.restored", part.archive, after={"job": str(part.job_id), "rows": part.rows})
            self.stdout.write(f"{place}/{len(parts)}: job {part.job_id}, {part.rows:,} trajectories")
