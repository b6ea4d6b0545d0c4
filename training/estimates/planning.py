"""The estimate of a run before it starts: from what the agent's earlier rollouts took, else a guess."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypedDict

from django.db.models import F, Sum

from agentcore_site.jobs.models import Reason, Status
from agentcore_site.lib.errors import Invalid
from agentcore_site.lib.money import dollars, micros
from agentcore_site.lib.money_format import money
from budgets.ledger.accounts import limit_standing_micros
from budgets.llm.tokens import IMAGE_USUAL
from budgets.llm.types import Endpoint
from budgets.meter_port import UnknownPrice
from budgets.metering.price_book import TRAIN, DatabasePriceBook
from budgets.models import EntryKind, LedgerEntry, Scope
from budgets.pricing import PER, Price, Usage, cost_micros
from budgets.selectors import NAMES, Headroom, budget_chain
from budgets.services import limit_owner
from experiences.agents.endpoint_config import GPU_PRICE, BadEndpoint, endpoint_of_agent, endpoint_of_reflector
from experiences.models import Agent, AgentRuntime
from training.data.pools import shares
from training.estimates import measured
from training.estimates.measured import Rates
from training.learners import gate, learner_of
from training.models import OF_ACTIONS, OF_MODELS, TrainingRun, with_money
from training.schema import GRPOConfig
from training.splits import split_counts

JOBS: Final = 50  # ended jobs whose cost is compared with their plan
LATEST: Final = 4_000  # calls that are looked at: what prompts grow to is what the next run begins with
GAINS: Final = (0.05, 0.10, 0.15, 0.20)  # true gains for which the gate's power is stated
HARDLY, OFTEN = 0.2, 0.5  # shares of the runs in which the largest of them is found: a gate hardly ever ships, or often
PAID: Final = (EntryKind.SETTLE, EntryKind.CHARGE, EntryKind.REFUND)  # entries that sum up to what calls cost
OURS: Final = ("table", "estimate")  # sources of a cost that came of tokens and our price table


class PlanEstimate(TypedDict):
    """A plan as JSON values. ``measured``: from rollouts of this agent with this model. ``affordable_iterations`` None:
    free. ``gate``, ``reflection``, ``training_calls``: as the methods of ``Planned`` say."""

    cost_usd: float
    cost_usd_p90: float
    cost_basis: str
    seconds: float
    seconds_low: float
    seconds_high: float
    trajectories: int
    n_train: int
    n_selection: int
    n_held_out: int
    detectable_gain: float
    measured: bool
    affordable_iterations: int | None
    gate: dict[str, Any] | None
    reflection: dict[str, Any] | None
    training_calls: dict[str, Any] | None
    warnings: list[str]


@dataclass(frozen=True, slots=True)
class Planned:
    """An estimate with what it was made of: the rates, and the sizes of the pools by name (``n_train``, ...)."""

    config: GRPOConfig
    agent: Agent
    plan: measured.Plan
    rates: Rates
    pools: Mapping[str, int]
    rooms: Sequence[tuple[Headroom, int]]  # the limited budgets of organisation and agent, with what each has left

    @property
    def budget_micros(self) -> int:
        """The most that the job may spend."""
        return micros(self.config.max_budget_usd)

    @property
    def monthly_micros(self) -> int | None:
        """The agent's monthly limit that the launch has to set: the configuration's, where there is none or a
        larger one. None: nothing is to be set."""
        if self.config.max_monthly_budget_usd is None:
            return None
        wanted_micros = micros(self.config.max_monthly_budget_usd)
        standing_micros = limit_standing_micros(limit_owner(self.agent.organization_id, agent_id=self.agent.id))
        return wanted_micros if standing_micros is None or wanted_micros < standing_micros else None

    @property
    def affordable(self) -> int | None:
        """Number of iterations that fit the job's budget and the rest of organisation and agent; None: free."""
        room_micros = min([self.budget_micros, *(left_micros for _, left_micros in self.rooms)])
        return measured.affordable(
            self.config, self.rates, room_micros, learns_context=self.learns_context, **self.pools
        )

    @property
    def least_micros(self) -> int:
        """The least that the job costs before it has learned anything; see ``measured.least_micros``."""
        return measured.least_micros(self.config, self.rates, learns_context=self.learns_context, **self.pools)

    @property
    def learns_context(self) -> bool:
        """Whether the run learns a context: then a gate decides what is shipped."""
        return learner_of(self.agent.runtime, self.config.learner).learns_context

    def gate(self) -> dict[str, Any]:
        """Power of the gate for some true gains, with its rollouts and dollars."""
        design = gate.design(self.config)
        powers = {gain: design.power(self.pools["n_selection"], gain) for gain in GAINS}
        return {
            "error": self.config.context.gate_alpha,
            "n_queries": self.pools["n_selection"],
            "most_samples": design.analyses * design.step,
            "power": [
                {
                    "gain": gain,
                    "found": round(power.found, 3),
                    "rollouts": round(power.rollouts),
                    "cost_usd": dollars(round(power.rollouts * self.rates.rollout_micros)),
                }
                for gain, power in powers.items()
            ],
            "can_ship": powers[GAINS[-1]].found >= HARDLY,
        }

    def queries_that_could(self) -> int:
        """The size of a dataset with which the gate would find a gain of 20 points in every second run."""
        design = gate.design(self.config)

        def is_enough(n: int) -> bool:
            selection = split_counts(n, **shares(self.config))[1]
            return design.power(selection, GAINS[-1]).found >= OFTEN

        # More queries never find less; each size that is asked for is simulated, which takes a part of a second.
        sizes = range(5, 2_000)
        return 5 + bisect_left(sizes, True, key=is_enough)

    def reflection(self) -> dict[str, Any] | None:
        """The model that reflects on attempts, with its number of calls; None where no model is called for that."""
        asked = measured.work(self.config, **self.pools, learns_context=self.learns_context)
        if not self.learns_context or not asked.questions:
            return None
        return {
            "model": endpoint_of_reflector(self.agent).model,
            "questions": asked.questions,
            "cost_usd": dollars(math.ceil(measured.reflection_micros(asked, self.rates))),
        }

    def training_calls(self) -> dict[str, Any] | None:
        """Cost of the updates at a model server; None without one."""
        if not learner_of(self.agent.runtime, self.config.learner).needs_model_server:
            return None
        asked = measured.work(self.config, **self.pools, learns_context=self.learns_context)
        return {
            "model": endpoint_of_agent(self.agent).model,
            "updates": self.config.n_iterations * self.config.num_iterations,
            "cost_usd": dollars(math.ceil(measured.learning_micros(asked, self.rates))),
        }

    def as_json(self) -> PlanEstimate:
        gain = measured.detectable_gain(self.pools["n_held_out"], self.config.eval_samples)
        buys = self.affordable
        return {
            "cost_usd": dollars(self.plan.cost_micros),
            "cost_usd_p90": dollars(self.plan.dear_micros),
            "cost_basis": self.plan.basis,
            "seconds": round(self.plan.seconds, 1),
            "seconds_low": round(self.plan.seconds_low, 1),
            "seconds_high": round(self.plan.seconds_high, 1),
            "trajectories": self.plan.trajectories,
            "n_train": self.pools["n_train"],
            "n_selection": self.pools["n_selection"],
            "n_held_out": self.pools["n_held_out"],
            "detectable_gain": round(gain, 4),
            "measured": self.rates.measured,
            "affordable_iterations": buys,
            "gate": self.gate() if self.learns_context else None,
            "reflection": self.reflection(),
            "training_calls": self.training_calls(),
            "warnings": [*self._unseen(), *self._tight(buys), *self._weak(gain)],
        }

    def _unseen(self) -> Iterator[str]:
        if self.agent.runtime == AgentRuntime.HTTP and self.agent.context_arrives is None:
            yield (
                "It is not known whether the context that this agent is sent reaches its model. Give it a test task (in"
                " its form) first: an agent that drops it can learn nothing."
            )

    def _tight(self, buys: int | None) -> Iterator[str]:
        """Warnings of a launch that is taken and may stop early. Refusals are in ``services.admission``."""
        budget_micros, plan = self.budget_micros, self.plan
        if buys is None:
            return
        if plan.cost_micros > budget_micros and not self.rates.measured:
            if buys:
                yield f"This budget buys about {buys} of {self.config.n_iterations} iterations; the job pauses then."
            else:
                yield "By this guess the budget does not cover one iteration with its proof: the job may pause early."
        elif plan.dear_micros > budget_micros >= plan.cost_micros:
            yield "If it comes out dear, this budget is used up before the end; the job pauses then."
        for room, left_micros in self.rooms:
            if min(plan.cost_micros, budget_micros) <= left_micros < min(plan.dear_micros, budget_micros):
                whose = NAMES[Scope(room.scope)].capitalize()
                left = money(left_micros)
                yield f"{whose} budget has {left} left this month: if the job comes out dear, it pauses then."

    def _weak(self, gain: float) -> Iterator[str]:
        if gain > 0.15:
            n = self.pools["n_held_out"]
            yield f"{n} held-out queries can only detect gains of {gain * 100:.0f} points or more. Add queries."


