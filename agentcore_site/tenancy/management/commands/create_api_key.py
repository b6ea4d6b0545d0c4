"""``manage.py create_api_key``: makes a key and prints it once."""

from __future__ import annotations

import argparse
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError

from agentcore_site.lib.errors import DomainError
from agentcore_site.lib.money import micros
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.roles import SCOPES
from agentcore_site.tenancy.services import api_key_create


def _micros(text: str) -> int:
    try:
        return micros(text)
    except (ArithmeticError, ValueError):
        raise argparse.ArgumentTypeError(f"{text!r} is no amount of dollars") from None


class Command(BaseCommand):
    help = "Make an API key for a person and print it once."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--user", required=True, help="username of the key's owner")
        parser.add_argument(
            "--scopes", required=True, nargs="+", help=f"scopes, by space or comma: {', '.join(SCOPES)}"
        )
        parser.add_argument("--name", default="command line")
        parser.add_argument("--days", type=int, default=90, help="how long it lives")
        parser.add_argument("--per-minute", type=int, help="calls of models through the gateway (default: not limited)")
        parser.add_argument("--monthly-usd", type=_micros, help="dollars a month for those (default: not limited)")

        parser.add_argument(
            "--addresses", nargs="+", default=[], help="addresses and networks from which alone it may be used"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        user = get_user_model().objects.filter(username=options["user"]).first()
        if user is None:
            raise CommandError(f"There is no user {options['user']!r}.")
        scopes = [scope for part in options["scopes"] for scope in part.split(",")]
        try:
            _, key = api_key_create(
                Actor(user, interface="command"),
                name=options["name"],
                scopes=scopes,
                days=options["days"],
                per_minute=options["per_minute"],
                monthly_micros=options["monthly_usd"],
                addresses=options["addresses"],
            )
        except DomainError as error:
            raise CommandError(error.message) from error
        self.stdout.write(key)
