"""The number of rounds of a simulation: few in `make test`, many in `make test-all`, which sets ``THOROUGH=1``."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def rounds(few: T, many: T) -> T:
    """``few`` or ``many``. A test that asks is marked ``rounds``, so that `make test-all` runs it again."""
    return many if os.environ.get("THOROUGH") else few


def some(values: Sequence[T], few: int) -> Sequence[T]:
    """``few`` of the values by chance, or all of them in `make test-all`."""
    return rounds(random.sample(list(values), min(few, len(values))), values)


def one_in(n: int, values: Sequence[T]) -> Sequence[T]:
    """Every ``n``th of the values by chance, or all of them in `make test-all`."""
    return some(values, -(-len(values) // n))