def planned(
    config: GRPOConfig, agent: Agent, *, n_train: int, n_selection: int, n_held_out: int, images: float = 0.0
) -> Planned:
    """The estimate of a run that is yet to be made. ``images`` are those of a query, on average.

    Raises:
        Invalid: an endpoint of the agent can't be used, or a model that the run asks has no price, so that no call
            could be held to a budget.
    """
    found = _of_actions(agent) if agent.runtime == AgentRuntime.ACTION else _of_models(agent, config, images)
    pools = {"n_train": n_train, "n_selection": n_selection, "n_held_out": n_held_out}
    asked = measured.work(config, **pools, learns_context=learner_of(agent.runtime, config.learner).learns_context)
    plan = measured.plan(asked, found, ratios=_ratios(agent) if found.measured else ())
    return Planned(config, agent, plan, found, pools, _rooms(agent, config))


def model_price(agent: Agent) -> Price:
    """The price of the model that the agent calls.

    Raises:
        Invalid: its endpoint can't be used, or the model has no price.
    """
    return _price(agent, endpoint_of_agent)


def reflector_price(agent: Agent) -> Price:
    """The price of the model that reflects on the agent's attempts.

    Raises:
        Invalid: its endpoint can't be used, or the model has no price.
    """
    return _price(agent, endpoint_of_reflector, "The agent's reflector: ")


