"""Estimates of a run's cost and duration from earlier runs."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Final

from budgets.pricing import PER, Price, Usage, cost_micros
from training.schema import GRPOConfig
from training.splits import search_size

# Before anything was measured here: a rollout of the embedded environment with its share of update and storage.
FIRST_GUESS_MS: Final = 1.5
SPREAD: Final = (0.6, 2.0)
# The upper end, as a factor of the expected cost, until ended jobs show how far jobs are from their plans. A guess
# depends on prompts and answers that were not seen yet; a measured value moves with the lessons of the next job.
GUESSED_SPREAD: Final = 3.0
UNKNOWN_SPREAD: Final = 1.5
ENOUGH_JOBS: Final = 5  # ended jobs for a measured factor
ENOUGH: Final = 8  # rollouts that make a measurement
P90: Final = 1.2816  # standard normal quantile
# Before an agent of a language model has run: calls of a rollout by philosophy, and what a call is made of.
CALLS: Final[Mapping[str, int]] = {"chat": 1, "cot": 1, "react": 3, "autonomous": 5, "multi_agent": 6}
PROMPT_TOKENS, ANSWER_TOKENS, CALL_MS = 500, 200, 2_500
# A question about what attempts teach: it shows one attempt, or summaries beside the library.
QUESTION_TOKENS, REPLY_TOKENS = 1_300, 250
ATTEMPT_TOKENS = 1_200  # of an attempt that is shown whole, at most
TRAINED_TOKENS_PER_S: Final = 2_000  # of a model server, in one of an update's passes, before one was seen at work


@dataclass(frozen=True, slots=True)
class Work:
    """Work of a run: rollouts for training (``trained``), for validation (``validation``) and for the proof on held-out
    queries (``proof``), and questions of reflection. Where groups may be shown whole, ``summaries`` of these questions
    are left out, and others show up to ``shown_tokens`` of attempts."""

    trained: int
    validation: int
    proof: int
    questions: int = 0
    summaries: int = 0
    shown_tokens: int = 0

    @property
    def rollouts(self) -> int:
        return self.trained + self.validation + self.proof


# The share of the samples after its first analysis that a gate takes on average: it stops when it is decided.
GATE_SHARE: Final = 0.5


def work(
    config: GRPOConfig,
    *,
    n_train: int,
    n_selection: int,
    n_held_out: int,
    learns_context: bool = False,
    iterations: int | None = None,
) -> Work:
    """``learns_context``: its gate samples in steps. ``iterations``: only the first so many of the planned ones. The
    numbers of queries cap the draws of an iteration."""
    n = config.n_iterations if iterations is None else iterations
    drawn, context = min(config.batch_size, max(n_train, 1)), config.context
    frozen = config.algorithm == "tfgrpo"
    each = context.validation_samples if learns_context else config.eval_samples
    samples = validations(n, config.eval_interval) * each
    if learns_context:  # further interim analyses of the gate, of the candidate and of the context at the start
        samples += round(2 * GATE_SHARE * (context.gate_steps - 1) * each)
    searched = 0
    if learns_context and frozen:
        steps = validations(n, config.eval_interval, context.epochs, context.search_every)
        searched = steps * each * search_size(n_train, n_selection)
    if learns_context and config.algorithm == "gepa":  # each proposal takes two evaluations
        return Work(
            trained=n * drawn * config.n_trajectories_per_query,
            validation=samples * n_selection,
            proof=2 * n_held_out * config.eval_samples,
            questions=n // 2,
            shown_tokens=n // 2 * context.reflect_groups * config.n_trajectories_per_query * ATTEMPT_TOKENS,
        )
    asks = reflections(n if context.propose else 0, context.propose_every, 1.0 if frozen else context.propose_until)
    groups, size = min(context.reflect_groups, drawn), config.n_trajectories_per_query
    attempts = min(2 * context.reflect_each, size)
    whole = asks * groups if context.group_tokens else 0
    return Work(
        trained=n * drawn * size,
        validation=samples * n_selection + searched,
        proof=2 * n_held_out * config.eval_samples,
        questions=questions(asks, groups=groups, attempts=attempts),
        summaries=whole * attempts,
        shown_tokens=whole * min(context.group_tokens, size * ATTEMPT_TOKENS),
    )


@dataclass(frozen=True, slots=True)
class Rates:
    """Time and cost of one rollout and one question; the time is in milliseconds of a worker.

    ``sd_micros`` is the standard deviation of a rollout's cost. ``n`` rollouts were measured; 0 for a guess.
    ``shown_micros`` is what a token costs that the reflector reads. ``learned_micros`` is what the training calls of
    an update cost at a model server, for each rollout that is learned from.
    """

    ms: float
    rollout_micros: float
    question_micros: float = 0.0
    sd_micros: float = 0.0
    n: int = 0
    shown_micros: float = 0.0
    learned_micros: float = 0.0

    @property
    def measured(self) -> bool:
        return self.n >= ENOUGH


FIRST_GUESS: Final = Rates(FIRST_GUESS_MS, 0.0)


def guessed(
    price: Price, *, question_micros: float, philosophy: str, prompt_tokens: int, max_tokens: int, concurrency: int
) -> Rates:
    """For an agent of a language model that never ran, from its model's price."""
    calls = CALLS.get(philosophy, 3)
    usage = Usage(PROMPT_TOKENS + prompt_tokens, min(ANSWER_TOKENS, max_tokens))
    return Rates(calls * CALL_MS / max(concurrency, 1), calls * cost_micros(price, usage), question_micros)


