"""``manage.py load_prices``: fills the price table from the seed file, or from a file in our or LiteLLM's format."""

from __future__ import annotations

import argparse
from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agentcore_site.lib.errors import DomainError
from agentcore_site.tenancy.models import Organization
from budgets.prices.loading import SEED, prices_load


class Command(BaseCommand):
    help = "Load model prices (the seed file, or FILE in our or LiteLLM's JSON format). Twice changes nothing."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", nargs="?", type=Path, help="a JSON file; without one, the seed prices")
        parser.add_argument("--from", dest="valid_from", type=date.fromisoformat, help="valid from this day (today)")
        parser.add_argument("--replace", action="store_true", help="also prices that were edited by hand")
        parser.add_argument("--organization", help="slug: prices of one organisation instead of all")

    def handle(self, *args: Any, **options: Any) -> None:
        path: Path = options["file"] or SEED
        organization = None
        if options["organization"]:
            organization = Organization.objects.filter(slug=options["organization"]).first()
            if organization is None:
                raise CommandError(f"There is no organisation {options['organization']!r}.")
        try:
            loaded = prices_load(
                path.read_bytes(),
                name=path.name,
                valid_from=options["valid_from"] or datetime.now(UTC).date(),
                organization=organization,
                replace=options["replace"],
            )
        except OSError as error:
            raise CommandError(f"{path} can't be read: {error.strerror}.") from error
        except DomainError as error:
            raise CommandError(error.message) from error
        self.stdout.write(
            f"{len(loaded.new)} new, {len(loaded.changed)} changed, {len(loaded.same)} unchanged,"
            f" {len(loaded.kept)} kept, {len(loaded.skipped)} skipped."
        )
        for model in loaded.changed:
            self.stdout.write(f"changed: {model}")
        for model in loaded.kept:
            self.stdout.write(f"kept: edited by hand: {model}")
        for why, count in Counter(loaded.skipped.values()).most_common():
            first = next(model for model, reason in loaded.skipped.items() if reason == why)
            self.stdout.write(f"skipped {count}: {why} ({first}{' …' if count > 1 else ''})")
