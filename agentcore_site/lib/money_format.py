"""Money as people read it."""

from __future__ import annotations

from decimal import Decimal

from agentcore_site.lib.figures import MINUS
from agentcore_site.lib.money import MICROS


def money(amount: int) -> str:
    """Micro-dollars as text: two decimals, or as many as it takes (at most six). ``$0.50``, ``$0.000123``."""
    value = Decimal(amount) / MICROS
    text = f"{abs(value):,.6f}".rstrip("0")
    whole, _, part = text.partition(".")
    return f"{MINUS if amount < 0 else ''}${whole}.{part:0<2}"
