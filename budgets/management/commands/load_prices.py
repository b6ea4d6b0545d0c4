"""``manage.py load_prices``: fills the price table from the shipped prices, or from a file in our or LiteLLM's format.

Shipped are the seed file and the data of genai-prices, which is read once for each of its versions.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agentcore_site.lib.errors import DomainError
from agentcore_site.tenancy.models import Organization
from budgets.prices.loading import BOOK, SEED, book_is_loaded, prices_load


class Command(BaseCommand):
    help = "Load model prices (the shipped ones, or FILE in our or LiteLLM's JSON format). Twice changes nothing."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", nargs="?", type=Path, help="a JSON file; without one, the shipped prices")
        parser.add_argument("--from", dest="valid_from", type=date.fromisoformat, help="valid from this day (today)")
        parser.add_argument("--replace", action="store_true", help="also prices that were edited by hand")
        parser.add_argument("--organization", help="slug: prices of one organisation instead of all")

    def handle(self, *args: Any, **options: Any) -> None:
        organization = None
        if options["organization"]:
            organization = Organization.objects.filter(slug=options["organization"]).first()
            if organization is None:
                raise CommandError(f"There is no organisation {options['organization']!r}.")
        path: Path = options["file"] or SEED
        try:
            self._load(path.read_bytes(), path.name, organization, options)
            if options["file"] is None and not book_is_loaded(organization):
                self._load(None, BOOK, organization, options)
        except OSError as error:
            raise CommandError(f"{path} can't be read: {error.strerror}.") from error
        except DomainError as error:
            raise CommandError(error.message) from error

    def _load(
        self, raw: bytes | None, name: str, organization: Organization | None, options: Mapping[str, Any]
    ) -> None:
        loaded = prices_load(
            raw,
            name=name,
            valid_from=options["valid_from"] or datetime.now(UTC).date(),
            organization=organization,
            replace=options["replace"],
        )
        self.stdout.write(
            f"{name}:"
            f" {len(loaded.new)} new, {len(loaded.changed)} changed, {len(loaded.same)} unchanged,"
            f" {len(loaded.kept)} kept, {len(loaded.skipped)} skipped."
        )
        for model in loaded.changed:
            self.stdout.write(f"changed: {model}")
        for model in loaded.kept:
            self.stdout.write(f"kept: edited by hand: {model}")
        for why, count in Counter(loaded.skipped.values()).most_common():
            first = next(model for model, reason in loaded.skipped.items() if reason == why)
            self.stdout.write(f"skipped {count}: {why} ({first}{' …' if count > 1 else ''})")
