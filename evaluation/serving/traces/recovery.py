"""Finishes the work of processes that were killed: their traces are stored, and their holds settled at what is known.

A call that had begun and has no end in the journal may have been answered: it is charged its worst case, and its trace
says that it was interrupted.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from agentcore_site.lib.error_metrics import errors
from agentcore_site.lib.storable import storable
from budgets.ledger import Hold, Settlement, reserve_many, settle_many
from budgets.ledger.accounts import chain_open
from budgets.meter_port import Bill
from evaluation.serving.models import TraceStatus
from evaluation.serving.traces.journal import abandoned
from evaluation.serving.traces.writing import is_away, traces_store

log = logging.getLogger(__name__)

WHY: Final = "its process ended before the answer was there"
ENDED: Final = {"status": TraceStatus.INTERRUPTED, "http_status": 0, "error": WHY}


def recover(folder: Path, ended: Callable[[list[Mapping[str, Any]]], None]) -> int:
    """Finishes the work in the journals of processes that are gone, in ``folder``. Returns the number of stored traces,
    without those of journals that were set aside. ``ended`` is called with the rows of each journal.

    A journal that can't be finished is set aside: it is renamed, named in the log and counted, and keeps no other from
    being finished.

    Raises:
        django.db.Error, KeyUnavailable: the database or a key is away; the journals stay for the next time.
    """
    stored = 0
    for journal in abandoned(folder):
        lines = list(journal.lines())
        rows = [storable(row) for row in _traces(lines)]  # a journal may be of a release that did not mend them
        try:
            _settle(lines)  # first: what was spent is known, also where the words are lost
            refused = traces_store(rows)
        except Exception as error:
            if is_away(error):
                raise
            log.exception("the journal %s can't be finished", journal.name)
            refused = {row["id"] for row in rows}
        ended(rows)
        if refused:
            errors.labels("journal_set_aside", "gateway").inc()
            log.error("the journal %s is set aside: %d of its traces can't be stored", journal.name, len(refused))
            journal.set_aside()
            continue
        journal.remove()
        stored += len(rows)
        log.info("%d traces of a process that ended were stored", len(rows))
    return stored


def _traces(lines: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for line in lines:
        if line["t"] == "call":
            found[line["row"]["id"]] = {
                **line["row"],
                "status": TraceStatus.INTERRUPTED,
                "http_status": 0,
                "error": WHY,
            }
        elif line["t"] == "answer":
            found[line["row"]["id"]] = line["row"]
    return list(found.values())


def _settle(lines: Iterable[Mapping[str, Any]]) -> None:
    blocks: dict[str, Mapping[str, Any]] = {}
    drawn: dict[str, dict[str, int]] = defaultdict(dict)
    spent: dict[str, int] = defaultdict(int)
    for line in lines:
        hold = line.get("hold", "")
        if line["t"] == "block":
            blocks[hold] = line
        elif line["t"] == "draw":
            drawn[hold][line["call"]] = line["amount"]
        elif line["t"] == "bill":
            drawn[hold].pop(line["call"], None)
            spent[hold] += line["amount"]
    for hold, block in blocks.items():
        unknown = sum(drawn[hold].values())
        bill = Bill(spent[hold] + unknown, None, "estimate" if unknown else "table", error=WHY if unknown else "")
        if block["away"]:
            # The ledger was unavailable: a hold of nothing is opened now, so that the spending can be settled.
            chain = chain_open(UUID(block["organization"]), agent_id=UUID(block["agent"]) if block["agent"] else None)
            reserve_many([Hold(hold, chain, 0, block["purpose"], block["model"], late=True)])
        settle_many([Settlement(hold, bill)])
