"""``manage.py warehouse_setup``: makes the warehouse's tables and has it filled with all that is there."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agentcore_site import env
from evaluation.warehouse.clickhouse.transports import WarehouseError
from evaluation.warehouse.loading import store_configured, warehouse_forget, warehouse_setup


class Command(BaseCommand):
    help = "Make or upgrade the tables of the warehouse at CLICKHOUSE_URL, and fill it with what is there."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--again", action="store_true", help="send all rows again, to a warehouse that lost some")
        which.add_argument("--off", action="store_true", help="note nothing for it any more; it keeps what it has")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["off"]:
            warehouse_forget()
            self.stdout.write("Nothing is noted for the warehouse any more.")
            return
        store = store_configured()
        if store is None:
            raise CommandError(f"Set CLICKHOUSE_URL, or start `{env.COMMAND} up` with WAREHOUSE=1.")
        try:
            noted = warehouse_setup(store, again=options["again"])
        except WarehouseError as error:
            raise CommandError(str(error)) from error
        self.stdout.write("All rows wait to be sent." if noted else "The tables are as they should be.")
