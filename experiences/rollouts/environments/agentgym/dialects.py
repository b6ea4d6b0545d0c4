"""The two dialects of AgentGym's servers, and how their answers are read.

A (TextCraft, BabyAI, SciWorld): POST /create → {"id"}; sessions are named by "id", tasks by "data_idx".
B (WebShop, SQLGym, tools): POST /create → a bare number; sessions are named by "env_idx", tasks by "session_id",
"item_id" or "id", whichever the server asks for.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from experiences.rollouts.environments.agentgym.wire import GymError

_TEXTS: Final = ("observation", "state", "prompt")  # where the servers put what the agent sees


@dataclass(frozen=True, slots=True)
class Dialect:
    """``session`` names a session in every request; ``tasks`` are the names under which /reset takes a task."""

    session: str
    tasks: tuple[str, ...]


DIALECTS: Final[Mapping[str, Dialect]] = {
    "A": Dialect("id", ("data_idx",)),
    "B": Dialect("env_idx", ("session_id", "item_id", "id")),
}


class Reply(NamedTuple):
    """A server's answer to a step or a reset; ``observation`` is None without one."""

    observation: str | None
    reward: float
    done: bool


def session_in(answer: Any, wanted: str) -> tuple[Dialect, int | str]:
    """(dialect, session) from the answer to /create; ``wanted`` is "A", "B" or "auto": by the answer's form.

    Raises:
        GymError: it holds no session.
    """
    number, dialect = answer, "B"
    if isinstance(answer, Mapping):
        dialect = "A" if "id" in answer else "B"
        number = answer.get("id", answer.get("env_idx"))
    if isinstance(number, bool) or not isinstance(number, int | str) or number == "":
        raise GymError(f"/create: the answer holds no session: {json.dumps(answer)[:200]}")
    return DIALECTS[dialect if wanted == "auto" else wanted], number


def reply_in(answer: Any) -> Reply:
    """Reads an answer to /reset, /step or /observation: an object, a bare text, or a list that begins with one.

    Raises:
        GymError: its reward is no finite number.
    """
    if isinstance(answer, list) and answer:  # WebShop's reset: [state, null]
        answer = answer[0]
    if isinstance(answer, str):
        return Reply(answer, 0.0, False)
    if not isinstance(answer, Mapping):
        return Reply(None, 0.0, False)
    text = next((answer[name] for name in _TEXTS if answer.get(name) is not None), None)
    if text is not None and not isinstance(text, str):
        text = json.dumps(text, ensure_ascii=False)
    return Reply(text, _reward(answer.get("reward")), answer.get("done") in (True, 1))


def _reward(value: Any) -> float:
    if value is None:
        return 0.0
    try:
        number = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise GymError(f"the reward is no finite number: {str(value)[:80]!r}")
    return number
