"""The judge as a reward: a language model grades each rollout by a rubric, in any environment.

The reward itself asks no model. It says by its ``rubric`` that it wants a verdict; ``run_rollout`` gets one once it
has ended, paid for like any call, and the reward reads it from the evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from experiences.rollouts.environments.scorers import MAX_RUBRIC, Rubric
from experiences.rollouts.options import Option
from experiences.rollouts.rewards.base import VERDICT, Payment, reward_of
from experiences.rollouts.types import Trajectory

NOUN: Final = "reward judge"
PAYS: Final = ("score", "success")
NO_JUDGE: Final = "no language model was there to judge it"
SILENT: Final = "the judge gave no verdict"


@dataclass(frozen=True, slots=True)
class JudgeReward:
    """Pays the judge's score in [0, 1], or 1 and 0 from ``rubric.threshold`` on. Without a verdict there is no reward:
    that is not the agent's doing."""

    rubric: Rubric
    pays: str = "score"

    def __call__(self, trajectory: Trajectory) -> Payment:
        verdict = trajectory.evidence.get(VERDICT)
        if not isinstance(verdict, Mapping):
            return Payment([], unscored=NO_JUDGE)
        if verdict.get("judge_error"):
            return Payment([], unscored=SILENT)
        score = float(verdict["score"])
        amount = score if self.pays == "score" else float(score >= self.rubric.threshold)
        judge = verdict.get("judge") or {}
        evidence = {"name": "judge", "score": score, "scores": list(judge.get("scores", ()))}
        return Payment.at_the_end(trajectory, {"judge": amount}, evidence)


OPTIONS: Final[Mapping[str, Option]] = {
    "rubric": Option("What a good answer is: what earns 10 points and what none. Required."),
    "model": Option("The model that judges, at the agent's endpoint; the agent's own by default.", ""),
    "calls": Option("How often it is asked about a rollout; the median counts. 1 by default.", 1, 1, 9),
    "pays": Option(
        "score: what it gives, from 0 to 1 (default); success: 1 from the threshold on, else 0.", choices=PAYS
    ),
    "threshold": Option("The score, from 0 to 1, from which a rollout is a success; 0.7 by default.", 0.7, 0, 1),
    "reference": Option("Whether it sees the expected answer where there is one; true by default.", True),
}


@reward_of("judge", "What a language model thinks of the rollout, by a rubric of yours.", OPTIONS)
def judge(rubric: Any, model: Any, calls: int, pays: str, threshold: float, reference: bool) -> JudgeReward:
    if not isinstance(rubric, str) or not 0 < len(rubric.strip()) <= MAX_RUBRIC:
        raise ValueError(f"{NOUN}: rubric must be a text of at most {MAX_RUBRIC:,} characters.")
    if not isinstance(model, str):
        raise ValueError(f"{NOUN}: model must be the name of a model; got {model!r}.")
    wanted = Rubric(rubric.strip(), threshold=threshold, calls=calls, model=model.strip(), shows_reference=reference)
    return JudgeReward(wanted, pays)
