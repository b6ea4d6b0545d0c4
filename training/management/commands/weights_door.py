"""The former name of ``manage.py model_server``, kept until the next release."""

from __future__ import annotations

from typing import Any

from training.management.commands.model_server import Command as ModelServerCommand


class Command(ModelServerCommand):
    def handle(self, *args: Any, **options: Any) -> None:
        self.stderr.write("weights_door is now called model_server; the former name goes with the next release.")
        super().handle(*args, **options)
