"""One slice of an evaluation: both arms answer the same queries with the same random numbers, part by part.
A part is up to fifty queries of one test set under one arm (``evaluation.parts``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from django.db.models import Sum

from agentcore_site.jobs.events import event_add
from agentcore_site.jobs.lease import Lease
from agentcore_site.jobs.models import Job
from agentcore_site.jobs.notifications import job_page
from agentcore_site.notices.events import event_record
from evaluation import reports
from evaluation.models import Against, EvaluationResult, EvaluationRun, HeldOutUse, Split
from evaluation.parts import PART, PartsSlice
from evaluation.selectors import tries_of
from experiences.agents.consent import recording, recording_check
from experiences.learning.lessons.library import Library
from experiences.privacy import redact
from experiences.rollouts.environments.base import Environment
from experiences.rollouts.environments.dataset import dataset_environment
from experiences.rollouts.types import RolloutKey, Scenario, Trajectory, reindexed
from experiences.trajectories.rollout_writer import RolloutWriter
from experiences.trajectories.storage import TrajectoryScope
from training.checkpoint_bytes import checkpoint_load
from training.data.pools import Pools
from training.learners import policy_of
from training.models import PolicyCheckpoint
from training.services.pools import run_pools
from training.services.run_setup import setup_of
from training.services.runs import run_verdict_set
from training.trainer import TrainerSetup, play

EVALUATION_STREAM = 2  # training draws from stream 0, selection from 1
ARMS = ("baseline", "trained")


@dataclass(frozen=True)
class EvaluationPart:
    arm: str
    line: str
    number: int
    environment: Environment
    scenarios: Sequence[Scenario]

    @property
    def name(self) -> str:
        return f"{self.arm}/{self.line}/{self.number}"


class EvaluationSlice(PartsSlice[EvaluationPart]):
    """One worker's turn with one evaluation."""

    def __init__(self, job: Job, lease: Lease) -> None:
        self.evaluation = EvaluationRun.objects.select_related(
            "run",
            "run__job",
            "run__agent",
            "run__agent__endpoint",
            "run__agent__prompt_pack",
            "run__prompt_pack",
            "run__dataset",
            "run__organization",
            "checkpoint",
            "organization",
            "job",
        ).get(job=job)
        recording_check(self.evaluation.agent_id)
        self.setup: TrainerSetup = setup_of(self.evaluation.run, work=f"{str(job.id)[-12:]}.{job.attempt}")
        self.pools: Pools = run_pools(self.evaluation.run)
        paid = self.evaluation.run.calls_model
        super().__init__(job, lease, RolloutWriter(lease, self.evaluation.agent_id, paid=paid))

    def new_loop(self) -> asyncio.AbstractEventLoop:
        return self.setup.new_loop() if self.setup.new_loop else super().new_loop()

    def closing(self) -> Coroutine[Any, Any, None]:
        return self.setup.closing()

    # -- parts -----------------------------------------------------------------------------------------------------

    def parts(self) -> list[EvaluationPart]:
        return list(self._parts())

    def done(self) -> set[str]:
        return set(self.evaluation.done)

    def _parts(self) -> Iterator[EvaluationPart]:
        for line in self.evaluation.lines:
            environment, scenarios = self._scenarios(line)
            for first in range(0, len(scenarios), PART):
                for arm in ARMS:
                    yield EvaluationPart(arm, line, first // PART, environment, scenarios[first : first + PART])

    def _scenarios(self, line: str) -> tuple[Environment, Sequence[Scenario]]:
        return self._given() if line == Split.GIVEN else (self.pools.environment, self.pools.line(line))

    def _given(self) -> tuple[Environment, Sequence[Scenario]]:
        """The queries of the request: from the run's own pools, or rows with an outcome of their own."""
        rows: list[dict[str, Any]] = self.evaluation.queries or []
        own = {"train": self.pools.train, "selection": self.pools.selection, "held_out": self.pools.held_out}
        if all(row["pool"] in own for row in rows):
            return self.pools.environment, reindexed([own[row["pool"]][row["index"]] for row in rows])
        given = [row for row in rows if row["pool"] == "given"]
        environment = dataset_environment(given, {})
        return environment, environment.scenarios("all", len(given), self.evaluation.seed)

    @cached_property
    def _trained(self) -> Any:
        data = checkpoint_load(self.evaluation.checkpoint)
        if self.evaluation.checkpoint.run_id is None:  # it was trained elsewhere, with settings that this run may lack
            return policy_of(data)
        return self.setup.state_of(data).policy

    @cached_property
    def _baseline(self) -> Any:
        without_context = self.evaluation.against == Against.NOTHING
        setup = replace(self.setup, library=Library(), weights={}) if without_context else self.setup
        return setup.fresh_state().policy

    # -- playing ---------------------------------------------------------------------------------------------------

    def play(self, runner: asyncio.Runner, part: EvaluationPart, *, progress: float) -> None:
        evaluation = self.evaluation
        chooser = self._baseline if part.arm == "baseline" else self._trained
        month = self.job.created_at.date().replace(day=1)
        owner = TrajectoryScope(
            self.job.id, evaluation.organization_id, evaluation.agent_id, month, "evaluation", part.arm, part.line
        )
        kept = self._keeper.stored(owner, iteration=0, scenarios=[scenario.index for scenario in part.scenarios])
        played = runner.run(self._played(part, chooser, owner, kept))
        results = [_result(evaluation, part, s, ts) for s, ts in zip(part.scenarios, played, strict=True)]
        with self._keeper.committing(progress=progress, crashes=0):
            EvaluationResult.objects.bulk_create(results)
            evaluation.done = [*evaluation.done, part.name]
            evaluation.cost_micros += sum(trajectory.spent_micros for of_query in played for trajectory in of_query)
            evaluation.tokens += sum(trajectory.tokens for of_query in played for trajectory in of_query)
            evaluation.save(update_fields=["done", "cost_micros", "tokens"])
            event_add(
                self.job, "part", message=f"{part.line}: {part.arm}", data={"part": part.name, "progress": progress}
            )
        self._keeper.forget()

    async def _played(
        self, part: EvaluationPart, chooser: Any, owner: TrajectoryScope, kept: Mapping[RolloutKey, Trajectory]
    ) -> list[list[Trajectory]]:
        evaluation = self.evaluation
        plan = self.setup.plan(
            chooser,
            self.setup.reward(),
            temperature=evaluation.temperature,
            purpose=f"evaluation/{part.name}",
            stream=EVALUATION_STREAM,
        )
        played = await play(
            part.scenarios,
            evaluation.samples,
            replace(plan, environment=part.environment, seed=evaluation.seed, check=self._keeper.check),
            kept=kept,
            keep=partial(self._keeper.store, owner),
        )
        return played.trajectories

    # -- the end ---------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """The report, the entry in the use ledger, and the run's verdict: one fenced transaction."""
        evaluation = self.evaluation
        with recording(self.lease, evaluation.agent_id, progress=1.0):
            uses = 0
            if evaluation.split == Split.HELD_OUT:
                fingerprint = self.pools.fingerprint
                HeldOutUse.objects.get_or_create(
                    evaluation=evaluation,
                    defaults={
                        "organization_id": evaluation.organization_id,
                        "agent_id": evaluation.agent_id,
                        "fingerprint": fingerprint,
                    },
                )
                uses = HeldOutUse.objects.filter(
                    fingerprint=fingerprint, organization_id=evaluation.organization_id
                ).count()
            worked = EvaluationRun.objects.filter(job=self.job).aggregate(ms=Sum("job__worked_ms"))["ms"] or 0
            seconds = worked / 1000 + self.lease.held_ms / 1000
            evaluation.report = reports.build(evaluation, uses=uses, tries=tries_of(evaluation), seconds=seconds)
            bytes_now = PolicyCheckpoint.objects.values_list("sha256", flat=True).get(pk=evaluation.checkpoint_id)
            if bytes_now != evaluation.sha256:  # an erasure rewrote them meanwhile: the report proves neither
                evaluation.sha256 = ""
            evaluation.save(update_fields=["report", "sha256"])
            if evaluation.final:
                run_verdict_set(evaluation.run, reports.verdict_of(evaluation))
            event_add(
                self.job, "report", message=evaluation.report["verdict"], data={"verdict": evaluation.report["verdict"]}
            )
            event_record(
                evaluation.organization_id,
                "evaluation.completed",
                text=f"{evaluation.agent.name}: {evaluation.report['verdict']}",
                data={
                    "job_id": str(self.job.id),
                    "agent": evaluation.agent.slug,
                    "training_job_id": str(evaluation.run_id),
                    "split": evaluation.split,
                    "verdict": evaluation.report["verdict"],
                },
                path=job_page(self.job),
                agent_id=evaluation.agent_id,
                owner=self.job.created_by,
            )


def _result(
    evaluation: EvaluationRun, part: EvaluationPart, scenario: Scenario, trajectories: Sequence[Trajectory]
) -> EvaluationResult:
    calls = [[step for step in trajectory.steps if step.action.get("type") == "tool"] for trajectory in trajectories]
    return EvaluationResult(
        evaluation=evaluation,
        arm=part.arm,
        line=part.line,
        scenario=scenario.index,
        query=redact(scenario.query),
        outcomes=[trajectory.outcome for trajectory in trajectories],
        successes=[trajectory.success for trajectory in trajectories],
        rewards=[trajectory.reward for trajectory in trajectories],
        steps=[len(trajectory.steps) for trajectory in trajectories],
        tool_calls=[len(of_one) for of_one in calls],
        tool_errors=[sum(not step.result.get("success") for step in of_one) for of_one in calls],
        cost_micros=sum(trajectory.cost_micros for trajectory in trajectories),
        duration_ms=sum(trajectory.duration_ms for trajectory in trajectories),
    )
