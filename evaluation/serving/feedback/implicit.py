"""What a session says without a word of feedback: asked nearly the same again, or left after an answer that was none.

Pure: rules over turns of one session.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from experiences.learning.lessons.similarity import similarity

AGAIN_WITHIN: Final = timedelta(minutes=10)
QUIET_FOR: Final = timedelta(minutes=30)  # without a further turn: the session is over
NEARLY: Final = 0.8  # similarity of two questions that ask for the same
SHORTEST: Final = 12  # characters: "go on" twice is no second try


@dataclass(frozen=True, slots=True)
class SessionTurn:
    """One call of a session. ``asked`` is the user's message that it ends with, "" where it ends with another one (the
    results of tools, say: an agent that goes on asks nothing anew). ``answered``: a whole answer came."""

    at: datetime
    asked: str
    answered: bool


def is_retried(turn: SessionTurn, following: SessionTurn) -> bool:
    """The next turn of the session asks for nearly the same, though this one was answered."""
    return (
        turn.answered
        and min(len(turn.asked), len(following.asked)) >= SHORTEST
        and timedelta() <= following.at - turn.at <= AGAIN_WITHIN
        and similarity(turn.asked, following.asked) >= NEARLY
    )


def is_abandoned(last: SessionTurn, now: datetime) -> bool:
    """The session's last turn brought no whole answer (an error, one that was cut, a call of a tool that was never
    answered), and nothing came after it. A session that ends with a whole answer ends well."""
    return not last.answered and now - last.at >= QUIET_FOR
