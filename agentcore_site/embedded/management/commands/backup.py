"""``manage.py backup FILE``: database, key and objects in one file, with or without a running site."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from agentcore_site import env
from agentcore_site.embedded.backup import backup_write
from agentcore_site.embedded.programs import BackupUnusable, add_silence
from agentcore_site.embedded.stack import Stack
from agentcore_site.lib.service_paths import CannotStart


class Command(BaseCommand):
    help = "Write the database, the secret key and stored objects into one file (tar)."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="a new file; only its owner may read it")
        parser.add_argument("--without-key", action="store_true", help="leave SECRET_KEY out; keep it elsewhere")
        add_silence(parser, "nothing was dumped")

    def handle(self, *args: Any, **options: Any) -> None:
        target = options["file"].absolute()
        key = "" if options["without_key"] else settings.SECRET_KEY
        # Objects of a bucket stay in the bucket, which has versions and copies of its own.
        objects = None if settings.BUCKET else Path(settings.STORAGES["default"]["OPTIONS"]["location"])
        stack: Stack | None = None
        try:
            owner_url = env.services().owner_url
            if not owner_url:  # nothing runs
                stack = Stack(env.data_dir(), self.say)
                stack.lock()
                owner_url = stack.start_database()["database_owner_url"]
            manifest = backup_write(
                target, owner_url=owner_url, key=key, objects=objects, say=self.say, silence=options["silence"]
            )
        except (BackupUnusable, CannotStart) as error:
            raise CommandError(str(error)) from error
        finally:
            if stack is not None:
                stack.stop()
        rows, files = sum(manifest["rows"].values()), len(manifest["sha256"])
        self.say(f"{target}: {rows:,} rows, {files} files, {target.stat().st_size / 2**20:,.1f} MiB")
        if not key:
            self.say("SECRET_KEY is not in it: without the key, stored secrets can't be opened.")
        if objects is None:
            self.say(f"Objects stay in the bucket {settings.BUCKET}: they are not in it.")

    def say(self, message: str) -> None:
        self.stderr.write(f"[backup] {message}")
