"""The estimate of a run before it starts (SPEC J6, B3): from what the agent's earlier rollouts took, else a guess."""

from __future__ import annotations

from typing import Any, Final

from agentcore_site.errors import Invalid
from budgets.chains import tightest
from budgets.meter import UnknownPrice
from budgets.models import EntryKind, LedgerEntry, Scope
from budgets.money import dollars, micros
from budgets.pricebook import DatabasePriceBook
from budgets.pricing import Price, Usage, cost
from budgets.selectors import NAMES, Room, budget_chain
from budgets.showing import money
from experiences.endpoints import BadEndpoint, endpoint_of_agent
from experiences.models import Agent, Runtime
from training import estimates
from training.config import GRPOConfig
from training.estimates import Rates
from training.models import TrainingRun

LATEST: Final = 4_000  # calls that are looked at: what prompts grow to is what the next run begins with
OURS: Final = ("table", "estimate")  # sources of a cost that came of tokens and our price table


def estimate(config: GRPOConfig, agent: Agent, *, n_train: int, n_selection: int, n_held_out: int) -> dict[str, Any]:
    """JSON values. ``measured``: from rollouts of this agent with this model.

    Raises:
        Invalid: the agent's endpoint can't be used, or its model has no price, so that no call could be held to a
            budget.
    """
    price = None if agent.runtime == Runtime.ACTION else model_price(agent)
    found = _rates(agent, config, price)
    pools = {"n_train": n_train, "n_selection": n_selection, "n_held_out": n_held_out}
    asked = estimates.work(config, **pools)
    plan = estimates.plan(asked, found, at_start=n_selection * config.eval_samples)
    room, short = room_of(agent, config)
    buys = plan.iterations_for(room, config.n_iterations)
    gain = estimates.detectable_gain(n_held_out, config.eval_samples)
    return {
        "cost_usd": dollars(plan.cost_micros),
        "cost_usd_p90": dollars(plan.dear_micros),
        "seconds": round(plan.seconds, 1),
        "seconds_low": round(plan.seconds_low, 1),
        "seconds_high": round(plan.seconds_high, 1),
        "trajectories": plan.trajectories,
        **pools,
        "detectable_gain": round(gain, 4),
        "measured": found.measured,
        "affordable_iterations": buys,
        "warnings": list(_warnings(config, gain, n_held_out, buys, short)),
    }


def model_price(agent: Agent) -> Price:
    """Of the model that the agent calls.

    Raises:
        Invalid: its endpoint can't be used, or the model has no price.
    """
    try:
        return DatabasePriceBook.load(agent.organization_id).price(endpoint_of_agent(agent).model)
    except (BadEndpoint, UnknownPrice) as error:
        raise Invalid(str(error), fields={"agent": str(error)}) from error


def room_of(agent: Agent, config: GRPOConfig) -> tuple[int, Room | None]:
    """Micro-dollars that the job can spend: its own budget, or what organisation or agent have left, and which."""
    budget = micros(config.max_budget_usd)
    room = tightest(budget_chain(agent.organization_id, agent_id=agent.id))
    if room is None or (room.left or 0) >= budget:
        return budget, None
    return room.left or 0, room


def _warnings(config: GRPOConfig, gain: float, n_held_out: int, buys: int | None, short: Room | None) -> list[str]:
    found = []
    if buys is not None and short is not None:
        whose = NAMES[Scope(short.scope)].capitalize()
        left = money(short.left or 0)
        found.append(
            f"{whose} budget has only {left} left this month: about {buys} of {config.n_iterations} iterations."
        )
    if buys == 0 and short is None:
        found.append("This budget is less than the first look and the proof cost: the job pauses before it learns.")
    elif buys is not None and short is None and buys < config.n_iterations:
        found.append(f"This budget buys about {buys} of {config.n_iterations} iterations; the job pauses then.")
    if gain > 0.15:
        found.append(
            f"{n_held_out} held-out queries can only tell gains of {gain * 100:.0f} points or more. Add queries."
        )
    return found


def _rates(agent: Agent, config: GRPOConfig, price: Price | None) -> Rates:
    if price is None:
        return _of_actions(agent)
    found = _of_calls(agent, config, price)
    return found or estimates.guessed(
        price,
        philosophy=agent.philosophy,
        prompt_tokens=len(agent.system_prompt) // 3,
        max_tokens=agent.max_tokens,
        concurrency=config.max_concurrent_rollouts,
    )


def _of_actions(agent: Agent) -> Rates:
    """The agent's latest run, else the latest of its organisation in the same environment: all of a worker's time with
    it counts, storage and updates beside the rollouts."""
    runs = TrainingRun.objects.filter(policy_kind=Runtime.ACTION, trajectories__gt=0, job__worked_ms__gt=0)
    runs = runs.select_related("job").order_by("-job__created_at")
    latest = (
        runs.filter(agent=agent).first()
        or runs.filter(organization_id=agent.organization_id, environment=agent.environment).first()
    )
    if latest is None:
        return estimates.FIRST_GUESS
    done = _done(latest, latest.configuration)
    return Rates(latest.job.worked_ms / done, latest.cost_micros / latest.trajectories, n=latest.trajectories)


def _of_calls(agent: Agent, config: GRPOConfig, price: Price) -> Rates | None:
    """What the latest calls of the agent's latest run cost, at today's price; None where it never called this model."""
    entries = LedgerEntry.objects.filter(kind__in=(EntryKind.SETTLE, EntryKind.CHARGE, EntryKind.REFUND))
    runs = TrainingRun.objects.filter(agent=agent, policy_kind=agent.runtime, job__worked_ms__gt=0)
    for run in runs.select_related("job").order_by("-job__created_at")[:5]:
        mine = entries.filter(job_id=run.job_id)
        if not mine.filter(model=price.model, purpose="training").exists():
            continue
        rollouts, questions = _sums(mine, price)
        if len(rollouts) >= estimates.ENOUGH:
            then = run.configuration
            ms = run.job.worked_ms / _done(run, then) * then.max_concurrent_rollouts / config.max_concurrent_rollouts
            return estimates.rates(ms, rollouts, questions)
    return None


def _sums(entries: Any, price: Price) -> tuple[list[float], list[float]]:
    """What each of the latest rollouts came to with its verdict, and each question of reflection."""
    rollouts: dict[str, float] = {}
    questions: list[float] = []
    names = ("kind", "purpose", "rollout", "model", "source", "input_tokens", "output_tokens", "cached_tokens")
    rows = entries.order_by("-id").values_list(*names, "spent_delta", "debt_delta")[:LATEST]
    for kind, purpose, rollout, model, source, n_input, n_output, n_cached, spent, debt in rows:
        paid = spent + debt
        if kind == EntryKind.SETTLE and model == price.model and source in OURS and n_input:
            paid = cost(price, Usage(n_input, n_output, n_cached))
        if purpose == "reflection":
            questions.append(paid)
        elif rollout:
            name = rollout.partition("/judge/")[0]
            rollouts[name] = rollouts.get(name, 0.0) + paid
    return list(rollouts.values()), questions


def _done(run: TrainingRun, config: GRPOConfig) -> int:
    """The rollouts that a run's own job has played: those that it learned from, and its looks."""
    asked = estimates.work(
        config, n_train=run.n_train, n_selection=run.n_selection, n_held_out=0, iterations=run.iteration
    )
    return max(1, run.trajectories + asked.looked)
