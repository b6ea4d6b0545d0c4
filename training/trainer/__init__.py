"""The trainer: ``steps`` yields one report per applied iteration; its caller stores the reports."""

from training.trainer.loop import TrainingDiverged, steps
from training.trainer.play import Played, play
from training.trainer.reports import IterationReport, SelectionReport
from training.trainer.selection import ALL_ITERATIONS, EARLY_STOPPED
from training.trainer.setup import TrainerSetup
from training.trainer.state import TrainerState

__all__ = [
    "ALL_ITERATIONS",
    "EARLY_STOPPED",
    "IterationReport",
    "Played",
    "SelectionReport",
    "TrainerSetup",
    "TrainerState",
    "TrainingDiverged",
    "play",
    "steps",
]
