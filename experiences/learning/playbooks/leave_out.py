"""Leaving items out of contexts at random, so that what each item adds can be measured.

Each context lacks each item with the same probability, for every task. So executions with an item and those
without it differ by nothing but chance and the item: a randomised experiment over all items at once, in production.
The draw has a name that the service sends back with the execution; nothing is stored when a context is given out.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

MOST: Final = 0.5  # of the contexts: an item that most contexts lack is hardly used
DECIMALS: Final = 4  # of a rate, so that its name in an id is exact
LONGEST_ID: Final = 2_000
_ID = re.compile(r"(?P<version>[1-9][0-9]{0,9})(?:~(?P<rate>0|0\.[0-9]{1,4})~(?P<left>(?:s[0-9]+\.)*))?")


@dataclass(frozen=True, slots=True)
class Draw:
    """Draw of one context: ``version`` of the playbook without the items ``left_out``, each left out with probability
    ``rate``. With rate 0 nothing was drawn, and the served release leaves these items out."""

    version: int
    rate: float = 0.0
    left_out: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Its name, e.g. ``12`` for the whole version 12 and ``12~0.1~s3.s8.`` for one without two of its items."""
        if not self.rate and not self.left_out:
            return str(self.version)
        return f"{self.version}~{self.rate:g}~{''.join(f'{one}.' for one in self.left_out)}"


def draw(version: int, ids: Iterable[str], rate: float, chance: Callable[[], float] = random.random) -> Draw:
    """One context of a version with these items. ``chance`` gives numbers in [0, 1)."""
    rate = round(rate, DECIMALS)
    return Draw(version, rate, tuple(one for one in ids if chance() < rate) if rate else ())


def draw_of(id: str) -> Draw:
    """The draw with that name.

    Raises:
        ValueError: no context has such a name.
    """
    found = _ID.fullmatch(id) if len(id) <= LONGEST_ID else None
    if found is None or int(found["version"]) > 2**31 - 1:
        raise ValueError("It is the context_id of no context.")
    if found["rate"] is None:
        return Draw(int(found["version"]))
    rate, left = float(found["rate"]), tuple(filter(None, found["left"].split(".")))
    if not 0 <= rate <= MOST or len(set(left)) != len(left) or not (rate or left):
        raise ValueError("It is the context_id of no context.")
    return Draw(int(found["version"]), rate, left)
