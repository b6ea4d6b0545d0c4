"""One slice of a measurement of lessons on another model: pairs of plays, chunk by chunk, within the limit."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

import uvloop

from agentcore_site.jobs.events import event_add
from agentcore_site.jobs.lease import Lease
from agentcore_site.jobs.models import Job, Reason
from agentcore_site.lib.money import dollars
from agentcore_site.lib.statistics import finite_or_none
from budgets.job_chain import chain_of, job_spent_micros, tightest
from budgets.meter_port import UnknownPrice
from budgets.models import Scope
from evaluation.parts import PartsSlice
from evaluation.serving.models import SurvivalRun
from evaluation.serving.releases.bundle import Bundle
from evaluation.serving.releases.bundle_agent import runtime_factory
from evaluation.serving.releases.selectors import bundle_of
from evaluation.serving.survival.drop_outs import (
    MEMBERS,
    DropOuts,
    PairKey,
    PairResult,
    pairs_planned,
    survival_of,
    verdict_of,
)
from evaluation.serving.survival.services import costs_of, is_judged
from experiences.agents.consent import recording, recording_check
from experiences.rollouts.collect import RolloutLimits, RolloutPlan, collect
from experiences.rollouts.runtimes.base import Halted
from experiences.rollouts.types import RolloutKey, Scenario, Trajectory, reindexed
from experiences.trajectories.rollout_writer import RolloutWriter
from experiences.trajectories.storage import TrajectoryScope
from training.data.pools import Pools
from training.services.pools import run_pools
from training.trainer.setup import configured_reward

SURVIVAL_STREAM: Final = 4  # training draws from stream 0, selection from 1, evaluations from 2, suites from 3
CHUNK: Final = 25  # pairs between two commits
AT_ONCE: Final = 8
METHOD: Final = (
    "Each pair of plays asks one query twice, never a held-out one. Each lesson of the query is in the context of one"
    " play, by chance. Effects on the reward are estimated together, as in training. Intervals hold for all lessons at"
    " once, with 95 % (Bonferroni)."
)


@dataclass(frozen=True)
class PairChunk:
    """Pairs that are committed together."""

    number: int
    pairs: Sequence[PairKey]

    @property
    def name(self) -> str:
        return f"{self.number}"


class SurvivalSlice(PartsSlice[PairChunk]):
    """One worker's turn with one measurement."""

    def __init__(self, job: Job, lease: Lease) -> None:
        rows = SurvivalRun.objects.select_related(
            "agent__organization", "release__agent", "run__dataset", "run__agent", "organization"
        )
        self.run = rows.get(job=job)
        recording_check(self.run.agent_id)
        self.bundle = Bundle.from_json(self.run.bundle)
        self.drop_outs = DropOuts(self.bundle.context, self.run.seed)
        make = partial(runtime_factory, self.run.agent, job_id=job.id, work=f"{str(job.id)[-12:]}.{job.attempt}")
        own = make(bundle_of(self.run.release)) if is_judged(self.run.run, self._pools) else None
        self._factory = make(self.bundle, judged_by=own)
        self._at_once = plays_at_once(self.run)
        super().__init__(job, lease, RolloutWriter(lease, self.run.agent_id, paid=True))

    def new_loop(self) -> asyncio.AbstractEventLoop:
        return uvloop.new_event_loop()

    def closing(self) -> Coroutine[Any, Any, None]:
        return self._factory.aclose()

    # -- parts -----------------------------------------------------------------------------------------------------

    @cached_property
    def _pools(self) -> Pools:
        return run_pools(self.run.run)

    @cached_property
    def _scenarios(self) -> list[Scenario]:
        """The selection queries, then the training queries; never a held-out one."""
        return reindexed([*self._pools.selection, *self._pools.train])

    def parts(self) -> list[PairChunk]:
        split = len(self._pools.selection)
        planned = pairs_planned(range(split), range(split, len(self._scenarios)), self.run.pairs, self.run.seed)
        return [PairChunk(first // CHUNK, planned[first : first + CHUNK]) for first in range(0, len(planned), CHUNK)]

    def done(self) -> set[str]:
        return set(self.run.done)

    def enough(self) -> bool:
        return self.run.out_of_money

    # -- playing ---------------------------------------------------------------------------------------------------

    def play(self, runner: asyncio.Runner, part: PairChunk, *, progress: float) -> None:
        run, month = self.run, self.job.created_at.date().replace(day=1)
        owner = TrajectoryScope(self.job.id, run.organization_id, run.agent_id, month, "evaluation", line="survival")
        read = partial(self._keeper.stored, owner, iteration=0, scenarios={pair.scenario for pair in part.pairs})
        try:
            played = runner.run(self._played(part, owner, read()))
        except Halted as halt:
            runner.run(self.closing())  # what is left of the limit is known once all calls are settled
            if not self._limit_reached(halt):
                raise
            self._keeper.save()
            played, run.out_of_money = read(), True
        whole = [pair for pair in part.pairs if all(key in played for key in pair.members)]
        rollouts = [played[key] for pair in whole for key in pair.members]
        rewards = [finite_or_none(rollout.reward) for rollout in rollouts]
        with self._keeper.committing(progress=progress, crashes=0):
            run.results = [
                *run.results,
                *([*pair, *rewards[MEMBERS * at : MEMBERS * (at + 1)]] for at, pair in enumerate(whole)),
            ]
            run.done = [*run.done, part.name]
            run.tokens += sum(rollout.tokens for rollout in rollouts)
            run.save(update_fields=["results", "done", "tokens", "out_of_money"])
            event_add(self.job, "part", message=f"{run.played} of {run.pairs} pairs", data={"progress": progress})
        self._keeper.forget()

    async def _played(
        self, part: PairChunk, owner: TrajectoryScope, kept: Mapping[RolloutKey, Trajectory]
    ) -> dict[RolloutKey, Trajectory]:
        config, play = self.run.run.configuration, self.bundle.play
        temperature = play.temperature if play is not None else None
        plan = RolloutPlan(
            environment=self._pools.environment,
            runtime=self._factory(
                self.drop_outs,
                temperature=config.eval_temperature if temperature is None else temperature,
                max_steps=config.max_steps,
                purpose=f"evaluation/survival/{part.name}",
            ),
            reward=configured_reward(config),
            seed=self.run.seed,
            limits=RolloutLimits(config.max_steps, config.rollout_timeout_seconds, self._at_once),
            check=self._keeper.check,
            stream=SURVIVAL_STREAM,
            policy_version=self.drop_outs.version,
            model=self._factory.model,
        )
        work = [(key, self._scenarios[key.scenario]) for pair in part.pairs for key in pair.members]
        ended = await collect(work, plan, kept=kept, keep=partial(self._keeper.store, owner))
        return {trajectory.key: trajectory for trajectory in ended}

    # -- money -----------------------------------------------------------------------------------------------------

    def _limit_reached(self, halt: Halted) -> bool:
        """True if the measurement's own limit can't pay for another call. Other budgets pause the job."""
        room = tightest(chain_of(self.job))
        return halt.reason == Reason.BUDGET_EXCEEDED and room is not None and room.scope == Scope.JOB

    # -- the end ---------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        run = self.run
        with recording(self.lease, run.agent_id, progress=1.0):
            run.cost_micros = job_spent_micros(self.job.id)
            run.report = self._report()
            run.save(update_fields=["report", "cost_micros"])
            event_add(self.job, "report", message=run.report["verdict"], data={"verdict": run.report["verdict"]})

    def _report(self) -> dict[str, Any]:
        run, selection = self.run, len(self._pools.selection)
        results = [
            PairResult(
                PairKey(scenario, number),
                self._scenarios[scenario].query,
                (math.nan if one is None else one, math.nan if other is None else other),
            )
            for scenario, number, one, other in run.results
        ]
        found = survival_of(self.drop_outs, results)
        rewards = [reward for result in results for reward in result.rewards if math.isfinite(reward)]
        before, model = bundle_of(run.release).model, self.bundle.model
        earlier = SurvivalRun.objects.filter(release=run.release, endpoint=run.endpoint_id, model=run.model)
        context = json.dumps(self.bundle.context.as_json(), sort_keys=True)
        return {
            "verdict": verdict_of(found, run.model),
            "method": METHOD,
            "lessons": [lesson.as_json() for lesson in found],
            "pairs": len(results),
            "planned": run.pairs,
            "selection_pairs": sum(result.key.scenario < selection for result in results),
            "ungraded": sum(not all(map(math.isfinite, result.rewards)) for result in results),
            "reward": sum(rewards) / len(rewards) if rewards else None,
            "out_of_money": run.out_of_money,
            "cost_usd": dollars(run.cost_micros),
            "seconds": round((self.job.worked_ms + self.lease.held_ms) / 1000, 3),
            "earlier": earlier.exclude(report={}).exclude(pk=run.pk).count(),
            "digest": run.digest,
            "context": hashlib.sha256(context.encode()).hexdigest(),
            "model": {"name": model.name, "endpoint": model.endpoint_name, "address": model.base_url},
            "before": {"name": before.name, "endpoint": before.endpoint_name, "address": before.base_url},
        }


def plays_at_once(run: SurvivalRun) -> int:
    """A call holds more than it will cost, and holds beside each other may not use up the limit."""
    try:
        hold_micros = costs_of(run).hold_micros
    except UnknownPrice:  # the first call is refused with this reason
        return 1
    return max(1, min(AT_ONCE, run.limit_micros // max(MEMBERS * hold_micros, 1)))
