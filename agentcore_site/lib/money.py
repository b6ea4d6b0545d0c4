"""Money in integer micro-dollars: exact, and additive in any order."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal
from typing import Final

MICROS: Final = 1_000_000


def micros(dollars: Decimal | float | int | str) -> int:
    """Dollars as micro-dollars, rounded up: a price is never understated."""
    return int((Decimal(str(dollars)) * MICROS).to_integral_value(rounding=ROUND_CEILING))


def dollars(amount_micros: int) -> float:
    """Micro-dollars as dollars, for showing and for JSON."""
    return amount_micros / MICROS
