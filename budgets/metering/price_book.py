"""The price table as the model client reads it: in memory, because it is asked from async code, call by call."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from typing import Final, Self

from django.db.models import Q

from budgets.models import ModelPrice
from budgets.pricing import Price, UnknownPrice

TRAIN: Final = "/train"  # after a model's name: the price of the calls that train its weights
_OWN_WEIGHTS: Final = re.compile(r"@[0-9a-f]{64}$")


class DatabasePriceBook:
    """``PriceBook`` of an organisation: its own prices first, then those for all; of each the newest that is valid.

    It knows what was in the table when it was loaded, and future prices from their day on. Load it again for each slice
    of work: that is one query.
    """

    def __init__(
        self, rows: Iterable[ModelPrice], *, today: Callable[[], date] = lambda: datetime.now(UTC).date()
    ) -> None:
        self._today = today
        # By model: (own, day, price), own ones last, so that the last valid one counts.
        self._prices: dict[str, list[tuple[bool, date, Price]]] = {}
        for row in rows:
            entry = (row.organization_id is not None, row.valid_from, row.value())
            self._prices.setdefault(row.model, []).append(entry)
        for prices in self._prices.values():
            prices.sort(key=lambda entry: entry[:2])

    @classmethod
    def load(cls, organization_id: uuid.UUID) -> Self:
        """The book of an organisation, read now. Not from an event loop."""
        return cls(ModelPrice.objects.filter(Q(organization_id=organization_id) | Q(organization=None)))

    def price(self, model: str) -> Price:
        """The price that is valid today. A model with weights of its own (``name@digest``) costs what its base does.

        Raises:
            UnknownPrice: there is none; the call must not be made.
        """
        today = self._today()
        model = _OWN_WEIGHTS.sub("", model)
        for _, valid_from, price in reversed(self._prices.get(model, [])):
            if valid_from <= today:
                return price
        raise UnknownPrice(model)
