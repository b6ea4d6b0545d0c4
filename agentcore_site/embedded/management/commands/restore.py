"""``manage.py restore FILE``: restores a file of ``backup`` into an empty data folder or an empty database."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agentcore_site import env
from agentcore_site.embedded import backup
from agentcore_site.embedded.programs import BackupUnusable, add_silence
from agentcore_site.embedded.stack import Stack
from agentcore_site.lib.service_paths import CannotStart


class Command(BaseCommand):
    help = "Restore a file of `backup` into an empty DATA_DIR (and DATABASE_URL), check it, and migrate it."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", type=Path)
        add_silence(parser, "the database server does not answer")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            stack = Stack(env.data_dir(), self.say)
            stack.lock()
            with tempfile.TemporaryDirectory(dir=env.data_dir(), prefix=".restore-") as name:
                manifest = backup.backup_read(options["file"], Path(name))
                self._restore(stack, Path(name), manifest, options["silence"])
        except (BackupUnusable, CannotStart) as error:
            raise CommandError(str(error)) from error
        self.say(
            f"restored {sum(manifest['rows'].values()):,} rows of {manifest['made_at']}. Start with `{env.COMMAND} up`."
        )

    def _restore(self, stack: Stack, folder: Path, manifest: dict[str, Any], silence: float) -> None:
        try:
            self._require_no_objects()
            urls = stack.start_database()
            owner_url = urls["database_owner_url"]
            backup.database_require_empty(owner_url)
            self.say("restoring the database")
            backup.database_restore(folder / backup.DUMP, owner_url, silence)
            if (found := backup.database_rows(owner_url)) != manifest["rows"]:
                differ = sorted(
                    name for name in found | manifest["rows"] if found.get(name) != manifest["rows"].get(name)
                )
                raise BackupUnusable(f"Other numbers of rows than were backed up: {', '.join(differ)}.")
            self._place_files(folder)
            self._migrate(urls)
        finally:
            stack.stop()

    def _require_no_objects(self) -> None:
        objects = env.data_dir() / "objects"
        if objects.is_dir() and any(objects.iterdir()):
            raise BackupUnusable(f"{objects} is not empty. Restore into an empty DATA_DIR.")

    def _place_files(self, folder: Path) -> None:
        """Puts the key and the objects into this data folder."""
        data = env.data_dir()
        if (folder / backup.KEY).exists() and not env.text("SECRET_KEY"):
            # The process itself created a key already when it read its settings.
            env.private_file(data / "secret_key", (folder / backup.KEY).read_text(encoding="utf-8"))
        if (folder / backup.OBJECTS).is_dir():
            shutil.copytree(folder / backup.OBJECTS, data / "objects", dirs_exist_ok=True)

    def _migrate(self, urls: dict[str, str]) -> None:
        """Applies newer migrations and the rights of the application's role, and checks that the key is the database's.
        It gives up a silent database by itself."""
        self.say("migrating")
        done = subprocess.run(
            [sys.executable, str(env.ROOT / "manage.py"), "migrate", "--no-input", "--verbosity", "0"],
            env=os.environ | {name.upper(): url for name, url in urls.items()},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise BackupUnusable(f"migrate failed:\n{done.stderr.strip()}")

    def say(self, message: str) -> None:
        self.stderr.write(f"[restore] {message}")
