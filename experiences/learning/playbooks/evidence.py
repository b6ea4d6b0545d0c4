"""A playbook and the executions that teach it as models read them: blocks of text, one for each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agentcore_site.lib.texts import plain
from experiences.learning.playbooks.effects import ItemEffect
from experiences.learning.playbooks.items import PlaybookItem, in_order
from experiences.rollouts.prompt_quoting import bounded

HEAD, TAIL = 900, 400  # characters of an execution's inputs, and of its outputs
ITEMS: Final = """The block PLAYBOOK holds its items, each with an id, its category, how certain it is, how executions
that had it in their context ended, and its effect: the share of successes with the item less the share without it, in
points, from contexts that lacked it by chance, with an interval of 95 %. "unknown", or an interval on both sides of 0,
says that nothing is known yet; what was measured outweighs what single executions seem to show. METRICS holds
figures."""


@dataclass(frozen=True, slots=True)
class ExecutionEvidence:
    """One execution for a model to read. ``in_context`` are the playbook items in its context, and ``used`` those that
    its answer used; None where that is unknown."""

    id: str
    inputs: Any
    outputs: Any
    success: bool
    duration_ms: float
    in_context: tuple[str, ...] | None = None
    used: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class EvolutionEvidence:
    """All that an evolution's models are shown. ``effects``: what items were measured to add, by their ids."""

    sections: Sequence[PlaybookItem]
    executions: Sequence[ExecutionEvidence]
    effects: Mapping[str, ItemEffect]

    def playbook_blocks(self) -> dict[str, str]:
        """The items with their measured effects, and figures of the executions."""
        items = "\n".join(_item(item, self.effects.get(item.id)) for item in in_order(self.sections))
        metrics = metrics_of(self.executions)
        return {
            "PLAYBOOK": plain(items) or "(empty)",
            "METRICS": "\n".join(f"{name}: {value:g}" for name, value in metrics.items()),
        }

    def execution_blocks(self) -> dict[str, str]:
        return {f"EXECUTION {n}": plain(_execution(one)) for n, one in enumerate(self.executions, start=1)}

    def taught_by(self, numbers: Iterable[int]) -> tuple[str, ...]:
        """The ids of the executions with these numbers; of all of them where no number fits."""
        named = [self.executions[n - 1].id for n in dict.fromkeys(numbers) if 1 <= n <= len(self.executions)]
        return tuple(named or [execution.id for execution in self.executions])


def metrics_of(executions: Sequence[ExecutionEvidence]) -> dict[str, float]:
    """The share that succeeded and how long they took on average."""
    n = len(executions)
    return {
        "executions": n,
        "success_rate": round(sum(execution.success for execution in executions) / n, 4) if n else 0.0,
        "avg_duration_ms": round(sum(execution.duration_ms for execution in executions) / n, 1) if n else 0.0,
    }


def _item(item: PlaybookItem, effect: ItemEffect | None) -> str:
    used = f"used={item.usage} helpful={item.helpful} harmful={item.harmful}"
    known = f"confidence={item.confidence:.2f} {used} effect={_effect(effect)}"
    return f"[{item.id}] {item.category} {known} :: {item.content}"


def _effect(one: ItemEffect | None) -> str:
    if one is None or not one.known:
        return "unknown"
    low, high = one.sequence
    shares = (
        f"{one.included.share:.0%} of {one.included.n} with it, {one.left_out.share:.0%} of {one.left_out.n} without it"
    )
    return f"{100 * one.difference:+.1f} points (95 %: {100 * low:+.1f} to {100 * high:+.1f}; {shares})"


def _execution(one: ExecutionEvidence) -> str:
    ended = "succeeded" if one.success else "failed"
    return (
        f"{ended} after {one.duration_ms:,.0f} ms;"
        f" items in its context: {_named(one.in_context)}; used: {_named(one.used)}\n"
        f"inputs: {bounded(_text(one.inputs), HEAD, TAIL)}\noutputs: {bounded(_text(one.outputs), HEAD, TAIL)}"
    )


def _named(items: Sequence[str] | None) -> str:
    return "not known" if items is None else " ".join(items) or "none"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