def passes(config: GRPOConfig) -> int:
    """Number of times that an iteration's tokens are sent to a model server: for log-probabilities and for a gradient
    at each step, and once for those of the reference."""
    return 2 * config.num_iterations + (config.beta > 0)


def guessed_learning_micros(
    config: GRPOConfig, price: Price, usd_per_hour: float, *, philosophy: str, prompt_tokens: int, max_tokens: int
) -> float:
    """Cost of the training calls of one rollout before an update was made: its tokens in each pass at the
    price of training, and the server's seconds. Turns that continue each other are one row of tokens; here all count as
    rows of their own, which is the dearer."""
    tokens = CALLS.get(philosophy, 3) * (PROMPT_TOKENS + prompt_tokens + min(ANSWER_TOKENS, max_tokens))
    calls = passes(config) + config.num_iterations  # each step of Adam is one more
    surcharges_micros = calls * price.per_call_micros / (config.batch_size * config.n_trajectories_per_query)
    seconds = passes(config) * tokens / TRAINED_TOKENS_PER_S
    return passes(config) * tokens * price.input_micros / PER + surcharges_micros + seconds * usd_per_hour / 3_600 * 1e6


def guessed_question_micros(price: Price, prompt_tokens: int = 0) -> float:
    """Guessed cost of a question of reflection, before one was asked, from the reflector's price and
    the tokens of the agent's objectives."""
    return cost_micros(price, Usage(QUESTION_TOKENS + prompt_tokens, REPLY_TOKENS))


def rates(
    ms: float, rollouts_micros: Sequence[float], questions_micros: Sequence[float], *, question_micros: float = 0.0
) -> Rates:
    """From what each of the latest rollouts, and each question about them, cost. ``question_micros`` is the guess where
    none was asked."""
    n = len(rollouts_micros)
    sd_micros = math.sqrt(variance(rollouts_micros)) if n > 1 else 0.0
    asked_micros = fmean(questions_micros) if questions_micros else question_micros
    return Rates(ms, fmean(rollouts_micros) if n else 0.0, asked_micros, sd_micros, n)


def spread_between_jobs(ratios: Sequence[float]) -> float | None:
    """The factor that a job's cost stays below nine times of ten; None with too few jobs.

    ``ratios``: what each earlier job cost, divided by what was expected of it before. The rollouts of one job share
    its lessons and prompts, so that the spread within a job says little about the next one. The upper end of the
    prediction interval of one more log-ratio: mean + t * s * sqrt(1 + 1/n).
    """
    logs = [math.log(ratio) for ratio in ratios if ratio > 0]
    n = len(logs)
    if n < ENOUGH_JOBS:
        return None
    return math.exp(fmean(logs) + _student(n - 1) * math.sqrt(variance(logs) * (1 + 1 / n)))


def _student(freedom: int) -> float:
    """Student's 90 % quantile: the first two terms of its expansion around the normal one."""
    return P90 + (P90**3 + P90) / (4 * freedom) + (5 * P90**5 + 16 * P90**3 + 3 * P90) / (96 * freedom**2)


