"""Starts a model server: a server over one base model that is trained and served here (docs/weights.md)."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiohttp import web
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentcore_site import env
from agentcore_site.lib.heartbeats import heartbeat_in_loop
from training.weights.pretrained import SMALL, SMOLLM2, NoModel, pretrained_model
from training.weights.random_model import RANDOM, random_model


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Of several servers that start at once, one sets up a model."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class Command(BaseCommand):
    requires_system_checks: list[str] = []  # it has no pages and no tables
    help = "Serves and trains the weights of one language model for jobs whose agents call it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "model",
            help=f"Folder of a model as save_pretrained writes it; {RANDOM}: one made here; {SMALL}: {SMOLLM2}.",
        )
        parser.add_argument("--name", default="", help="What agents call it; the folder's name by default.")
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=8300)
        parser.add_argument("--trainer", default="", help="Address of a server of the Tinker API that does the work.")
        parser.add_argument(
            "--memory",
            type=int,
            default=1_000,
            help="MB that an update or a batch of answers may take, beside the weights.",
        )
        parser.add_argument(
            "--dtype",
            default="",
            choices=("", "float32", "bfloat16", "auto"),
            help="Of the base's weights; auto: bfloat16 where the processor computes it.",
        )
        parser.add_argument("--kept", default="", help="Folder of states that are kept; DATA_DIR/weights by default.")
        parser.add_argument("--parent", action="store_true", help="End when standard input is closed.")

    def handle(
        self, *, model: str, name: str, host: str, port: int, trainer: str, parent: bool, **options: Any
    ) -> None:
        models = Path(settings.DATA_DIR) / "weights" / "models"
        saved = Path(options["kept"] or models.parent)
        named = {RANDOM: models / RANDOM, SMALL: models / SMOLLM2}
        folder = named.get(model, Path(model))
        if model not in named and not folder.is_dir():
            raise CommandError(f"{folder} is no folder. Give the folder of a model, as save_pretrained writes it.")
        token = env.text("WEIGHTS_TOKEN")
        if not token and host not in ("127.0.0.1", "localhost", "::1"):
            raise CommandError("A model server that others can reach wants a key: set WEIGHTS_TOKEN.")
        try:
            from training.weights.chat import ChatTokens
            from training.weights.model_server import ModelServer

            if model in named:
                with _alone(models):
                    if model == SMALL:
                        pretrained_model(folder)
                    elif not folder.is_dir():
                        random_model(folder)
            chat = ChatTokens(folder)
            if trainer:
                from training.weights.tinker_engine import TinkerEngine

                engine: Any = TinkerEngine(trainer, name or folder.name, key=env.text("TINKER_API_KEY"))
            else:
                from training.weights.torch_engine import TorchEngine

                memory, dtype = options["memory"] << 20, options["dtype"]
                saved.mkdir(parents=True, exist_ok=True)
                engine = TorchEngine(folder, memory=memory, dtype=dtype, decode=chat.text, scratch=saved)
        except NoModel as error:
            raise CommandError(str(error)) from error
        except ImportError as error:
            raise CommandError(f"The extra [weights] is not installed here: {error}") from error
        server = ModelServer(engine, chat, name=name or folder.name, token=token, saved=saved)
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(self._serve(server.application(), host, port, parent=parent))

    async def _serve(self, app: web.Application, host: str, port: int, *, parent: bool) -> None:
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
        await runner.setup()
        site = web.TCPSite(runner, host, port)
        await site.start()
        bound = runner.addresses[0]
        self.stdout.write(f"http://{bound[0]}:{bound[1]}/v1")
        self.stdout.flush()
        heartbeat_in_loop()
        ending, loop = asyncio.Event(), asyncio.get_running_loop()
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(one, ending.set)
        if parent:
            threading.Thread(
                target=lambda: (sys.stdin.read(), loop.call_soon_threadsafe(ending.set)), daemon=True
            ).start()
        await ending.wait()
        await runner.cleanup()
