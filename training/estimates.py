"""What a run will cost and how long it will take, from what earlier runs measured (SPEC J6)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Final

from budgets.pricing import Price, Usage, cost
from training.config import GRPOConfig

# Before anything was measured here: a rollout of the embedded environment with its share of update and storage.
FIRST_GUESS_MS: Final = 1.5
SPREAD: Final = (0.6, 2.0)
GUESSED_SPREAD: Final = 3.0  # the dear end of what a guessed price may turn out to be
ENOUGH: Final = 8  # rollouts that make a measurement
P90: Final = 1.2816  # standard normal quantile
# Before an agent of a language model has run: calls of a rollout by philosophy, and what a call is made of.
CALLS: Final[Mapping[str, int]] = {"cot": 1, "react": 3, "autonomous": 5, "multi_agent": 6}
PROMPT_TOKENS, ANSWER_TOKENS, CALL_MS = 500, 200, 2_500
# A question about what attempts teach: it shows one attempt, or summaries beside the library.
QUESTION_TOKENS, REPLY_TOKENS = 1_300, 250


@dataclass(frozen=True, slots=True)
class Work:
    """What a run asks for: rollouts to learn from (``trained``), to look at the selection queries (``looked``) and to
    prove the gain on the held-out ones (``proof``), and questions of reflection."""

    trained: int
    looked: int
    proof: int
    questions: int = 0

    @property
    def rollouts(self) -> int:
        return self.trained + self.looked + self.proof


def work(config: GRPOConfig, *, n_train: int, n_selection: int, n_held_out: int, iterations: int | None = None) -> Work:
    """``iterations``: of the planned ones, the first so many. The numbers of queries cap what an iteration can draw."""
    n = config.n_iterations if iterations is None else iterations
    drawn, context = min(config.batch_size, max(n_train, 1)), config.context
    frozen = config.algorithm == "tfgrpo"
    return Work(
        trained=n * drawn * config.n_trajectories_per_query,
        looked=looks(n, config.eval_interval, context.epochs if frozen else 1) * n_selection * config.eval_samples,
        proof=2 * n_held_out * config.eval_samples,
        questions=questions(
            n if context.propose else 0,
            every=context.propose_every,
            until=1.0 if frozen else context.propose_until,
            groups=min(context.reflect_groups, drawn),
            attempts=min(2 * context.reflect_each, config.n_trajectories_per_query),
        ),
    )


@dataclass(frozen=True, slots=True)
class Rates:
    """What one rollout and one question take: milliseconds of a worker, and micro-dollars.

    ``sd`` is the standard deviation of a rollout's cost. ``n`` rollouts were measured; 0 for a guess.
    """

    ms: float
    micros: float
    question_micros: float = 0.0
    sd: float = 0.0
    n: int = 0

    @property
    def measured(self) -> bool:
        return self.n >= ENOUGH


FIRST_GUESS: Final = Rates(FIRST_GUESS_MS, 0.0)


def guessed(price: Price, *, philosophy: str, prompt_tokens: int, max_tokens: int, concurrency: int) -> Rates:
    """For an agent of a language model that never ran, from its model's price."""
    calls = CALLS.get(philosophy, 3)
    usage = Usage(PROMPT_TOKENS + prompt_tokens, min(ANSWER_TOKENS, max_tokens))
    asked = cost(price, Usage(QUESTION_TOKENS, REPLY_TOKENS))
    return Rates(calls * CALL_MS / max(concurrency, 1), calls * cost(price, usage), asked)


def rates(ms: float, rollouts: Sequence[float], questions: Sequence[float]) -> Rates:
    """From what each of the latest rollouts, and each question about them, cost in micro-dollars."""
    sd = math.sqrt(variance(rollouts)) if len(rollouts) > 1 else 0.0
    asked = fmean(questions) if questions else 0.0
    return Rates(ms, fmean(rollouts) if rollouts else 0.0, asked, sd, len(rollouts))


def looks(iterations: int, every: int, gates: int = 1) -> int:
    """How often a run looks at its selection queries: before anything, every so many iterations, and at each gate."""
    length = max(1, -(-iterations // max(gates, 1)))
    ends = {min(number * length, iterations) for number in range(1, gates + 1)}
    return 1 + len((ends | set(range(every, iterations + 1, every))) - {0})


def questions(iterations: int, *, every: int, until: float, groups: int, attempts: int) -> int:
    """How many questions reflection asks at most: of each group a summary per attempt, its lessons and its operations,
    and one to reconcile them."""
    if not iterations:
        return 0
    reflections = int(min(float(iterations), max(1.0, until * iterations))) // every
    return reflections * (groups * (attempts + 2) + (groups > 1))


@dataclass(frozen=True, slots=True)
class Plan:
    """An estimate: money in micro-dollars, with what it stays below nine times of ten; times in seconds with a range.

    ``fixed_micros`` is what it costs before the first iteration and after the last one.
    """

    trajectories: int
    cost_micros: int
    dear_micros: int
    fixed_micros: int
    seconds: float
    seconds_low: float
    seconds_high: float

    def iterations_for(self, budget: int, iterations: int) -> int | None:
        """How many of the planned iterations ``budget`` is likely to buy; None where they cost nothing."""
        each = (self.cost_micros - self.fixed_micros) / iterations
        if each <= 0:
            return None
        return max(0, min(iterations, int((budget - self.fixed_micros) / each)))


def plan(asked: Work, found: Rates, *, at_start: int) -> Plan:
    """Expected cost and duration of a run. ``at_start``: rollouts of the look before the first iteration.

    The dear end is the upper end of the interval of ALGORITHMS 7.5: of m rollouts to come after n that were seen with
    standard deviation s, m * mean + t * sqrt(m s^2 + m^2 s^2 / n).
    """
    m, s = asked.rollouts, found.sd
    expected = m * found.micros + asked.questions * found.question_micros
    if found.measured:
        student = P90 + (P90**3 + P90) / (4 * (found.n - 1))  # Student's quantile, first term of its expansion
        dear = expected + student * math.sqrt(m * s**2 + m**2 * s**2 / found.n)
    else:
        dear = expected * GUESSED_SPREAD
    seconds = asked.rollouts * found.ms / 1000
    low, high = SPREAD
    return Plan(
        trajectories=asked.trained,
        cost_micros=math.ceil(expected),
        dear_micros=math.ceil(dear),
        fixed_micros=math.ceil((at_start + asked.proof) * found.micros),
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
    spread = 2 * base_rate * (1 - base_rate) / max(samples, 1) + query_sd**2
    return min(1.0, 2.8 * math.sqrt(spread / n_queries))
