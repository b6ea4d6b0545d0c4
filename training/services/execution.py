"""One slice of a training job: rows become pure objects, and each iteration that the trainer yields is committed.

The only upward motion is a value: ``trainer.steps`` knows nothing of rows, this module nothing of gradients.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, cast

from django.db import transaction
from django.db.models import F, Max

from agentcore_site.jobs.events import event_add
from agentcore_site.jobs.kinds import Progressed
from agentcore_site.jobs.lease import Lease, LeaseLost, MustFail, MustPause, StopRequested
from agentcore_site.jobs.models import Job, Reason
from agentcore_site.lib.money import dollars
from agentcore_site.lib.statistics import finite_or_none
from agentcore_site.lib.trace_context import log_field
from experiences.agents.consent import recording, recording_check
from experiences.agents.http_agents import context_arrival_set, dropped_context_repair
from experiences.agents.runtime_factory import RuntimeFactory
from experiences.lessons.answer_log import AnswerLog
from experiences.models import AgentRuntime
from experiences.rollouts.runtimes.arrival import context_arrived
from experiences.rollouts.runtimes.base import Halted
from experiences.rollouts.tools.written_calls import HINT
from experiences.rollouts.types import Trajectory
from experiences.trajectories.rollout_writer import AWAY, RolloutWriter
from experiences.trajectories.storage import groups_write
from training import metrics
from training.checkpoint_bytes import Damaged, checkpoint_load
from training.models import Iteration, TrainingRun
from training.policies.archive import CorruptState
from training.policies.context import ContextPolicy
from training.selectors.runs import NEXT_STEP, never_solved
from training.services import checkpoints
from training.services.removed_lessons import memory_of_run
from training.services.run_lessons import epoch_add, lessons_sync
from training.services.run_setup import LazyReflector, StoredRollouts, owner_of, setup_of
from training.services.spans import RunSpans
from training.trainer import IterationReport, TrainerSetup, TrainerState, TrainingDiverged, steps

log = logging.getLogger(__name__)
EVENT_SECONDS = 0.5
StoredState = tuple[bytes, checkpoints.StoredBytes]


class TrainingSlice:
    """One worker's turn with one run."""

    def __init__(self, job: Job, lease: Lease) -> None:
        self.job, self.lease = job, lease
        self.run = TrainingRun.objects.select_related(
            "job",
            "agent",
            "agent__endpoint",
            "agent__reflector",
            "agent__prompt_pack",
            "prompt_pack",
            "dataset",
            "organization",
        ).get(job=job)
        recording_check(self.run.agent_id)
        self.owner = owner_of(self.run)
        self.setup = setup_of(self.run, work=f"{job.attempt}")
        self._spans = RunSpans.of(self.run)
        self.state = self._load()
        self._writer = RolloutWriter(lease, self.run.agent_id, paid=self.run.calls_model)
        if self.run.calls_model:
            self.setup = self._with_paid_work()
        self.setup = replace(self.setup, rollouts=StoredRollouts(self.run, self.owner, self._writer))
        self._last_event, self._hinted = 0.0, False
        self._saved, self._pruned = self.state.iteration, True
        self._most_expensive_micros = self.run.iterations.aggregate(most=Max("cost_micros"))["most"] or 0

    def work(self) -> Progressed:
        """Runs iterations until the slice or the run is over.

        Raises:
            StopRequested: a person asked to pause or cancel; a checkpoint of the last iteration was saved.
            MustPause: the next iteration would not fit the budget; a checkpoint was saved. Or recording is
                forbidden; nothing was saved, and stored rollouts are reused when the job resumes.
            MustFail: training diverged; its checkpoints stay.
            LeaseLost: another worker has the job; nothing more was written.
        """
        try:
            self._afford_another()
            iterations = steps(self.setup, self.state)
            with contextlib.closing(iterations):
                log_field("iteration", self.state.iteration + 1)
                for report in iterations:
                    self.apply(report)
                    log_field("iteration", report.iteration + 1)
                    if report.stop_reason:
                        return self._finished(report.stop_reason)
                    self.lease.count_unit()
                    if self.lease.slice_over:
                        break
                    self.lease.check()
                    self._afford_another()
        except Halted as halt:
            self._save_on_stop()
            raise MustPause(halt.reason, str(halt), halt.retry_after) from halt
        except (StopRequested, LeaseLost, MustPause):
            self._save_on_stop()
            raise
        except TrainingDiverged as diverged:
            raise MustFail(Reason.DIVERGED, str(diverged)) from diverged
        except AWAY:
            self._writer.rescue()
            raise
        finally:
            self._writer.close()
        if self.state.stop_reason or self.state.iteration >= self.run.total_iterations:
            return self._finished(self.state.stop_reason or Reason.ALL_ITERATIONS)
        self._checkpoint()
        return Progressed(finished=False)

    def _with_paid_work(self) -> TrainerSetup:
        """The setup of a run that calls a model: its questions are stored and never paid for twice."""
        book = AnswerLog(self.job, self.run.agent_id, self._writer.write, after=self.state.iteration)
        book.epoch_of = self.setup.epoch
        return replace(
            self.setup,
            reflecting=LazyReflector(self.setup, self.run.acting_agent, book, self._writer.check, self._spans.asked),
            memory=memory_of_run(self.run),
        )

    # -- one iteration ---------------------------------------------------------------------------------------------

    def apply(self, report: IterationReport) -> None:
        """Commits an iteration: trajectories, groups, figures, event and checkpoint in one fenced transaction."""
        metrics.update_seconds.observe(report.update_seconds)
        if report.iteration <= self.run.iteration:
            self._writer.drop()  # replayed after a crash: its effects were applied then, exactly once
            return
        selection = asdict(report.selection) if report.selection else None
        figures = {name: finite_or_none(value) for name, value in report.metrics.items()}
        trajectories = [trajectory for group in report.groups for trajectory in group.trajectories]
        cost_micros = sum(trajectory.spent_micros for trajectory in trajectories)
        spent_micros = self.run.cost_micros + cost_micros
        if isinstance(runtime_factory := self.setup.acting, RuntimeFactory):
            # Validation and questions are paid for as well.
            spent_micros = figures["spent_micros"] = runtime_factory.spent_micros()
        tokens = sum(trajectory.tokens for trajectory in trajectories)
        done = report.iteration / self.run.total_iterations
        # An update on a model server is paid for, so that a committed one is never repeated.
        due = report.iteration % self.setup.config.checkpoint_interval == 0 or self.setup.learner.needs_model_server
        stored = self._stored() if selection or due else None
        with self._writer.committing(progress=done, crashes=0):
            groups_write(self.owner, report.iteration, report.groups)
            Iteration.objects.create(
                run=self.run,
                number=report.iteration,
                trajectories=len(trajectories),
                cost_micros=cost_micros,
                metrics=figures,
                selection=selection,
                rollout_ms=report.rollout_seconds * 1000,
                update_ms=report.update_seconds * 1000,
            )
            changes: dict[str, Any] = {"iteration": report.iteration, "metrics": figures}
            if selection:
                changes["selection"] = selection
            TrainingRun.objects.filter(job_id=self.job.id).update(
                trajectories=F("trajectories") + len(trajectories),
                cost_micros=F("cost_micros") + cost_micros,
                tokens=F("tokens") + tokens,
                **changes,
            )
            if self.setup.learner.learns_context:
                policy = cast(ContextPolicy, self.state.policy)
                lessons_sync(self.job, self.run, policy, report, self.owner.id_of)
                epoch_add(self.run, report)
            transaction.on_commit(lambda: self._log(report, len(trajectories), spent_micros), robust=True)
            self._publish(report, len(trajectories), cost_micros, spent_micros, selection)
            if stored is not None:
                self._write_checkpoint(stored, figures, self._validated(report, selection), prune=False)
        self.run.iteration = report.iteration
        self._most_expensive_micros = max(self._most_expensive_micros, cost_micros)
        self._writer.forget()
        self._spans.iteration(report)

    def _validated(self, report: IterationReport, selection: dict[str, Any] | None) -> dict[str, Any] | None:
        """Validation of the context that a checkpoint ships: None for a context that was only tried, or refused."""
        if not self.setup.learner.learns_context:
            return selection
        return selection if report.gate is not None and report.gate.accepted else None

    def _afford_another(self) -> None:
        """Raises:

        MustPause: an iteration as expensive as the most expensive one so far would not fit the budget.
        """
        # Each paid call is held against the budget by itself, so that the last dollar can be used; this is for free
        # calls.
        if self.run.calls_model:
            return
        if self._most_expensive_micros and self.run.cost_micros + self._most_expensive_micros > self.run.limit_micros:
            raise MustPause(Reason.BUDGET_EXCEEDED)

    def _log(self, report: IterationReport, trajectories: int, spent_micros: int) -> None:
        figures = {name: finite_or_none(report.metrics.get(name, math.nan)) for name in ("success_rate", "reward_mean")}
        ids = {"job_id": str(self.job.id), "run": str(self.run.pk), "agent_id": str(self.run.agent_id)}
        extra = ids | figures | {"trajectories": trajectories, "spent_micros": spent_micros}
        log.info("iteration %s of %s", report.iteration, self.run.total_iterations, extra=extra)

    def _publish(
        self, report: IterationReport, n: int, cost_micros: int, spent_micros: int, selection: dict[str, Any] | None
    ) -> None:
        """Emits the run's figures for the page, at most twice a second; validations and warnings always."""
        self.run.trajectories += n
        self.run.cost_micros += cost_micros
        self.run.selection = selection or self.run.selection
        played = [trajectory for group in report.groups for trajectory in group.trajectories]
        for warning in [*report.warnings, *self._unsolved(report), *self._dropped(played), *self._unparsed(played)]:
            event_add(self.job, "warning", level="warning", message=warning, data={"iteration": report.iteration})
        due = time.monotonic() - self._last_event >= EVENT_SECONDS
        if not (due or selection or report.stop_reason):
            return
        self._last_event = time.monotonic()
        shown = ("success_rate", "reward_mean", "entropy", "approx_kl", "frac_reward_zero_std", "steps_mean")
        event_add(
            self.job,
            "iteration",
            message=f"Iteration {report.iteration:,} of {self.run.total_iterations:,}.",
            data={
                "iteration": report.iteration,
                "total_iterations": self.run.total_iterations,
                "trajectories": self.run.trajectories,
                "cost_usd": dollars(spent_micros),
                "metrics": {name: finite_or_none(report.metrics.get(name, math.nan)) for name in shown},
                "selection": selection,
            },
        )

    def _dropped(self, trajectories: Sequence[Trajectory]) -> Iterator[str]:
        """Notices in the calls of an agent over HTTP whether the context reaches its model, and says so if it does
        not."""
        agent = self.run.agent
        if agent.runtime != AgentRuntime.HTTP:
            return
        before, seen = agent.context_arrives, context_arrived(trajectories)
        context_arrival_set(agent, seen)
        if seen is False and before is not False:
            yield (
                "The context that this agent is sent does not reach its model: none of its calls held it, so it can"
                f" learn nothing. {dropped_context_repair(agent)}. Cancel the job, or it goes on paying."
            )

    def _unparsed(self, trajectories: Sequence[Trajectory]) -> Iterator[str]:
        """Says once that the model's server leaves calls of tools as text."""
        if self._hinted or not any(HINT in step.result.get("notes", ()) for one in trajectories for step in one.steps):
            return
        self._hinted = True
        yield HINT

    def _unsolved(self, report: IterationReport) -> Iterator[str]:
        """Warns early, and again at the end, that validation solved no query: without a solved query no gain can be
        shown."""
        before = report.baseline
        if before is not None and not before.success_rate and self.run.calls_model:
            yield (
                f"No selection query was solved before training (0 of {before.n_queries}): if that stays so, nothing"
                f" can be shown. {NEXT_STEP}"
            )
        if report.stop_reason and (text := never_solved(self.run)):
            yield text

    # -- state -----------------------------------------------------------------------------------------------------

    def _load(self) -> TrainerState:
        """The latest undamaged checkpoint; later iterations are repeated from their stored trajectories."""
        for checkpoint in self.run.checkpoints.order_by("-iteration"):
            try:
                return self.setup.state_of(checkpoint_load(checkpoint))
            except (Damaged, CorruptState) as error:
                event_add(self.job, "checkpoint_damaged", level="error", message=f"{checkpoint.label}: {error}")
        return self.setup.fresh_state()

    def _checkpoint(self) -> None:
        if self.state.iteration > self._saved or not self._pruned:
            stored = self._stored()
            with self.lease.fenced():
                self._write_checkpoint(stored, self.run.metrics, None)

    def _stored(self) -> StoredState:
        """The state's bytes, and where they are. An object storage that hangs takes minutes: no row is locked then."""
        data = self.state.to_bytes()
        return data, checkpoints.place_ahead(self.run, self.state.iteration, data)

    def _write_checkpoint(
        self,
        stored: StoredState,
        figures: dict[str, Any],
        selection: dict[str, Any] | None,
        *,
        final: bool = False,
        prune: bool = True,
    ) -> None:
        checkpoints.checkpoint_save(
            self.run,
            iteration=self.state.iteration,
            data=stored[0],
            place=stored[1],
            metrics=figures,
            selection=selection,
            final=final,
            prune=prune,
        )
        self._pruned = prune
        self._saved = self.state.iteration

    def _save_on_stop(self) -> None:
        """On pause, cancel or a lost lease: stores finished rollouts and the policy, unless the lease is lost or the
        agent may not be recorded."""
        try:
            self._writer.save()
            # Interrupted while it validated, the state is one update ahead of the rows:
            # that update is redone from the last checkpoint and the kept trajectories.
            if 0 < self.state.iteration == self.run.iteration:
                stored = self._stored()
                with recording(self.lease, self.run.agent_id):
                    self._write_checkpoint(stored, self.run.metrics, None)
        except (LeaseLost, MustPause):
            return

    def _finished(self, reason: str) -> Progressed:
        stored = self._stored()
        with self.lease.fenced(progress=1.0):
            self._write_checkpoint(stored, self.run.metrics, None, final=True)
        return Progressed(finished=True, reason=reason)
