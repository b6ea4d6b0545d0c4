"""``manage.py feedback_loop``: publishes local events, and receives events from elsewhere."""

from __future__ import annotations

import argparse
import asyncio
import signal
from typing import Any

import uvloop
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from agentcore_site import env
from agentcore_site.lib.heartbeats import PARTS, heartbeat_in_loop
from evaluation.events.loop import feedback_loop


class Command(BaseCommand):
    help = "Run the relay and the consumers of events until SIGTERM or Ctrl-C."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--only", choices=PARTS, help="run one of them, the other elsewhere")

    def handle(self, *args: Any, **options: Any) -> None:
        if not settings.NATS_URL:
            raise CommandError(f"Set NATS_URL, or start `{env.COMMAND} up` with EVENTS=1.")
        uvloop.run(_run((options["only"],) if options["only"] else PARTS))


async def _run(parts: tuple[str, ...]) -> None:
    heartbeat_in_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await feedback_loop(stopping, parts)
