"""``manage.py take_off_second_factor``: for a person who lost it, and whom no admin of an organisation may help."""

from __future__ import annotations

import argparse
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError

from agentcore_site.identity.second_factor import factor_take_off_by_command
from agentcore_site.lib.errors import DomainError


class Command(BaseCommand):
    help = "Take a person's second factor off, and end all their sign-ins."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--user", required=True, help="username")

    def handle(self, *args: Any, **options: Any) -> None:
        user = get_user_model().objects.filter(username=options["user"]).first()
        if user is None:
            raise CommandError(f"There is no user {options['user']!r}.")
        try:
            factor_take_off_by_command(user)
        except DomainError as error:
            raise CommandError(error.message) from error
        self.stdout.write(f"{user} signs in without a second factor now, and was signed out everywhere.")
