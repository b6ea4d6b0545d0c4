"""The messages before a rollout's first step, and its answer compared with the expected one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agentcore_site.tenancy.actors import Actor
from experiences.models import Experience, TrajectoryRecord
from experiences.rollouts.message_diff import PROMPT
from experiences.trajectories.presenters.shape_of_steps import answer_of

LONG: Final = 600
LESSONS_CHECKED: Final = 300


@dataclass(frozen=True)
class FirstMessage:
    role: str
    content: str

    @property
    def long(self) -> bool:
        return len(self.content) > LONG


def first_messages(row: TrajectoryRecord, first: Mapping[str, Any] | None) -> list[FirstMessage]:
    """The messages of the model's first call; the system text alone where a file of another system had no more. Nothing
    where the steps don't say: the agent chose actions, or was recorded by an earlier release."""
    state = (first or {}).get("state") or {}
    if PROMPT in state:
        seen = str(state.get("observation") or "")
        return [FirstMessage(str(one["role"]), str(one.get("content", seen))) for one in state[PROMPT]]
    system = (evidence_of(row).get("imported") or {}).get("system")
    return [FirstMessage("system", str(system))] if system else []


def lessons_in(actor: Actor, row: TrajectoryRecord, messages: Sequence[FirstMessage]) -> list[Experience]:
    """The agent's lessons whose text is in the messages."""
    text = "\n".join(message.content for message in messages)
    if not text:
        return []
    known = Experience.objects.visible_to(actor).filter(agent_id=row.agent_id).order_by("handle")
    return [lesson for lesson in known[:LESSONS_CHECKED] if lesson.summary and lesson.summary in text]


def evidence_of(row: TrajectoryRecord) -> Mapping[str, Any]:
    return row.evidence if isinstance(row.evidence, dict) else {}


def answered_by(row: TrajectoryRecord, steps: Sequence[Mapping[str, Any]]) -> Any:
    """Its answer as it was scored; of one that was not, what its last step says. Language models say more than that."""
    return evidence_of(row).get("answer") or answer_of(steps)


def verdict_sentence(row: TrajectoryRecord, last: Mapping[str, Any] | None) -> str:
    """Expected against answered; "" where neither is known."""
    expected = evidence_of(row).get("expected")
    answered = answered_by(row, [last] if last else [])
    answer = f"the answer was {_short(answered)}" if answered not in (None, "") else "there was no answer"
    if expected in (None, ""):
        return f"{answer[0].upper()}{answer[1:]}." if answered not in (None, "") else ""
    return f"Expected {_short(expected)}; {answer}."


def _short(value: Any) -> str:
    text = str(value).strip().replace("\n", " ")
    return f"“{text[:200]}…”" if len(text) > 200 else f"“{text}”"
