"""Starts the final evaluation after a run's last checkpoint. A sweep finds missed runs by their rows."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.dispatch import receiver

from training.signals import checkpoint_saved


@receiver(checkpoint_saved)
def on_checkpoint(sender: Any, *, run_id: UUID, final: bool, **_: Any) -> None:
    # The run's job is still running now. The sweep that ends it asks again; the database keeps one row.
    if final:
        from evaluation.services import evaluation_of_finished_run

        evaluation_of_finished_run(run_id)
