"""Admission of training launches. The plan beside the form and the launch service apply the same rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final, TypedDict

from agentcore_site.jobs import lifecycle
from agentcore_site.lib.errors import Conflict, DomainError, Insufficient, Invalid
from agentcore_site.lib.money import MICROS, dollars
from agentcore_site.lib.money_format import apart, money
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.permissions import require
from budgets.models import Scope
from budgets.selectors import rooms_check
from experiences.agents.consent import recording_require
from experiences.agents.http_agents import dropped_context_repair
from experiences.lessons.job_prompt import ChosenPrompt
from experiences.models import Agent, AgentRuntime
from training.estimates.planning import Planned

BUSY: Final = "This agent already has an active training job. Wait until it ends, or cancel it."
CENT: Final = MICROS // 100


@dataclass(frozen=True, slots=True)
class Repair:
    """A change of one setting after which this refusal is gone."""

    setting: str
    value: float | bool
    text: str


class RefusalShown(TypedDict):
    """A refusal as JSON values; ``repairs`` have the fields of ``Repair``."""

    message: str
    repairs: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class LaunchRefusal:
    """The reason that refuses a launch, with repairs."""

    error: DomainError
    repairs: tuple[Repair, ...] = ()

    def as_json(self) -> RefusalShown:
        return {"message": self.error.message, "repairs": [asdict(repair) for repair in self.repairs]}


class JobSlot(TypedDict):
    """Arguments of ``lifecycle.submit`` that name the slot of a job."""

    kind: str
    organization: Organization
    exclusive_key: str
    busy: str


def job_slot(agent: Agent) -> JobSlot:
    """Slot of a training job in the queue: only one job at a time changes an agent."""
    key = f"agent:{agent.id}"
    return {"kind": "training", "organization": agent.organization, "exclusive_key": key, "busy": BUSY}


def refusals(actor: Actor, planned: Planned, choose: Callable[[], ChosenPrompt]) -> list[LaunchRefusal]:
    """All reasons that refuse a launch of this plan now; empty if it is admitted. ``choose`` returns the prompt of the
    job, or raises a Conflict."""
    agent = planned.agent
    checks: list[Callable[[], object]] = [
        partial(require, actor, "run.start", agent.organization_id),
        partial(_not_archived, agent),
        partial(recording_require, [agent], "trained"),
        partial(lifecycle.submit_check, actor, **job_slot(agent)),
        choose,
    ]
    found = [LaunchRefusal(error) for error in map(_error_of, checks) if error is not None]
    return [
        *found,
        *_of_the_context(planned),
        *_of_the_gate(planned),
        *_of_the_month(actor, planned),
        *_of_money(planned),
    ]


def _error_of(check: Callable[[], object]) -> DomainError | None:
    try:
        check()
    except DomainError as error:
        return error
    return None


def _not_archived(agent: Agent) -> None:
    if agent.archived_at is not None:
        raise Conflict("This agent is archived. Choose another.")


def _of_the_context(planned: Planned) -> Iterator[LaunchRefusal]:
    """Refuses an agent whose model never sees its context: training would cost the full price and learn nothing."""
    if planned.agent.runtime != AgentRuntime.HTTP or planned.agent.context_arrives is not False:
        return
    if planned.config.context.accept_dropped_context:
        return
    yield LaunchRefusal(
        Invalid(
            f"The context that {planned.agent.name} is sent does not reach its model: none of the calls that were seen"
            f" held it, so it can learn nothing. {dropped_context_repair(planned.agent)}, and give it a test task; or"
            " launch it all the same (context.accept_dropped_context).",
            fields={"context.accept_dropped_context": "The context does not reach the agent's model."},
        ),
        (Repair("context.accept_dropped_context", True, "Allow it all the same"),),
    )


def _of_the_gate(planned: Planned) -> Iterator[LaunchRefusal]:
    """Refuses a run that has hardly any chance to pass its gate: it would spend the whole budget for nothing."""
    if not planned.learns_context or planned.config.context.accept_weak_gate or planned.gate()["can_ship"]:
        return
    n, needed = planned.pools["n_selection"], planned.queries_that_could()
    queries = "1 query is" if n == 1 else f"{n} queries are"
    yield LaunchRefusal(
        Invalid(
            f"{queries.capitalize()} too few for the gate: it would hardly ever let a context through, even one that"
            f" is better by 20 points. Give {needed} queries or more, or launch it all the same"
            " (context.accept_weak_gate).",
            fields={"context.accept_weak_gate": "The gate can hardly ever let anything through."},
        ),
        (Repair("context.accept_weak_gate", True, "Allow it all the same"),),
    )


def _of_the_month(actor: Actor, planned: Planned) -> Iterator[LaunchRefusal]:
    """Refuses a configuration with a monthly budget that its actor may not set, or that is spent already."""
    wanted_micros = planned.monthly_micros
    if wanted_micros is None:
        return
    error = _error_of(partial(require, actor, "budget.edit", planned.agent.organization_id))
    taken_micros = sum(
        room.spent_micros + room.reserved_micros for room, _ in planned.rooms if room.scope == Scope.AGENT
    )
    if error is None and taken_micros > wanted_micros:
        wanted, taken = apart(wanted_micros, taken_micros)
        error = Invalid(f"A monthly budget of {wanted} is too small: {taken} are spent or on hold this month.")
    if error is not None:
        error.fields = {"max_monthly_budget_usd": error.message}
        yield LaunchRefusal(error)


def _of_money(planned: Planned) -> Iterator[LaunchRefusal]:
    cost_micros, budget_micros = planned.plan.cost_micros, planned.budget_micros
    field = {"max_budget_usd": "The estimate does not fit this budget."}
    if planned.rates.measured and cost_micros > budget_micros:
        yield LaunchRefusal(
            Insufficient(
                f"The job is expected to cost {money(_cents(cost_micros))}, and its budget is {money(budget_micros)}."
                " Raise the budget, or ask for fewer iterations.",
                fields=field,
            ),
            (*_fewer(planned), *_raised(planned)),
        )
    # The first run exists to show the real cost: a guess refuses only what can't learn even if it is much too high.
    elif not planned.rates.measured and planned.least_micros > budget_micros:
        least, budget = apart(planned.least_micros, budget_micros)
        yield LaunchRefusal(
            Insufficient(
                f"The job is guessed to cost {money(_cents(cost_micros))}. Its first validation and one iteration alone"
                f" cost at least {least} (a third of the guess for them, at the listed prices), and its budget is"
                f" {budget}. Raise the budget, or ask for smaller batches.",
                fields=field,
            ),
            (*_fewer(planned), *_raised(planned)),
        )
    wanted_micros = min(cost_micros, budget_micros)
    check = partial(rooms_check, [room for room, _ in planned.rooms], wanted_micros)
    if short := _error_of(check):
        yield LaunchRefusal(short, tuple(_fewer(planned)))


def _fewer(planned: Planned) -> Iterator[Repair]:
    """Proposes as many iterations as fit the budgets of job, organisation and agent."""
    if n := planned.affordable:
        yield Repair("n_iterations", n, f"Set iterations to {n:,}")


def _raised(planned: Planned) -> Iterator[Repair]:
    """Proposes a budget that covers the high end of the estimate, unless organisation or agent could not pay for it."""
    if all(left_micros >= planned.plan.cost_micros for _, left_micros in planned.rooms):
        enough_micros = _cents(planned.plan.dear_micros)
        yield Repair("max_budget_usd", dollars(enough_micros), f"Set the budget to {money(enough_micros)}")


def _cents(amount_micros: int) -> int:
    """Micro-dollars, rounded up to whole cents."""
    return math.ceil(amount_micros / CENT) * CENT
