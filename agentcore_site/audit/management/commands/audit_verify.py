"""``manage.py audit_verify``: whether the audit log and the ledger are what was written, line by line."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agentcore_site.audit.sealing import tables, verify


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

    def handle(self, *args: Any, **options: Any) -> None:
        """Raises CommandError: a name that there is not."""
        heads = dict(one.partition("=")[::2] for one in options["head"])
        if unknown := set(heads) - set(tables):
            raise CommandError(f"There is no {unknown.pop()!r}; names: {', '.join(tables)}.")
        wrong = 0
        for name, table in tables.items():
            found = verify(table, head=heads.get(name, ""))
            for one in found.wrong:
                self.stdout.write(f"{name}: {one}")
            wrong += len(found.wrong)
            sealed = f"{found.lines:,} lines in {found.seals:,} seals, {found.unsealed:,} not sealed yet"
            self.stdout.write(f"{name}: {sealed}; head {found.head or '-'}")
        if wrong:
            self.stderr.write(f"{wrong} faults.")
            raise SystemExit(1)
