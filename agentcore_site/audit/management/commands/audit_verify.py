"""``manage.py audit_verify``: checks line by line that the audit log and the ledger are unchanged."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agentcore_site.audit.export_lines import copy_compare
from agentcore_site.audit.sealing import tables, verify
from agentcore_site.lib.errors import Invalid


class Command(BaseCommand):
    help = (
        "Check every seal of the audit log and the ledger; name lines that were altered, taken away or added. Exit 1."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--head",
            action="append",
            default=[],
            metavar="NAME=DIGEST",
            help=f"a head that an earlier check printed and you kept elsewhere; names: {', '.join(tables)}",
        )
        parser.add_argument(
            "--copy", type=Path, metavar="FILE", help="an export of the audit log, which is compared with the seals too"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Raises CommandError: a name is unknown, or a file is not an export."""
        heads = dict(one.partition("=")[::2] for one in options["head"])
        if unknown := set(heads) - set(tables):
            raise CommandError(f"There is no {unknown.pop()!r}; names: {', '.join(tables)}.")
        wrong = 0
        for name, table in tables.items():
            found = verify(table, head=heads.get(name, ""))
            for one in found.wrong:
                self.stdout.write(f"{name}: {one}")
            wrong += len(found.wrong)
            if found.unnamed:
                self.stdout.write(f"{name}: words of {found.unnamed:,} lines were erased before erasures were named")
            sealed = f"{found.lines:,} lines in {found.seals:,} seals, {found.unsealed:,} not sealed yet"
            self.stdout.write(f"{name}: {sealed}; head {found.head or '-'}")
        if options["copy"] is not None:
            wrong += self._compare(options["copy"])
        if wrong:
            self.stderr.write(f"{wrong} faults.")
            raise SystemExit(1)

    def _compare(self, path: Path) -> int:
        try:
            with path.open("rb") as file:
                found = copy_compare(file)
        except (OSError, Invalid) as error:
            raise CommandError(f"{path}: {error}") from error
        for one in found.wrong:
            self.stdout.write(one)
        self.stdout.write(f"{path}: {found.lines:,} lines, {found.unsealed:,} of them not sealed")
        return len(found.wrong)
