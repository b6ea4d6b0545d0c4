"""``manage.py reconcile FILE``: a provider's usage export against the ledger, by day and model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agentcore_site.lib.errors import DomainError
from agentcore_site.lib.money_format import exact
from agentcore_site.tenancy.models import Organization
from budgets.models import LedgerEntry
from budgets.selectors import usage_compared
from budgets.usage_files.comparison import ComparedLine, difference_words, zone_of
from budgets.usage_files.reading import MAX_BYTES


class Command(BaseCommand):
    help = "Compare a provider's usage export (CSV or JSON) with the ledger; exits with 1 if lines differ."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", nargs="+", type=Path, help="costs, tokens or both; two files where each has one")
        parser.add_argument("--zone", default="UTC", help="time zone of the file's days: UTC, UTC-8, Europe/Berlin")
        parser.add_argument("--organization", help="slug; needed where there are several")
        parser.add_argument("--all", action="store_true", help="also lines that agree")

    def handle(self, *args: Any, **options: Any) -> None:
        organization = _organization(options["organization"])
        rows = LedgerEntry.objects.filter(organization_id=organization.pk)
        contents = map(_content, options["file"])
        try:
            found, file = usage_compared(rows, files=contents, zone=zone_of(options["zone"]))
        except (DomainError, ValueError) as error:
            raise CommandError(str(error)) from error
        for line in found.lines if options["all"] else found.differing:
            self.stdout.write(_words(line))
        for note in file.notes:
            self.stdout.write(f"note: {note}")
        if found.better_hours is not None:
            self.stdout.write(f"note: the days fit better with --zone UTC{found.better_hours:+d}")
        self.stdout.write(f"{found.first} to {found.last}: {difference_words(found)}")
        if found.differing:
            raise SystemExit(1)


def _organization(slug: str | None) -> Organization:
    rows = Organization.objects.all()
    found = list(rows.filter(slug=slug) if slug else rows[:2])
    if len(found) == 1:
        return found[0]
    if slug or not found:
        raise CommandError(f"There is no organisation {slug!r}." if slug else "There is no organisation.")
    raise CommandError("There are several organisations: name one with --organization.")


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise CommandError(f"{path} can't be read: {error.strerror}.") from error


def _words(line: ComparedLine) -> str:
    sides = [
        "nothing" if side is None else "no cost" if side.cost_micros is None else exact(side.cost_micros)
        for side in (line.ours, line.theirs)
    ]
    return (
        f"{line.day} {line.model or 'all models'}: ledger {sides[0]}, file {sides[1]}; {line.name}. {line.why}".strip()
    )
