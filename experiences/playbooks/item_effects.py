"""Effects of the items of an agent's playbook, counted from its recorded executions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from django.db.models import CharField, Count, F, Func, Max, QuerySet

from experiences.learning.playbooks.effects import ItemEffect, Outcomes
from experiences.learning.playbooks.effects_by_words import DrawnExecution, expected_effects, words_of
from experiences.learning.playbooks.guards import texts_in
from experiences.learning.playbooks.items import PlaybookItem
from experiences.learning.playbooks.leave_out import DECIMALS
from experiences.models import ExecutionTrace, Playbook, PlaybookChange, PlaybookVersion

MOST: Final = 50_000  # executions that are counted, the newest
MOST_READ: Final = 2_000  # executions whose inputs are read, the newest

Ended = Counter[tuple[int, bool]]
"""Executions by the playbook's version and by success."""


def effects_of(playbook: Playbook) -> dict[str, ItemEffect]:
    """The effect of each item that ever was in the playbook, since it has its present text; empty where nothing is left
    out. Seven queries over at most 50,000 executions.

    Only executions whose context was drawn at the agent's present rate count: another rate at another time would mix
    the item's effect with that of the time.
    """
    rate = round(playbook.agent.leave_out_rate, DECIMALS)
    if not rate:
        return {}
    rows = _newest(ExecutionTrace.objects.filter(agent_id=playbook.agent_id, leave_out_rate=rate))
    reporting = rows.filter(used__isnull=False)
    # Parts before the whole: what is recorded meanwhile may be missing in a part, and never be more than the whole.
    left, left_reporting, used = (
        _ended_by_item(rows, "left_out"),
        _ended_by_item(reporting, "left_out"),
        _ended_by_item(rows, "used"),
    )
    every_reporting, every = _ended(reporting), _ended(rows)
    found = {}
    for item, since in _since(playbook).items():
        left_out = _outcomes(left.get(item), since)
        without = _outcomes(left_reporting.get(item), since)
        found[item] = ItemEffect(
            included=_outcomes(every, since).without(left_out),
            left_out=left_out,
            reporting=_outcomes(every_reporting, since).without(without).n,
            used=_outcomes(used.get(item), since).n,
        )
    return found


def judged_effects(playbook: Playbook, sections: Sequence[PlaybookItem]) -> dict[str, ItemEffect]:
    """``effects_of``, with the estimate of each of these items by the words of the inputs. It reads at most 2,000
    executions, so it is for decisions and not for lists."""
    effects = effects_of(playbook)
    if not any(effect.left_out.n for effect in effects.values()):
        return effects
    found = expected_effects(_trials(playbook, sections), {item.id: item.content for item in sections})
    return {id: replace(effect, expected=found.get(id)) for id, effect in effects.items()}


def _trials(playbook: Playbook, sections: Sequence[PlaybookItem]) -> list[DrawnExecution]:
    """The newest executions whose context was drawn at the present rate. An item was offered in those since it has its
    present text."""
    rate = round(playbook.agent.leave_out_rate, DECIMALS)
    drawn = ExecutionTrace.objects.filter(agent_id=playbook.agent_id, leave_out_rate=rate)
    fields = drawn.values_list("context_version", "left_out", "inputs", "success")
    rows = list(fields.order_by("-recorded_at")[:MOST_READ])
    versions = PlaybookVersion.objects.filter(playbook=playbook, number__in={row[0] for row in rows})
    had = {number: {one["id"] for one in stored} for number, stored in versions.values_list("number", "sections")}
    since, found = _since(playbook), []
    for version, left_out, inputs, success in rows:
        offered = frozenset(
            item.id for item in sections if item.id in had.get(version, ()) and since.get(item.id, 0) <= version
        )
        words = words_of(texts_in(inputs))
        found.append(DrawnExecution(words, success, rate, offered, offered.difference(left_out or ())))
    return found


def _newest(rows: QuerySet[ExecutionTrace]) -> QuerySet[ExecutionTrace]:
    oldest = rows.order_by("-recorded_at").values_list("recorded_at", flat=True)[MOST - 1 : MOST].first()
    return rows if oldest is None else rows.filter(recorded_at__gte=oldest)


def _ended(rows: QuerySet[ExecutionTrace]) -> Ended:
    counted = rows.order_by().values_list("context_version", "success").annotate(n=Count("id"))
    return Counter({(version, success): n for version, success, n in counted})


def _ended_by_item(rows: QuerySet[ExecutionTrace], field: str) -> dict[str, Ended]:
    """By item, the executions whose list ``field`` has it."""
    each = Func(F(field), function="unnest", output_field=CharField())
    counted = rows.order_by().annotate(item=each).values_list("item", "context_version", "success")
    found: dict[str, Ended] = {}
    for item, version, success, n in counted.annotate(n=Count("id")):
        found.setdefault(item, Counter())[version, success] = n
    return found


def _since(playbook: Playbook) -> dict[str, int]:
    """The version in which each item got its present text. One that is only said again keeps it."""
    worded = PlaybookChange.objects.filter(playbook=playbook).exclude(action="merged")
    return dict(worded.order_by().values_list("handle").annotate(since=Max("version")))


def _outcomes(ended: Ended | None, since: int) -> Outcomes:
    counted = {key: n for key, n in (ended or {}).items() if key[0] >= since}
    return Outcomes(sum(counted.values()), sum(n for (_, success), n in counted.items() if success))
