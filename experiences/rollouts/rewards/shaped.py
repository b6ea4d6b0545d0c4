"""The shaped reward: the outcome, and small payments on the way to it.

How the payments are made decides more than their size (docs/algorithms.md#rewards): paid naively, calling tools until
the step limit is worth more than solving the task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from experiences.rollouts.options import Option
from experiences.rollouts.rewards.base import FAILURE_OPTIONS, FailurePay, Payment, reward_of
from experiences.rollouts.rewards.effort import call_of
from experiences.rollouts.types import Step, Trajectory

RULES = ("strict", "naive", "potential", "gated")


@dataclass(frozen=True, slots=True)
class ShapedReward:
    """Outcome + payments for tool calls and verifying - a cost of each step.

    Rules:
        strict: each distinct useful call (it succeeded and returned something) once, at most
            ``max_paid_calls``; the first verify that confirmed a result.
        naive: every successful call and every verify step. Agents learn to farm it; for comparison.
        gated: as strict, but only in a trajectory that succeeded.
        potential: gamma * Phi(s') - Phi(s), where Phi is the strict pay earned so far and 0 at the end (Ng, Harada
            and Russell 1999): it leaves the best policy as it is.
    """

    rule: str = "strict"
    tool: float = 0.1
    verify: float = 0.05
    step: float = -0.01
    wrong_answer: float = 0.0
    max_paid_calls: int = 3
    gamma: float = 0.99
    partial_credit: bool = False
    failures: FailurePay = field(default_factory=FailurePay)

    @property
    def part_weights(self) -> dict[str, float]:
        """Payment of one call, verify, step and wrong answer, and of the outcome."""
        each = {"tool": self.tool, "verify": self.verify, "step": self.step}
        return each | {"outcome": 1.0, "wrong_answer": self.wrong_answer}

    def __call__(self, trajectory: Trajectory) -> Payment:
        steps, success = trajectory.steps, trajectory.success
        tool_pay, verify_pay = self._naive(steps) if self.rule == "naive" else self._strict(steps)
        if self.rule == "gated" and not success:
            tool_pay = verify_pay = [0.0] * len(steps)
        if self.rule == "potential":
            tool_pay, verify_pay = self._potential(tool_pay), self._potential(verify_pay)
        paid = [self.step + tool_pay[t] + verify_pay[t] for t in range(len(steps))]
        components = {"tool": sum(tool_pay), "verify": sum(verify_pay), "step": self.step * len(steps)}
        components["outcome"] = trajectory.outcome if self.partial_credit else float(success)
        answered_wrongly = not success and bool(steps) and steps[-1].action.get("type") == "answer"
        components["wrong_answer"] = self.wrong_answer if answered_wrongly else 0.0
        if paid:
            paid[-1] += components["outcome"] + components["wrong_answer"]
        return Payment(paid, components)

    def _naive(self, steps: list[Step]) -> tuple[list[float], list[float]]:
        types = [step.action.get("type") for step in steps]
        return (
            [self.tool * (kind == "tool" and is_useful(step)) for kind, step in zip(types, steps, strict=True)],
            [self.verify * (kind == "verify") for kind in types],
        )

    def _strict(self, steps: list[Step]) -> tuple[list[float], list[float]]:
        tool_pay, verify_pay = [0.0] * len(steps), [0.0] * len(steps)
        paid_calls: set[tuple[str, bytes]] = set()
        verified = False
        for t, step in enumerate(steps):
            kind = step.action.get("type")
            if kind == "tool" and is_useful(step) and len(paid_calls) < self.max_paid_calls:
                call = call_of(step)
                if call not in paid_calls:
                    paid_calls.add(call)
                    tool_pay[t] = self.tool
            elif kind == "verify" and not verified and step.result.get("success"):
                verified = True
                verify_pay[t] = self.verify
        return tool_pay, verify_pay

    def _potential(self, earned: list[float]) -> list[float]:
        """F_t = gamma * Phi_(t+1) - Phi_t, where Phi_t is what was earned before step t."""
        shaped, before = [], 0.0
        for t, amount in enumerate(earned):
            after = before + amount if t < len(earned) - 1 else 0.0
            shaped.append(self.gamma * after - before)
            before = after
        return shaped


def is_useful(step: Step) -> bool:
    """The call succeeded and returned something."""
    return bool(step.result.get("success")) and bool(step.result.get("output"))


OPTIONS: Final[Mapping[str, Option]] = {
    "rule": Option(
        "How payments are made: strict (default), naive (farmed; for comparison), potential or gated.", choices=RULES
    ),
    "tool": Option("Paid for a successful tool call; usually 0 to 0.1.", 0.1, -10, 10),
    "verify": Option("Paid for a verify step; usually 0.05.", 0.05, -10, 10),
    "step": Option("Added for each step; usually -0.01.", -0.01, -10, 10),
    "wrong_answer": Option("Added when the episode was ended by a wrong answer; usually -0.2 to 0.", 0.0, -10, 0),
    "max_paid_calls": Option("How many distinct useful calls are paid at most (strict, gated, potential).", 3, 0, 1000),
    "gamma": Option("The discount of the potential rule; the same as the algorithm's.", 0.99, 0, 1),
    "partial_credit": Option(
        "Pay the scorer's score as it is (true), or 1 for success and 0 otherwise (default).", False
    ),
    **FAILURE_OPTIONS,
}


@reward_of(
    "shaped",
    "The outcome, plus small payments for useful tool calls and verifying, minus a cost of each step.",
    OPTIONS,
)
def shaped(timeout: float, failure: float | None, **values: Any) -> ShapedReward:
    return ShapedReward(**values, failures=FailurePay(timeout, failure))
