"""``manage.py first_account``: prints the address of the page that makes the first account."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from agentcore_site.identity.first_account import first_account_path


class Command(BaseCommand):
    help = "Print the link that makes the first account of a site without accounts. It is good for a day."

    def handle(self, *args: Any, **options: Any) -> None:
        path = first_account_path()
        if not path:
            raise CommandError("This site has an account. Its admins invite others on the page People.")
        if not settings.PUBLIC_URL:
            self.stderr.write("Open this path at the console's address:")
        self.stdout.write(f"{settings.PUBLIC_URL}{path}")
