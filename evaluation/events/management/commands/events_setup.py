"""``manage.py events_setup``: makes the streams."""

from __future__ import annotations

import asyncio
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from agentcore_site import env
from evaluation.events.broker import connect, streams_ensure
from evaluation.events.inboxes import InboxStreams
from evaluation.events.subjects import InboxPlan


class Command(BaseCommand):
    help = "Make the JetStream streams of events, or give those that are there our settings."

    def handle(self, *args: Any, **options: Any) -> None:
        if not settings.NATS_URL:
            raise CommandError(f"Set NATS_URL, or start `{env.COMMAND} up` with EVENTS=1.")
        try:
            names = asyncio.run(_setup())
        except Exception as error:  # of the client, of sockets or of names
            raise CommandError(f"NATS did not take it: {error or type(error).__name__}.") from error
        self.stdout.write(f"streams: {', '.join(names)}")


async def _setup() -> list[str]:
    client = await connect("events_setup")
    try:
        names = await streams_ensure(client.jetstream())
        inboxes = await InboxStreams(client.jetstream()).ensure()
        return [*names, *sorted(InboxPlan(organization).name for organization in inboxes)]
    finally:
        await client.close()
