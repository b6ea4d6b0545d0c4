"""Implicit feedback of a session: the user repeats a question, or leaves after an answer that did not come.

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
    """One call of a session. ``asked`` is the user's message at its end, "" if it ends with another message (e.g.
    results of tools: then the user repeats nothing). ``answered``: a whole answer came."""

    at: datetime
    asked: str
    answered: bool


def is_retried(turn: SessionTurn, following: SessionTurn) -> bool:
    """The session's next turn asks nearly the same, although this one was answered."""
    return (
        turn.answered
        and min(len(turn.asked), len(following.asked)) >= SHORTEST
        and timedelta() <= following.at - turn.at <= AGAIN_WITHIN
        and similarity(turn.asked, following.asked) >= NEARLY
    )


def is_abandoned(last: SessionTurn, now: datetime) -> bool:
    """The session's last turn got no whole answer (an error, a cut answer, an unanswered tool call), and nothing came
    after it. A session that ends with a whole answer ends well."""
    return not last.answered and now - last.at >= QUIET_FOR
