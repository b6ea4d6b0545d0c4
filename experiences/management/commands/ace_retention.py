"""``manage.py ace_retention``: what the daily task does, at once."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from experiences.playbooks.retention import forget


class Command(BaseCommand):
    help = "Delete executions older than ACE_TRACE_DAYS, and deltas older than ACE_DELTA_DAYS that were not applied."

    def handle(self, *args: Any, **options: Any) -> None:
        gone = forget()
        self.stdout.write(f"deleted {gone['traces']:,} executions and {gone['deltas']:,} deltas")
