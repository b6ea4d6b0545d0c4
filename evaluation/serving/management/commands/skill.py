"""``manage.py skill``: verifies a skill that a site of this program exported."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from evaluation.serving.releases.skill import SkillError, verified
from evaluation.serving.releases.skill_reading import fingerprint


class Command(BaseCommand):
    requires_system_checks: list[str] = []  # it needs no service
    help = "Verify a skill: its signature and each of its files. Ends with 1 where something was changed."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("action", choices=["verify"])
        parser.add_argument("file", type=Path, help="the zip file")
        parser.add_argument("--key", default="", help="the public key that has to have signed it, in base64")

    def handle(self, *, action: str, file: Path, key: str, **_: Any) -> None:
        try:
            found = verified(file.read_bytes(), key)
        except OSError as error:
            raise CommandError(f"{file} can't be read: {error.strerror}.") from error
        except SkillError as error:
            raise CommandError(f"{file}: {error}") from error
        if found.skill is None:
            raise CommandError(f"{file}: {' '.join(found.faults)}")
        signer = {"key": found.key, "fingerprint": fingerprint(found.key)}
        self.stdout.write(json.dumps({"name": found.skill.name, **signer, **found.skill.facts}, indent=1))
