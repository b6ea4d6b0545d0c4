"""Subjects and streams. Pure.

In an account of its own, each publisher uses the plain subjects below. The server maps them (``events.accounts``), so
that a message reaches us as ``in.<organisation>.<credential>.<subject>``: its sender can't be forged. Our messages
to an organisation go out as ``out.<organisation>.<subject>``, which its accounts see under the plain subject.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

TRAJECTORY: Final = "agent.rl.trajectory.v1"
REWARD: Final = "agent.rl.reward.v1"
REQUEST: Final = "agent.rl.training.request.v1"
STATUS: Final = "agent.rl.training.status.v1"
DEPLOYED: Final = "agent.rl.model.deployed.v1"
DEAD_LETTERS: Final = "agent.rl.dlq"  # followed by the stream's name
SUBJECTS: Final = (TRAJECTORY, REWARD, REQUEST, STATUS, DEPLOYED)
DAY: Final = 86_400.0


@dataclass(frozen=True)
class StreamPlan:
    """A stream as it is made: ``max_age`` in seconds."""

    name: str
    plain: tuple[str, ...]
    max_age: float
    max_msgs: int

    @property
    def subjects(self) -> list[str]:
        return [form for one in self.plain for form in (one, f"in.*.*.{one}", f"out.*.{one}")]

    @property
    def inbound(self) -> list[str]:
        """The subjects of consumers: all but our own messages."""
        return [form for one in self.plain if one != DEPLOYED for form in (one, f"in.*.*.{one}")]


STREAMS: Final = (
    StreamPlan("RL_TRAJECTORIES", (TRAJECTORY,), 30 * DAY, 1_000_000),
    StreamPlan("RL_REWARDS", (REWARD,), 30 * DAY, 500_000),
    StreamPlan("RL_TRAINING", (REQUEST, STATUS, DEPLOYED), 7 * DAY, 10_000),
)
DEAD_STREAM: Final = "RL_DEAD_LETTERS"


Publisher = tuple[UUID | None, UUID | None]  # its organisation and its credential


class Origin(NamedTuple):
    """The origin of a message; without ids if it was published by the plain subject, in our own account."""

    subject: str
    organization_id: UUID | None = None
    credential_id: UUID | None = None

    @property
    def publisher(self) -> Publisher:
        return self.organization_id, self.credential_id


def origin_of(subject: str) -> Origin:
    """Raises:
    ValueError: it is no subject that we read."""
    if subject.startswith("in."):
        _, organization, credential, plain = subject.split(".", 3)
        return Origin(_known(plain), UUID(organization), UUID(credential))
    return Origin(_known(subject))


def outgoing(subject: str, organization_id: UUID, *, plain: bool) -> str:
    return subject if plain else f"out.{organization_id}.{subject}"


def stream_of(subject: str) -> str:
    """The stream that keeps a plain subject."""
    return next(stream.name for stream in STREAMS if subject in stream.plain)


def _known(subject: str) -> str:
    if subject not in SUBJECTS:
        raise ValueError(f"{subject} is no subject that is read here")
    return subject
