"""One slice of an evolution: the last executions are chosen, models are asked, the curator's result is committed.

``questions`` says what is asked and how answers are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from django.db.models import Sum

from agentcore_site.jobs.events import event_add
from agentcore_site.jobs.kinds import Progressed
from agentcore_site.jobs.lease import CancelledElsewhere, Lease
from agentcore_site.jobs.models import Job
from agentcore_site.lib.errors import Conflict
from experiences.agents.consent import recording, recording_check
from experiences.learning.playbooks.deltas import WAITING, Curated, Delta, State
from experiences.learning.playbooks.evidence import EvolutionEvidence, ExecutionEvidence, metrics_of
from experiences.learning.playbooks.guards import texts_in, untrusted_runs
from experiences.models import Evolution, ExecutionTrace, Playbook, PlaybookVersion, Question
from experiences.playbooks.evolution.questions import EvolutionQuestions
from experiences.playbooks.item_effects import effects_of
from experiences.playbooks.selectors import sections_of
from experiences.playbooks.services.evolution_alerts import evolution_alerts
from experiences.playbooks.services.evolutions import evolution_apply, evolution_check
from experiences.playbooks.services.versions import VersionMoved

EXECUTIONS: Final = 10  # that the models read
TRIES: Final = 5  # against people who change the playbook at the same moment


class EvolutionSlice:
    """One worker's turn with one evolution."""

    def __init__(self, job: Job, lease: Lease) -> None:
        rows = Evolution.objects.select_related("job", "agent", "agent__endpoint", "agent__organization", "playbook")
        found = rows.filter(job=job).first()
        if found is None:
            raise CancelledElsewhere  # its playbook was deleted
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

    def _suggested(self, executions: Sequence[ExecutionEvidence]) -> list[Delta]:
        playbook = self.evolution.playbook
        evidence = EvolutionEvidence(sections_of(playbook), executions, effects_of(playbook))
        return EvolutionQuestions(self.evolution, self.lease).deltas(evidence)

    def _executions(self) -> list[ExecutionEvidence]:
        """The last ones, the newest at the end; chosen once, and the same when the job is taken up again."""
        recorded = ExecutionTrace.objects.filter(agent_id=self.evolution.agent_id)
        chosen = self.evolution.trace_ids or list(recorded.values_list("id", flat=True)[:EXECUTIONS])
        found = _evidence(self.evolution, recorded.filter(id__in=chosen).order_by("recorded_at", "id"))
        with recording(self.lease, self.evolution.agent_id, progress=0.1):
            Evolution.objects.filter(job=self.job).update(trace_ids=chosen, metrics=metrics_of(found))
        return found

    # -- the end ---------------------------------------------------------------------------------------------------

    def _settle(self, deltas: Sequence[Delta], executions: Sequence[ExecutionEvidence]) -> None:
        """Curates and commits; curates again, without another answer, if a person was first.

        Raises:
            CancelledElsewhere: the playbook was deleted.
            Conflict: it is changed again and again.
        """
        texts = [text for execution in executions for text in texts_in([execution.inputs, execution.outputs])]
        for _ in range(TRIES):
            playbook = Playbook.objects.filter(id=self.evolution.playbook_id).first()
            if playbook is None:
                raise CancelledElsewhere
            known = [section.content for section in sections_of(playbook)]
            try:
                with recording(self.lease, self.evolution.agent_id, progress=1.0, crashes=0):
                    curated = evolution_apply(
                        self.evolution, playbook, deltas, untrusted=untrusted_runs(texts, known), spent=self._spent()
                    )
                    self._report(curated, playbook)
                    evolution_alerts(self.evolution)
                return
            except VersionMoved:
                continue
        raise Conflict("The playbook is changed again and again; nothing was applied. Try again.")

    def _spent(self) -> tuple[int, int]:
        sums = Question.objects.filter(job=self.job).aggregate(cost=Sum("cost_micros"), tokens=Sum("tokens"))
        return sums["cost"] or 0, sums["tokens"] or 0

    def _report(self, curated: Curated, playbook: Playbook) -> None:
        taken = curated.count({State.APPLIED, State.MERGED})
        waiting = curated.count(WAITING)
        left = f", {waiting} left to a person" if waiting else ""
        message = f"{taken} of {len(curated.verdicts)} suggested changes applied{left}; version {playbook.version}."
        counts = {str(state): curated.count({state}) for state in State if curated.count({state})}
        event_add(self.job, "evolved", message=message, data={"version": playbook.version, "deltas": counts})


def _evidence(evolution: Evolution, rows: Iterable[ExecutionTrace]) -> list[ExecutionEvidence]:
    """Executions with the present items in their context and answer: the items whose text has not changed since."""
    rows, now = list(rows), {section.id: section.content for section in sections_of(evolution.playbook)}
    numbers = {row.context_version for row in rows}
    versions = PlaybookVersion.objects.filter(playbook=evolution.playbook, number__in=numbers - {None})
    same = {one.number: [it["id"] for it in one.sections if now.get(it["id"]) == it["content"]] for one in versions}
    return [_as_read(row, same.get(row.context_version), evolution.agent.leave_out_rate > 0) for row in rows]


def _as_read(row: ExecutionTrace, items: Sequence[str] | None, drawn: bool) -> ExecutionEvidence:
    """``drawn``: items are left out, so that the version alone does not say which of its ``items`` the context held."""
    known = items is not None and not (drawn and row.left_out is None)
    in_context = tuple(item for item in items or () if item not in (row.left_out or ())) if known else None
    used = None if row.used is None else tuple(item for item in row.used if item in (items or ()))
    return ExecutionEvidence(str(row.id), row.inputs, row.outputs, row.success, row.duration_ms, in_context, used)