def _price(agent: Agent, endpoint: Callable[[Agent], Endpoint], whose: str = "") -> Price:
    try:
        return DatabasePriceBook.load(agent.organization_id).price(endpoint(agent).model)
    except (BadEndpoint, UnknownPrice) as error:
        message = f"{whose}{error}"
        raise Invalid(message, fields={"agent": message}) from error


def _rooms(agent: Agent, config: GRPOConfig) -> list[tuple[Headroom, int]]:
    """As they are once the configuration's monthly budget is set."""
    chain = budget_chain(agent.organization_id, agent_id=agent.id)
    if config.max_monthly_budget_usd is not None:
        chain = [_limited(room, micros(config.max_monthly_budget_usd)) for room in chain]
    return [(room, 0 if room.debt_micros else room.left_micros) for room in chain if room.left_micros is not None]


def _limited(room: Headroom, most_micros: int) -> Headroom:
    if room.scope != Scope.AGENT or (room.limit_micros is not None and room.limit_micros <= most_micros):
        return room
    return replace(room, limit_micros=most_micros)


def _ratios(agent: Agent) -> list[float]:
    """Costs of the organisation's latest jobs with a model, divided by their planned costs. Only jobs count that ran
    all iterations, paid for their proof and were planned from a measurement."""
    runs = TrainingRun.objects.filter(organization_id=agent.organization_id, estimate__measured=True)
    ended = runs.filter(job__status=Status.COMPLETED, job__status_reason=Reason.ALL_ITERATIONS)
    rows = with_money(ended.filter(OF_MODELS).exclude(verdict={})).order_by("-job__created_at")
    return [run.spent_micros / micros(run.estimate["cost_usd"]) for run in rows[:JOBS] if run.estimate["cost_usd"]]


def _of_models(agent: Agent, config: GRPOConfig, images: float) -> Rates:
    """Raises:
    Invalid: see ``planned``."""
    learner, price = learner_of(agent.runtime, config.learner), model_price(agent)
    asks = learner.learns_context and config.context.propose
    reflector = reflector_price(agent) if asks else price
    objectives = (len(agent.objective) + len(agent.learning_objective)) // 3
    question_micros = measured.guessed_question_micros(reflector, objectives) if asks else 0.0
    found = _of_calls(agent, config, price, reflector, question_micros) or measured.guessed(
        price,
        question_micros=question_micros,
        philosophy=agent.philosophy,
        prompt_tokens=len(agent.system_prompt) // 3 + math.ceil(images * IMAGE_USUAL),
        max_tokens=agent.max_tokens,
        concurrency=config.max_concurrent_rollouts,
    )
    found = replace(found, shown_micros=reflector.input_micros / PER)
    return _with_training_calls(found, agent, config) if learner.needs_model_server else found


