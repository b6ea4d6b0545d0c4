"""The trainer: ``steps`` yields one report per applied iteration; what it reports, others write down."""

from training.trainer.loop import ALL_ITERATIONS, EARLY_STOPPED, TrainingDiverged, steps
from training.trainer.play import Played, play
from training.trainer.setup import IterationReport, SelectionReport, TrainerSetup
from training.trainer.state import TrainerState, policy_of

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
    "policy_of",
    "steps",
]
