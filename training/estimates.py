"""What a run will cost and how long it will take, from what earlier runs measured (SPEC J6)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from budgets.pricing import Price, Usage, cost

# Before anything was measured here: a rollout of the embedded environment with its share of update and storage.
FIRST_GUESS_MS: Final = 1.5
SPREAD: Final = (0.6, 2.0)
# Before an agent of a language model has run: calls of a rollout by philosophy, and what a call is made of.
CALLS: Final[Mapping[str, int]] = {"cot": 1, "react": 3, "autonomous": 5, "multi_agent": 6}
PROMPT_TOKENS, ANSWER_TOKENS, CALL_MS = 500, 200, 2_500
# A question about what attempts teach: it shows one attempt, or summaries beside the library.
QUESTION_TOKENS, REPLY_TOKENS = 1_300, 250


@dataclass(frozen=True, slots=True)
class Measured:
    """What an earlier run took of a worker's time, and cost, per training trajectory."""

    ms_per_trajectory: float
    micros_per_trajectory: float
    n: int

    @classmethod
    def nothing(cls) -> Measured:
        return cls(FIRST_GUESS_MS, 0.0, 0)

    @classmethod
    def guessed(
        cls,
        price: Price,
        *,
        philosophy: str,
        prompt_tokens: int,
        max_tokens: int,
        looks: float,
        concurrency: int,
        questions: float = 0.0,
    ) -> Measured:
        """For an agent of a language model that never ran. ``looks`` is how many rollouts are played to evaluate for
        each one to train on, ``questions`` how many questions are asked about what they teach; all are paid for."""
        calls = CALLS.get(philosophy, 3) * (1 + looks)
        usage = Usage(PROMPT_TOKENS + prompt_tokens, min(ANSWER_TOKENS, max_tokens))
        asked = cost(price, Usage(QUESTION_TOKENS, REPLY_TOKENS))
        ms = (calls + questions) * CALL_MS / max(concurrency, 1)
        return cls(ms, calls * cost(price, usage) + questions * asked, 0)


def looks(iterations: int, every: int, gates: int = 1) -> int:
    """How often a run looks at its selection queries: before anything, every so many iterations, and at each gate."""
    length = -(-iterations // max(gates, 1))
    ends = {min(number * length, iterations) for number in range(1, gates + 1)}
    return 1 + len(ends | set(range(every, iterations + 1, every)))


def questions(iterations: int, *, every: int, until: float, groups: int, attempts: int) -> int:
    """How many questions reflection asks at most: of each group a summary per attempt, its lessons and its operations,
    and one to reconcile them."""
    reflections = int(min(float(iterations), max(1.0, until * iterations))) // every
    return reflections * (groups * (attempts + 2) + (groups > 1))


@dataclass(frozen=True, slots=True)
class Plan:
    """An estimate: money in micro-dollars, times in seconds with a range."""

    trajectories: int
    cost_micros: int
    seconds: float
    seconds_low: float
    seconds_high: float


def plan(*, iterations: int, batch_size: int, group_size: int, n_train: int, measured: Measured) -> Plan:
    """Expected cost and duration of a run. ``n_train`` caps how many distinct queries an iteration can draw."""
    trajectories = iterations * min(batch_size, max(n_train, 1)) * group_size
    seconds = trajectories * measured.ms_per_trajectory / 1000
    low, high = SPREAD
    return Plan(
        trajectories=trajectories,
        cost_micros=math.ceil(trajectories * measured.micros_per_trajectory),
        seconds=seconds,
        seconds_low=seconds * low,
        seconds_high=seconds * high,
    )


def detectable_gain(n_queries: int, samples: int, base_rate: float = 0.5, query_sd: float = 0.25) -> float:
    """The smallest gain in success rate that the held-out queries can tell at 80 % power, two-sided 5 %.

    MDE = 2.8 · sd(d) / √n (ALGORITHMS 6.2), where d is a query's difference between two arms of ``samples``
    rollouts each: sampling noise 2·p(1-p)/k plus the spread of the true effect between queries.
    """
    if n_queries < 1:
        return 1.0
    variance = 2 * base_rate * (1 - base_rate) / max(samples, 1) + query_sd**2
    return min(1.0, 2.8 * math.sqrt(variance / n_queries))