def _with_training_calls(found: Rates, agent: Agent, config: GRPOConfig) -> Rates:
    """With the cost of a rollout's training calls at a model server: as those of the agent's latest run with weights
    paid, else a guess at today's prices, which makes all of it a guess.

    Raises:
        Invalid: see ``planned``.
    """
    runs = TrainingRun.objects.filter(agent=agent, config__learner=config.learner, trajectories__gte=measured.ENOUGH)
    for run in runs.order_by("-job__created_at")[:5]:
        calls = LedgerEntry.objects.filter(job_id=run.job_id, purpose="training", rollout="", kind__in=PAID)
        if paid_micros := calls.aggregate(micros=Sum(F("spent_delta_micros") + F("debt_delta_micros")))["micros"]:
            share = measured.passes(config) / measured.passes(run.configuration)
            return replace(found, learned_micros=float(paid_micros) / run.trajectories * share)
    options = (agent.endpoint.options if agent.endpoint else None) or {}
    guess_micros = measured.guessed_learning_micros(
        config,
        _train_price(agent),
        float(options.get(GPU_PRICE, 0.0)),
        philosophy=agent.philosophy,
        prompt_tokens=len(agent.system_prompt) // 3,
        max_tokens=agent.max_tokens,
    )
    return replace(found, learned_micros=guess_micros, n=0 if guess_micros else found.n)


def _train_price(agent: Agent) -> Price:
    """The price of the model's training calls: its own, else that of the model.

    Raises:
        Invalid: its endpoint can't be used, or the model has no price.
    """
    price = model_price(agent)
    try:
        return DatabasePriceBook.load(agent.organization_id).price(f"{price.model}{TRAIN}")
    except UnknownPrice:
        return price


def _of_actions(agent: Agent) -> Rates:
    """The agent's latest run, else the latest of its organisation in the same environment: all of a worker's time with
    it counts, storage and updates beside the rollouts."""
    runs = TrainingRun.objects.filter(OF_ACTIONS, trajectories__gt=0, job__worked_ms__gt=0)
    runs = runs.select_related("job").order_by("-job__created_at")
    latest = (
        runs.filter(agent=agent).first()
        or runs.filter(organization_id=agent.organization_id, environment=agent.environment).first()
    )
    if latest is None:
        return measured.FIRST_GUESS
    done = _done(latest, latest.configuration)
    return Rates(latest.job.worked_ms / done, latest.cost_micros / latest.trajectories, n=latest.trajectories)


def _of_calls(agent: Agent, config: GRPOConfig, price: Price, reflector: Price, question_micros: float) -> Rates | None:
    """Rates by the latest calls of the agent's latest run, at today's prices; None if it never called this model.
    ``question_micros`` is the guess if its reflector was never asked."""
    entries = LedgerEntry.objects.filter(kind__in=PAID)
    runs = TrainingRun.objects.filter(agent=agent, policy_kind=agent.runtime, job__worked_ms__gt=0)
    for run in runs.select_related("job").order_by("-job__created_at")[:5]:
        mine = entries.filter(job_id=run.job_id)
        if not mine.filter(model=price.model, purpose="training").exists():
            continue
        rollouts_micros, questions_micros = _sums_micros(mine, price, reflector)
        if len(rollouts_micros) >= measured.ENOUGH:
            then = run.configuration
            ms = run.job.worked_ms / _done(run, then) * then.max_concurrent_rollouts / config.max_concurrent_rollouts
            return measured.rates(ms, rollouts_micros, questions_micros, question_micros=question_micros)
    return None


def _sums_micros(entries: Any, price: Price, reflector: Price) -> tuple[list[float], list[float]]:
    """Cost of each of the latest rollouts with its verdict, and of each question to this reflector."""
    rollouts_micros: dict[str, float] = {}
    questions_micros: list[float] = []
    names = ("kind", "purpose", "rollout", "model", "source", "input_tokens", "output_tokens", "cached_tokens")
    rows = entries.order_by("-id").values_list(*names, "spent_delta_micros", "debt_delta_micros")[:LATEST]
    for kind, purpose, rollout, model, source, n_input, n_output, n_cached, spent_micros, debt_micros in rows:
        paid_micros, asks = spent_micros + debt_micros, purpose == "reflection"
        today = reflector if asks else price
        if kind == EntryKind.SETTLE and model == today.model and source in OURS and n_input:
            paid_micros = cost_micros(today, Usage(n_input, n_output, n_cached))
        if asks:
            questions_micros += [paid_micros] if model == reflector.model else []
        elif rollout:
            name = rollout.partition("/judge/")[0]
            rollouts_micros[name] = rollouts_micros.get(name, 0.0) + paid_micros
    return list(rollouts_micros.values()), questions_micros


def _done(run: TrainingRun, config: GRPOConfig) -> int:
    """The rollouts that a run's own job has played: those that it learned from, and its validations."""
    asked = measured.work(
        config,
        n_train=run.n_train,
        n_selection=run.n_selection,
        n_held_out=0,
        learns_context=run.learns_context,
        iterations=run.iteration,
    )
    return max(1, run.trajectories + asked.validation)
