"""One slice of an evolution: the last executions are chosen, a model is asked once, the curator's result is committed.

What was answered is kept at once, so that a worker that dies, a budget that is empty or a person who pauses costs no
second answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import uvloop
from django.conf import settings
from django.db import connection
from django.db.models import Sum

from agentcore_site.errors import Conflict, DomainError
from agentcore_site.jobs.events import event_add
from agentcore_site.jobs.kinds import Progressed
from agentcore_site.jobs.lease import Lease, MustPause, StopRequested
from agentcore_site.jobs.models import Job
from experiences.collecting import recording, recording_check
from experiences.evolution_settings import evolution_settings
from experiences.models import Evolution, ExecutionTrace, Playbook, Question
from experiences.playbooks.deltas import WAITING, Curated, Delta, State
from experiences.playbooks.generator import Lived, metrics_of, proposed
from experiences.playbooks.guards import texts_in, untrusted_runs
from experiences.player import ModelPlayer
from experiences.questions import QuestionBook
from experiences.quoting import steady_marks
from experiences.runtimes.base import Halted
from experiences.runtimes.llm import Sampling
from experiences.selectors_playbooks import PURPOSE, sections_of
from experiences.services.evolution_alerts import evolution_budget_alert
from experiences.services.evolutions import MAX_TOKENS, evolution_apply, evolution_check
from experiences.services.versions import VersionMoved
from experiences.structured import Answered, Asker

EXECUTIONS: Final = 10  # that the generator reads
TEMPERATURE: Final = 0.3
TRIES: Final = 5  # against people who change the playbook at the same moment
UNUSABLE: Final = "The model gave no answer that can be used: {why}."


class NoSuggestions(DomainError):
    """The answer was refused, also after its repair. The evolution fails, and can be tried again."""


class Slice:
    """One worker's turn with one evolution."""

    def __init__(self, job: Job, lease: Lease) -> None:
        rows = Evolution.objects.select_related("job", "agent", "agent__endpoint", "agent__organization", "playbook")
        found = rows.filter(job=job).first()
        if found is None:
            raise StopRequested("cancel")  # its playbook was deleted
        self.job, self.lease, self.evolution = job, lease, found

    def work(self) -> Progressed:
        """Raises:
        StopRequested, LeaseLost: it has to stop; what was answered is kept.
        MustPause: its call can't be paid for, the model's service is away, or the agent may not be recorded.
        DomainError: evolution is switched off, or the model gave no usable answer.
        """
        if self.evolution.settled_at is None:
            recording_check(self.evolution.agent_id)
            evolution_check(self.evolution.playbook)
            executions = self._executions()
            self._settle(self._suggested(executions) if executions else [], executions)
        return Progressed(finished=True)

    def _executions(self) -> list[Lived]:
        """The last ones, the newest at the end; chosen once, and the same when the job is taken up again."""
        lived = ExecutionTrace.objects.filter(agent_id=self.evolution.agent_id)
        chosen = self.evolution.trace_ids or list(lived.values_list("id", flat=True)[:EXECUTIONS])
        rows = lived.filter(id__in=chosen).order_by("recorded_at", "id")
        found = [Lived(str(row.id), row.inputs, row.outputs, row.success, row.duration_ms) for row in rows]
        with recording(self.lease, self.evolution.agent_id, progress=0.1):
            Evolution.objects.filter(job=self.job).update(trace_ids=chosen, metrics=metrics_of(found))
        return found

    # -- the question ----------------------------------------------------------------------------------------------

    def _suggested(self, executions: Sequence[Lived]) -> list[Delta]:
        """Raises:
        MustPause, NoSuggestions, StopRequested, LeaseLost: see ``work``."""
        player = ModelPlayer(self.evolution.agent, job_id=self.job.id, work=f"evolution/{self.job.attempt}")
        sections, metrics = sections_of(self.evolution.playbook), metrics_of(executions)
        kept, earlier = self._kept(), self._earlier()
        # Of these executions and this model: the same question has the same words in a later evolution too.
        model = evolution_settings(self.evolution.agent).delta_model or player.model
        marks = steady_marks(settings.SECRET_KEY, self.evolution.agent_id, model, *(one.id for one in executions))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, ThreadPoolExecutor(1) as writer:
            # On an event loop Django refuses to wait: a thread writes with a connection of its own.
            book = QuestionBook(
                self.job, self.evolution.agent_id, lambda store: writer.submit(self._fenced, store).result()
            )

            async def asked() -> list[Delta] | None:
                asker = self._asker(player, lambda _, asked: kept or earlier.get(asked), book.keep)
                return await proposed(asker, sections, executions, metrics, key=self._key, marks=marks)

            try:
                deltas = runner.run(asked())
            except Halted as halt:
                raise MustPause(halt.reason, str(halt), halt.retry_after) from halt
            finally:
                runner.run(player.aclose())
        if deltas is None:
            raise NoSuggestions(UNUSABLE.format(why=self._refusal()))
        return deltas

    @property
    def _key(self) -> str:
        """A retry of a failed evolution is another question."""
        return f"deltas/{self.evolution.tries}"

    def _asker(
        self, player: ModelPlayer, recall: Callable[[str, str], Answered | None], keep: Callable[[Answered], None]
    ) -> Asker:
        model = evolution_settings(self.evolution.agent).delta_model
        client = player.client(model)
        return Asker(
            client,
            Sampling(model or player.model, TEMPERATURE, MAX_TOKENS),
            prefix=f"{self.job.id}/{self.job.attempt}",
            purpose=PURPOSE,
            recall=recall,
            keep=keep,
            check=self.lease.check,
        )

    def _kept(self) -> Answered | None:
        """What this question was answered before. Its words may differ by a count that has risen since; what was paid
        for is used all the same, and the curator looks at the playbook of now."""
        row = Question.objects.filter(job=self.job, key=self._key).first()
        return None if row is None else _answered(row)

    def _earlier(self) -> dict[str, Answered]:
        """Usable answers of this agent's latest evolutions by what was asked, to the word: none is paid twice."""
        rows = Question.objects.filter(agent_id=self.evolution.agent_id, job__kind="evolution", usable=True)
        return {row.asked: _answered(row) for row in rows.order_by("-id")[:EXECUTIONS]}

    def _fenced(self, store: Callable[[], None]) -> None:
        try:
            with recording(self.lease, self.evolution.agent_id, progress=0.8):
                store()
        finally:
            connection.close()

    def _refusal(self) -> str:
        reason = Question.objects.filter(job=self.job, key=self._key).values_list("reason", flat=True).first()
        return reason or "nobody knows why"

    # -- the end ---------------------------------------------------------------------------------------------------

    def _settle(self, deltas: Sequence[Delta], executions: Sequence[Lived]) -> None:
        """Curates and commits; anew, and without another answer, if a person was first.

        Raises:
            StopRequested: the playbook was deleted.
            Conflict: it is changed again and again.
        """
        said = [text for one in executions for text in texts_in([one.inputs, one.outputs])]
        for _ in range(TRIES):
            playbook = Playbook.objects.filter(id=self.evolution.playbook_id).first()
            if playbook is None:
                raise StopRequested("cancel")
            known = [one.content for one in sections_of(playbook)]
            try:
                with recording(self.lease, self.evolution.agent_id, progress=1.0, crashes=0):
                    curated = evolution_apply(
                        self.evolution, playbook, deltas, untrusted=untrusted_runs(said, known), spent=self._spent()
                    )
                    self._tell(curated, playbook)
                    evolution_budget_alert(self.evolution)
                return
            except VersionMoved:
                continue
        raise Conflict("The playbook is changed again and again; nothing was applied. Try again.")

    def _spent(self) -> tuple[int, int]:
        sums = Question.objects.filter(job=self.job).aggregate(cost=Sum("cost_micros"), tokens=Sum("tokens"))
        return sums["cost"] or 0, sums["tokens"] or 0

    def _tell(self, curated: Curated, playbook: Playbook) -> None:
        taken = curated.count({State.APPLIED, State.MERGED})
        waiting = curated.count(WAITING)
        left = f", {waiting} left to a person" if waiting else ""
        message = f"{taken} of {len(curated.verdicts)} suggested changes applied{left}; version {playbook.version}."
        counts = {str(state): curated.count({state}) for state in State if curated.count({state})}
        event_add(self.job, "evolved", message=message, data={"version": playbook.version, "deltas": counts})


def _answered(row: Question) -> Answered:
    """What was answered, without what it cost: that was counted where it was asked."""
    return Answered(row.key, row.stage, row.iteration, row.asked, row.usable, row.reply, row.reason)
