"""The ledger by call: what was held before it, what it came to, and the entries that say so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from django.db.models import Q, QuerySet

from agentcore_site.tenancy.actors import Actor
from budgets.models import EntryKind, LedgerEntry
from budgets.owners import trajectory_pages

# One entry of each call: its hold. Entries without a hold are a line of their own: debt that was paid, for example.
FIRST_OF_CALL: Final = Q(kind=EntryKind.RESERVE) | Q(reservation_id=None)


@dataclass(frozen=True, slots=True)
class PaidCall:
    """One call. ``first``: the entry by which it is listed; ``entries``: all of it, as they were written. Amounts are
    micro-dollars; ``settled_micros`` is None while the call is held. ``page``: of its trajectory, or ""."""

    first: LedgerEntry
    entries: Sequence[LedgerEntry]
    page: str = ""

    @property
    def reserved_micros(self) -> int | None:
        return self.first.reserved_delta_micros if self.first.kind == EntryKind.RESERVE else None

    @property
    def settled_micros(self) -> int | None:
        if self.reserved_micros is not None and len(self.entries) == 1:
            return None
        return sum(entry.spent_delta_micros + entry.debt_delta_micros for entry in self.entries)

    @property
    def difference_micros(self) -> int | None:
        """Actual cost minus hold."""
        if self.settled_micros is None or self.reserved_micros is None:
            return None
        return self.settled_micros - self.reserved_micros

    @property
    def tokens(self) -> tuple[int, int]:
        return sum(entry.input_tokens for entry in self.entries), sum(entry.output_tokens for entry in self.entries)

    @property
    def latency_ms(self) -> int:
        return max(entry.latency_ms for entry in self.entries)

    @property
    def error(self) -> str:
        return next((entry.error for entry in self.entries if entry.error), "")

    @property
    def estimated(self) -> bool:
        return any(entry.estimated for entry in self.entries)


def paid_calls(actor: Actor, firsts: Sequence[LedgerEntry], entries: QuerySet[LedgerEntry]) -> list[PaidCall]:
    """The calls of a page, each with its entries among ``entries``. Two queries."""
    held = {one.reservation_id for one in firsts if one.reservation_id is not None}
    of_call: dict[int, list[LedgerEntry]] = defaultdict(list)
    for entry in entries.filter(reservation_id__in=held).order_by("id") if held else ():
        of_call[entry.reservation_id or 0].append(entry)
    asked = {(one.job_id, one.rollout) for one in firsts if one.job_id is not None and one.rollout}
    pages = trajectory_pages(actor, asked)
    return [
        PaidCall(
            one,
            of_call.get(one.reservation_id or 0) or [one],
            "" if one.job_id is None else pages.get((one.job_id, one.rollout), ""),
        )
        for one in firsts
    ]
