"""Admission of suite runs by cost: a run whose budget can't pay for the whole suite would end without a verdict."""

from __future__ import annotations

from uuid import UUID

from agentcore_site.lib.errors import Insufficient
from agentcore_site.lib.money_format import apart
from evaluation.serving.models import SuiteRun
from evaluation.serving.releases.bundle import Bundle
from evaluation.serving.releases.bundle_agent import acting_agent
from evaluation.serving.safety import safety_plugins
from evaluation.serving.suite_spec import SuitePart
from evaluation.serving.suites.questions import dataset_of_part
from evaluation.serving.suites.selectors import bundle_played
from experiences.models import Agent
from training.estimates import measured
from training.estimates.planning import model_price


def cost_required_micros(run: SuiteRun, bundle: Bundle, queries: int, limit_micros: int) -> int:
    """Cost that the budgets of a new ``run`` have to cover: that of the last run with the same model, else a lower
    bound by the model's price for one rollout of each of the ``queries`` and samples.

    Raises:
        Insufficient: the run's own budget of ``limit_micros`` is below it.
    """
    suite, agent = run.version.suite, run.agent
    ended = SuiteRun.objects.filter(version=run.version, agent=agent, job__status="completed").select_related("release")
    last = ended.order_by("-pk").first()
    if last is not None and bundle_played(last).model == bundle.model:
        required_micros = last.cost_micros
        basis = f"The last run of {suite.name} on {agent.name} cost {{}}"
    else:
        rollouts = queries * run.version.parsed.samples
        required_micros = measured.lower_bound_micros(_guess(agent, bundle), rollouts=rollouts)
        basis = f"{rollouts:,} rollouts of {agent.name} cost at least {{}} by the listed prices"
    if required_micros > limit_micros:
        required, limit = apart(required_micros, limit_micros)
        message = (
            f"{basis.format(required)}, and the budget of this run is {limit}. Raise it, or choose a smaller suite."
        )
        raise Insufficient(message, fields={"max_budget_usd": message})
    return required_micros


def _guess(agent: Agent, bundle: Bundle) -> measured.Rates:
    acting = acting_agent(agent, bundle)
    return measured.guessed(
        model_price(acting),
        question_micros=0.0,
        philosophy=acting.philosophy,
        prompt_tokens=len(bundle.system) // 3,
        max_tokens=acting.max_tokens,
        concurrency=1,
    )


def queries_of_part(part: SuitePart, organization_id: UUID) -> int:
    """Number of queries of a part that a language model is asked. Makes no items.

    Raises:
        UnknownName, ValueError: there is no such dataset or plugin.
    """
    if part.n is not None:
        return part.n
    if part.probes:
        return len(safety_plugins.get(part.probes).probes)
    return dataset_of_part(part, organization_id).size
