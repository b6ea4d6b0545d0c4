"""New data keys for organisations whose texts are encrypted, or the present keys sealed again."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentcore_site.encryption.models import DataKey
from agentcore_site.encryption.services import key_rotate, keys_seal_again
from agentcore_site.lib.errors import DomainError
from agentcore_site.tenancy.models import Organization


class Command(BaseCommand):
    help = (
        "Takes a new data key for each organisation whose texts are encrypted; jobs encrypt with it what is stored,"
        " while everything goes on. With --seal texts are not touched: data keys are sealed under the newest key of"
        " their holder, or under that of another one that is set up now (VAULT_ADDR)."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--organization", metavar="SLUG", help="this one alone")
        parser.add_argument("--seal", action="store_true", help="seal data keys again, and touch no text")

    def handle(self, *args: Any, **options: Any) -> None:
        slug = options["organization"]
        found = Organization.objects.filter(pk__in=DataKey.objects.filter(active=True).values("organization"))
        if slug and (found := Organization.objects.filter(slug=slug)).first() is None:
            raise CommandError(f"There is no organisation {slug}.")
        try:
            if options["seal"]:
                self.stdout.write(f"{keys_seal_again(found.get() if slug else None)} data keys were sealed again.")
                return
            if not found:
                self.stdout.write("No organisation's texts are encrypted: there is no key to change.")
            for organization in found:
                job = key_rotate(None, organization)
                self.stdout.write(f"{organization.slug}: a new key; job {job.pk} encrypts with it what is stored.")
        except DomainError as error:
            raise CommandError(error.message) from error
