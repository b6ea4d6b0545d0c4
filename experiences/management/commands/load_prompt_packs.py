"""``manage.py load_prompt_packs``: puts stamped prompt packs from files into an organisation."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agentcore_site.lib.errors import DomainError
from agentcore_site.tenancy.models import Organization
from experiences.learning.lessons.pack_manifests import manifest_read, manifest_stamp, manifests_under
from experiences.learning.lessons.stamps import StampRefused
from experiences.lessons.services.packs import packs_load


class Command(BaseCommand):
    help = "Load prompt packs (manifest.json and its sources). Unstamped or altered ones are refused, all or none."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("folder", type=Path, help="a pack's folder, or a folder of packs")
        parser.add_argument("--organization", help="slug of the organisation; needed where there are several")
        parser.add_argument(
            "--stamp", action="store_true", help="only write sources and stamp into the manifests: for their author"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            paths = manifests_under(options["folder"])
            if options["stamp"]:
                done = {manifest_stamp(path).id: "stamped" for path in paths}
            else:
                manifests = [manifest_read(path) for path in paths]
                done = packs_load(None, self._organization(options["organization"]), manifests)
        except StampRefused as error:
            raise CommandError(f"Refused: {error}") from error
        except DomainError as error:
            raise CommandError(error.message) from error
        self.stdout.write(json.dumps(done))

    def _organization(self, slug: str | None) -> Organization:
        rows = Organization.objects.filter(slug=slug) if slug else Organization.objects.all()
        found = list(rows[:2])
        if len(found) != 1:
            known = ", ".join(Organization.objects.values_list("slug", flat=True)[:20])
            raise CommandError(f"Name one organisation by --organization. There are: {known or 'none'}.")
        return found[0]
