"""Import of files of other trainers, line by line."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Conflict, DomainError
from agentcore_site.lib.storable import parse_json
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from evaluation.events.imports.formats import ImportedRollout, imported
from evaluation.events.received import trajectories_receive
from experiences.models import Agent

BATCH: Final = 500  # trajectories of one transaction
MOST_FAULTS: Final = 20  # that are reported line by line
BROKEN: Final = (DomainError, ValueError, KeyError, TypeError, AttributeError, IndexError)


@dataclass
class ImportReport:
    """Numbers of ``new`` and already ``known`` trajectories; ``faults`` describe the refused lines."""

    new: int = 0
    known: int = 0
    refused: int = 0
    faults: list[str] = field(default_factory=list)

    def refuse(self, number: int, why: object) -> None:
        self.refused += 1
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(f"line {number:,}: {getattr(why, 'message', why) or type(why).__name__}")


def trajectories_import(actor: Actor, agent: Agent, lines: Iterable[bytes], *, kind: str = "") -> ImportReport:
    """Stores rollouts as trajectories of an agent, each once: by its name in the file, else by its content. A wrong
    line is reported, and the others are stored.

    Raises:
        Missing, Forbidden: the actor may not record trajectories.
        Conflict: the agent may not be recorded.
    """
    require(actor, "trace.record", agent.organization_id)
    if not agent.collects:
        raise Conflict(f"{agent.name} may not be recorded.")
    report = ImportReport()
    batch: dict[str, ImportedRollout] = {}
    try:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                for place, one in enumerate(imported(parse_json(line), kind)):
                    one.made(0)  # checks the rollout before it joins a batch
                    name = one.name or f"{hashlib.sha256(line).hexdigest()[:40]}-{place}"
                    batch[f"import-{name}"] = one
            except BROKEN as error:
                report.refuse(number, error)
            if len(batch) >= BATCH:
                _store(agent, batch, report)
        _store(agent, batch, report)
    finally:  # what was stored before an error, or before consent was taken back, stays
        record(actor, "trajectories.imported", agent, after={"new": report.new, "refused": report.refused})
    return report


def _store(agent: Agent, batch: dict[str, ImportedRollout], report: ImportReport) -> None:
    new = trajectories_receive(agent, {name: one.made for name, one in batch.items()})
    report.new += new
    report.known += len(batch) - new
    batch.clear()
