"""Time of the next attempt of a delivery."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

MOST_TRIES: Final = 10  # over about a day
LONGEST: Final = timedelta(hours=6)


def next_try(now: datetime, tries: int) -> datetime:
    """After one, two, four … minutes; ``tries`` were made before this one."""
    return now + min(LONGEST, timedelta(minutes=2**tries))