def validations(iterations: int, every: int, epochs: int = 1, search_every: int = 0) -> int:
    """Number of validations of a run: one before training, one every ``every`` iterations, one at the end of each of
    the ``epochs``, and one at each step of a search (0: no search)."""
    length = max(1, -(-iterations // max(epochs, 1)))
    ends = {min(number * length, iterations) for number in range(1, epochs + 1)}
    steps = set(range(search_every, iterations + 1, search_every)) if search_every else set()
    return 1 + len((ends | steps | set(range(every, iterations + 1, every))) - {0})


def reflections(iterations: int, every: int, until: float) -> int:
    """In how many of the iterations lessons are asked for, at most."""
    return int(min(float(iterations), max(1.0, until * iterations))) // every if iterations else 0


def questions(times: int, *, groups: int, attempts: int) -> int:
    """Maximum number of questions of ``times`` reflections: for each group a summary per attempt, its lessons and its
    operations, and one question to reconcile them."""
    return times * (groups * (attempts + 2) + (groups > 1))


@dataclass(frozen=True, slots=True)
class Plan:
    """An estimate of cost and time, which is in seconds with a range.

    ``dear_micros`` is the upper end of the cost and ``basis`` what it rests on: "jobs" (it stays below nine times of
    ten, by how earlier jobs came out), "factor" (too few jobs ended: a fixed factor of what was measured) or "guess" (a
    fixed factor of a first guess).
    """

    trajectories: int
    cost_micros: int
    dear_micros: int
    basis: str
    seconds: float
    seconds_low: float
    seconds_high: float


def plan(asked: Work, found: Rates, *, ratios: Sequence[float] = ()) -> Plan:
    """Expected cost and duration of a run. ``ratios``: see ``spread_between_jobs``.

    The dear end is never below that of the interval that holds for rollouts of one job: of m
    rollouts to come after n that were seen with standard deviation s, m * mean + t * sqrt(m s^2 + m^2 s^2 / n).
    """
    m, s = asked.rollouts, found.sd_micros
    expected_micros = _expected_micros(asked, found)
    if found.measured:
        between = spread_between_jobs(ratios)
        basis = "factor" if between is None else "jobs"
        within_micros = expected_micros + _student(found.n - 1) * math.sqrt(m * s**2 + m**2 * s**2 / found.n)
        dear_micros = max(within_micros, expected_micros * (between or UNKNOWN_SPREAD))
    else:
        basis, dear_micros = "guess", expected_micros * GUESSED_SPREAD
    seconds = asked.rollouts * found.ms / 1000
    low, high = SPREAD
    return Plan(
        trajectories=asked.trained,
        cost_micros=math.ceil(expected_micros),
        dear_micros=math.ceil(dear_micros),
        basis=basis,
        seconds=seconds,
        seconds_low=seconds * low,
        seconds_high=seconds * high,
    )


def affordable(
    config: GRPOConfig, found: Rates, room_micros: int, *, learns_context: bool = False, **pools: int
) -> int | None:
    """The most iterations, of those that ``config`` asks for, whose whole job is expected to cost at most
    ``room_micros``: validations, questions, training calls and proof included. None where they cost nothing.
    ``pools``: see ``work``."""
    if not found.rollout_micros and not found.question_micros and not found.learned_micros:
        return None

    def micros_of(n: int) -> int:
        return math.ceil(_expected_micros(work(config, **pools, learns_context=learns_context, iterations=n), found))

    return max(0, bisect_right(range(config.n_iterations + 1), room_micros, key=micros_of) - 1)


def least_micros(config: GRPOConfig, guess: Rates, *, learns_context: bool, **pools: int) -> int:
    """Lower bound of what a job costs before it has learned anything: the rollouts of its first validation and of one
    iteration."""
    samples = config.context.validation_samples if learns_context else config.eval_samples
    drawn = min(config.batch_size, max(pools["n_train"], 1)) * config.n_trajectories_per_query
    return lower_bound_micros(guess, rollouts=pools["n_selection"] * samples + drawn, learned=drawn)


def lower_bound_micros(guess: Rates, *, rollouts: int, learned: int = 0) -> int:
    """Lower bound of what these rollouts cost, of which ``learned`` are learned from. A guess may be too high by
    ``GUESSED_SPREAD``, so the bound is that share of it: with three calls guessed for a rollout, one call at the listed
    prices."""
    return math.ceil((rollouts * guess.rollout_micros + learned * guess.learned_micros) / GUESSED_SPREAD)


def _expected_micros(asked: Work, found: Rates) -> float:
    return asked.rollouts * found.rollout_micros + learning_micros(asked, found) + reflection_micros(asked, found)


def learning_micros(asked: Work, found: Rates) -> float:
    """Cost of the training calls of a model server."""
    return asked.trained * found.learned_micros


def reflection_micros(asked: Work, found: Rates) -> float:
    """Cost of the questions. Whether groups fit a question is seen when they are there: the dearer counts."""
    shown_micros, summaries_micros = asked.shown_tokens * found.shown_micros, asked.summaries * found.question_micros
    return asked.questions * found.question_micros + max(0.0, shown_micros - summaries_micros)


def detectable_gain(n_queries: int, samples: int, base_rate: float = 0.5, query_sd: float = 0.25) -> float:
    """The smallest gain in success rate that the held-out queries detect at 80 % power, two-sided 5 %.

    MDE = 2.8 · sd(d) / √n (docs/algorithms.md#comparing-two-arms), where d is a query's difference between two arms of
    ``samples`` rollouts each: sampling noise 2·p(1-p)/k plus the spread of the true effect between queries.
    """
    if n_queries < 1:
        return 1.0
    spread = 2 * base_rate * (1 - base_rate) / max(samples, 1) + query_sd**2
    return min(1.0, 2.8 * math.sqrt(spread / n_queries))
