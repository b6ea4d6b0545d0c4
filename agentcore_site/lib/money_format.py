"""Money as people read it: ``usd`` and ``money`` in sentences and tables, ``exact`` in the ledger and in prices."""

from __future__ import annotations

from decimal import Decimal
from math import floor, log10
from typing import Final

from agentcore_site.lib.figures import MINUS
from agentcore_site.lib.money import MICROS

CENT: Final = Decimal("0.01")
DIGITS: Final = 4  # of an amount under a cent


def usd(value: Decimal | float) -> str:
    """Dollars as people say them: $12.40, $1,234.57; under a cent with four significant digits: $0.0001481."""
    amount = abs(Decimal(str(value)))
    sign = MINUS if value < 0 else ""
    if amount == 0 or amount >= CENT:
        return f"{sign}${amount:,.2f}"
    places = DIGITS - 1 - floor(log10(amount))
    return f"{sign}${f'{amount:.{places}f}'.rstrip('0')}"


def money(amount_micros: int) -> str:
    """Micro-dollars as people say them (``usd``)."""
    return usd(Decimal(amount_micros) / MICROS)


def exact(amount_micros: int) -> str:
    """Micro-dollars to the last one: two decimals, or as many as it takes (at most six). ``$0.50``, ``$0.148083``."""
    value = Decimal(amount_micros) / MICROS
    text = f"{abs(value):,.6f}".rstrip("0")
    whole, _, part = text.partition(".")
    return f"{MINUS if amount_micros < 0 else ''}${whole}.{part:0<2}"


def shares(part_micros: int, whole_micros: int) -> tuple[int, str, str]:
    """The per cent that a part is of the whole, rounded down, and both amounts with digits enough that they say the
    same: $0.054 of $0.06, where $0.05 of $0.06 would be 83 %. A whole of nothing is used up: 100 %."""
    if not whole_micros:
        return 100, money(part_micros), money(whole_micros)
    percent = 100 * part_micros // whole_micros
    texts = money(part_micros), money(whole_micros)
    part, whole = (Decimal(text.lstrip(f"{MINUS}$").replace(",", "")) for text in texts)
    if 100 * part // whole != percent:
        texts = exact(part_micros), exact(whole_micros)
    return percent, *texts


def apart(*micros: int) -> list[str]:
    """Amounts that a sentence compares: as people say them, or exactly where two that differ would read the same."""
    rounded = [money(amount_micros) for amount_micros in micros]
    if len(set(rounded)) == len(set(micros)):
        return rounded
    return [exact(amount_micros) for amount_micros in micros]
