"""Guardrails of a new arm that takes traffic, and the evidence that rolls it back.

Each guardrail has an e-value of its own (``evidence``). Their weighted mean is an e-value of "nothing got worse", under
any dependence between them. So the new arm is rolled back by mistake with probability ``ALPHA`` at most, over all
guardrails and analyses together. The rate of failure has most of the weight: it has to be found fast, and a change of
quality shows in every session. Cost and latency have evidence that is shown, and take nothing back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

from evaluation.serving.monitoring.bands import Difference
from evaluation.serving.monitoring.evidence import Evidence, FailureBets, ValueBets

ALPHA: Final = 0.05
WEIGHTS: Final[Mapping[str, float]] = {
    "failures": 0.76,
    "safety": 0.06,
    "reward": 0.06,
    "session_failures": 0.06,
    "session_reward": 0.06,
}
WATCHED: Final = (
    *WEIGHTS,
    "cost",
    "latency",
)  # whether slower or dearer is too much is for people to say
SIGNS: Final = {"reward": -1, "session_reward": -1, "cost": 1, "latency": 1}  # 1: more of it is worse
COUNTED: Final = ("failures", "safety", "session_failures")  # of requests; the others are a number for a session


class CanarySession(NamedTuple):
    """Figures of one session, its arm, and the probability with which it was given the new arm.

    Failures and ``safety`` (findings) are of ``requests``; None: not known, which says nothing. Those that begin with
    ``session`` are of all its requests, the others of its first one, which can be judged at once. Guardrails may
    learn of a session at different times: each has evidence of its own, in which a session counts once."""

    new: bool
    share: float
    requests: int
    failures: int | None = 0
    safety: int | None = None
    reward: float | None = None
    cost: float | None = None
    latency: float | None = None
    session_failures: int | None = None
    session_reward: float | None = None


class Alarm(NamedTuple):
    """Why an arm is taken back: the e-value of all guardrails, and the one that speaks loudest."""

    guardrail: str
    e_value: float


@dataclass
class Monitor:
    """The evidence so far. Sessions are taken in one by one, each once, in the order in which they are complete: when
    that is must not depend on what is tested."""

    evidence: dict[str, Evidence] = field(default_factory=dict)
    differences: dict[str, Difference] = field(default_factory=dict)

    def add(self, session: CanarySession) -> None:
        """Raises:
        ValueError: the share is no probability between 0 and 1."""
        for name in WATCHED:
            value = getattr(session, name)
            if value is None:
                continue
            self.evidence.setdefault(name, _fresh(name)).add(
                (value, session.requests) if name in COUNTED else value, new=session.new, share=session.share
            )
            shown = value / session.requests if name in COUNTED else value
            self.differences.setdefault(name, Difference()).add(shown, new=session.new, share=session.share)

    @property
    def e_value(self) -> float:
        """Of "nothing got worse". A guardrail of which nothing is known counts as 1."""
        known = {name: one.e_value for name, one in self.evidence.items()}
        return sum(weight * known.get(name, 1.0) for name, weight in WEIGHTS.items())

    def alarm(self) -> Alarm | None:
        """Why the new arm has to go; None while nothing is shown to be worse."""
        found = self.e_value
        if found < 1 / ALPHA:
            return None
        known = [name for name in WEIGHTS if name in self.evidence]
        loudest = max(known, key=lambda name: WEIGHTS[name] * self.evidence[name].e_value)
        return Alarm(loudest, found)

    def as_json(self) -> dict[str, Any]:
        return {
            "evidence": {name: one.as_json() for name, one in self.evidence.items()},
            "differences": {name: one.as_json() for name, one in self.differences.items()},
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        return cls(
            {name: Evidence.from_json(one) for name, one in stored["evidence"].items()},
            {name: Difference.from_json(one) for name, one in stored["differences"].items()},
        )


def _fresh(name: str) -> Evidence:
    return Evidence(FailureBets() if name in COUNTED else ValueBets(SIGNS[name]))
