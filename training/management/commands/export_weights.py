"""``manage.py export_weights``: the weights in a downloaded checkpoint, for peft, vLLM and transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from training.learners.registry import stored_policy
from training.policies.archive import MOST_UNPACKED, CorruptState
from training.policies.weights import WeightsPolicy
from training.weights.engine import BadInput


class Command(BaseCommand):
    requires_system_checks: list[str] = []  # it needs no service
    help = "Writes the weights of a downloaded checkpoint as an adapter, or merged into their model, as safetensors."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("checkpoint", type=Path, help="the file that the checkpoint's download gave")
        parser.add_argument("folder", type=Path, help="where the files are written")
        parser.add_argument("--model", type=Path, help="folder of the base model")
        parser.add_argument("--merged", action="store_true", help="write the whole model; needs --model")

    def handle(self, *, checkpoint: Path, folder: Path, model: Path | None, merged: bool, **_: Any) -> None:
        if merged and (model is None or not model.is_dir()):
            raise CommandError("--merged needs the folder of the base model: --model FOLDER.")
        if folder.exists() and any(folder.iterdir()):
            raise CommandError(f"{folder} is not empty. Name a new folder.")
        try:
            policy = stored_policy(checkpoint.read_bytes(), most=MOST_UNPACKED).policy
            if not isinstance(policy, WeightsPolicy) or not policy.weights.digest:
                raise CommandError(f"{checkpoint} holds no weights that were learned.")
            from training.weights.export_files import adapter_export, model_export

            if merged and model is not None:
                model_export(policy.weights.state, model, folder)
            else:
                adapter_export(policy.weights.state, folder, base=str(model or ""))
        except OSError as error:
            raise CommandError(f"{error.filename} can't be read or written: {error.strerror}.") from error
        except (CorruptState, BadInput) as error:
            raise CommandError(f"{checkpoint} can't be exported: {error}") from error
        except ImportError as error:
            raise CommandError(f"The extra [weights] is not installed here: {error}") from error
        self.stdout.write(str(folder))
