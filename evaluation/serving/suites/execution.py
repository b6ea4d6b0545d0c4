"""One slice of a suite's run: what the bundle says is played on every part, and judged."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

import uvloop

from agentcore_site.jobs.events import event_add
from agentcore_site.jobs.lease import Lease
from agentcore_site.jobs.models import Job
from agentcore_site.lib.errors import Conflict
from agentcore_site.lib.registry import UnknownName
from evaluation.parts import PART, PartsSlice
from evaluation.serving.models import SuiteResult, SuiteRun, line_of
from evaluation.serving.releases.bundle_agent import action_policy, runtime_factory
from evaluation.serving.releases.selectors import address_now
from evaluation.serving.suites.questions import AskedPart, Player, questions_of
from evaluation.serving.suites.reports import report_of
from evaluation.serving.suites.scoring import could_not_be_judged
from evaluation.serving.suites.selectors import bundle_played
from experiences.agents.consent import recording, recording_check
from experiences.models import AgentRuntime
from experiences.privacy import redact
from experiences.rollouts.collect import RolloutLimits, RolloutPlan
from experiences.rollouts.judge import judged_text
from experiences.rollouts.rewards import rewards
from experiences.rollouts.runtimes.action import ActionRuntime
from experiences.rollouts.runtimes.base import Runtime
from experiences.rollouts.types import RolloutKey, Scenario, Trajectory
from experiences.trajectories.rollout_writer import RolloutWriter
from experiences.trajectories.storage import TrajectoryScope
from training.trainer import play

SUITE_STREAM: Final = 3  # training draws from stream 0, selection from 1, evaluations from 2
AT_ONCE: Final = 8
LONGEST: Final = 4_000  # characters of an answer that a result keeps; its trajectory has it whole


@dataclass(frozen=True)
class SuiteChunk:
    """Up to fifty queries of one part."""

    asked: AskedPart
    number: int
    scenarios: Sequence[Scenario]

    @property
    def name(self) -> str:
        return f"{self.asked.number}/{self.number}"


class SuiteSlice(PartsSlice[SuiteChunk]):
    """One worker's turn with one run of a suite."""

    def __init__(self, job: Job, lease: Lease) -> None:
        rows = SuiteRun.objects.select_related("version__suite", "agent__organization", "release", "organization")
        self.run = rows.get(job=job)
        recording_check(self.run.agent_id)
        self.spec = self.run.version.parsed
        self.bundle = bundle_played(self.run)
        self._work_name = f"{str(job.id)[-12:]}.{job.attempt}"
        paid = self.bundle.runtime != AgentRuntime.ACTION
        super().__init__(job, lease, RolloutWriter(lease, self.run.agent_id, paid=paid))
        self._factory = None
        if paid:
            self._factory = runtime_factory(self.run.agent, self.bundle, job_id=job.id, work=self._work_name)

    def new_loop(self) -> asyncio.AbstractEventLoop:
        return uvloop.new_event_loop() if self._factory is not None else super().new_loop()

    def closing(self) -> Coroutine[Any, Any, None]:
        return self._factory.aclose() if self._factory is not None else _nothing()

    # -- parts -----------------------------------------------------------------------------------------------------

    def parts(self) -> list[SuiteChunk]:
        try:
            every = questions_of(self.spec, self.run.organization_id, self._player)
        except (UnknownName, ValueError) as error:  # a dataset or a package is not here any more
            raise Conflict(f"{self.run.version} can't be asked any more: {error}") from error
        return [
            SuiteChunk(asked, first // PART, asked.scenarios[first : first + PART])
            for asked in every
            for first in range(0, len(asked.scenarios), PART)
        ]

    def done(self) -> set[str]:
        return set(self.run.done)

    @cached_property
    def _policy(self) -> Any:
        return action_policy(self.bundle)

    @property
    def _player(self) -> Player:
        if self._factory is None:
            return Player(self.bundle.runtime, actions=self._policy.actions)
        return Player(self.bundle.runtime, self.bundle.system, judge_model=self.run.judge_model)

    def _runtime(self, chunk: SuiteChunk) -> Runtime:
        if self._factory is None:
            return ActionRuntime(self._policy, self.spec.max_steps, self.spec.temperature)
        return self._factory(
            self.bundle.context,
            temperature=self.spec.temperature,
            max_steps=self.spec.max_steps,
            purpose=f"evaluation/{chunk.name}",
        )

    # -- playing ---------------------------------------------------------------------------------------------------

    def play(self, runner: asyncio.Runner, part: SuiteChunk, *, progress: float) -> None:
        run, category = self.run, part.asked.part.category
        month = self.job.created_at.date().replace(day=1)
        line = line_of(part.asked.number, category)
        owner = TrajectoryScope(self.job.id, run.organization_id, run.agent_id, month, "evaluation", line=line)
        kept = self._keeper.stored(owner, iteration=0, scenarios=[scenario.index for scenario in part.scenarios])
        played = runner.run(self._played(part, owner, kept))
        results = [self._result(part, s, ts) for s, ts in zip(part.scenarios, played, strict=True)]
        with self._keeper.committing(progress=progress, crashes=0):
            SuiteResult.objects.bulk_create(results)
            run.done = [*run.done, part.name]
            run.cost_micros += sum(result.cost_micros for result in results)
            run.tokens += sum(result.tokens for result in results)
            run.save(update_fields=["done", "cost_micros", "tokens"])
            event_add(self.job, "part", message=category, data={"part": part.name, "progress": progress})
        self._keeper.forget()

    async def _played(
        self, chunk: SuiteChunk, owner: TrajectoryScope, kept: Mapping[RolloutKey, Trajectory]
    ) -> list[list[Trajectory]]:
        spec = self.spec
        plan = RolloutPlan(
            environment=chunk.asked.environment,
            runtime=self._runtime(chunk),
            reward=rewards.get("outcome")({}),
            seed=spec.seed,
            limits=RolloutLimits(spec.max_steps, spec.timeout_seconds, AT_ONCE),
            check=self._keeper.check,
            stream=SUITE_STREAM,
            policy_version=self.bundle.context.version,
            model=self._factory.model if self._factory is not None else "",
        )
        keep = partial(self._keeper.store, owner)
        return (await play(chunk.scenarios, spec.samples, plan, kept=kept, keep=keep)).trajectories

    def _result(self, chunk: SuiteChunk, scenario: Scenario, trajectories: Sequence[Trajectory]) -> SuiteResult:
        safety = self.spec.is_safety
        successes = [
            None if could_not_be_judged(trajectory, safety=safety) else trajectory.success
            for trajectory in trajectories
        ]
        telling = trajectories[successes.index(False) if False in successes else 0]
        return SuiteResult(
            run=self.run,
            part=chunk.asked.number,
            category=chunk.asked.part.category,
            scenario=scenario.index,
            query=redact(scenario.query),
            answer=redact(judged_text(telling.steps), limit=LONGEST),
            why=redact(why_of(telling)),
            successes=successes,
            cost_micros=sum(trajectory.spent_micros for trajectory in trajectories),
            tokens=sum(trajectory.tokens for trajectory in trajectories),
            duration_ms=sum(trajectory.duration_ms for trajectory in trajectories),
        )

    # -- the end ---------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        run = self.run
        with recording(self.lease, run.agent_id, progress=1.0):
            seconds = (self.job.worked_ms + self.lease.held_ms) / 1000
            whole = report_of(run, seconds=seconds, address=address_now(self.bundle))
            run.save(update_fields=["report", "score", "low", "high", "passed"])
            event_add(self.job, "report", message=whole["verdict"], data={"verdict": whole["verdict"]})


def why_of(trajectory: Trajectory) -> str:
    """Why a rollout was judged as it was, in a sentence."""
    evidence = trajectory.evidence
    judge = evidence.get("judge")
    reason = judge.get("reason") if isinstance(judge, dict) else None
    named = [trajectory.error, evidence.get("why"), reason, evidence.get("scorer_error"), evidence.get("judge_error")]
    if text := next((str(one) for one in named if one), ""):
        return text[:LONGEST]
    return "" if trajectory.success or "expected" not in evidence else f"Expected: {evidence['expected']}"[:LONGEST]


async def _nothing() -> None:
    """Closes nothing: an agent without model calls has no connections."""
