"""The settings that a run reads, by its learner: a setting that changes nothing is refused at launch."""

from __future__ import annotations

from training.learners import learner_of


def counts_for(name: str, runtime: str, algorithm: str = "grpo", learner: str = "") -> bool:
    """Whether a setting (by its dotted name) changes anything for agents of this runtime and the named learner."""
    return learner_of(runtime, learner).reads(name, algorithm)
