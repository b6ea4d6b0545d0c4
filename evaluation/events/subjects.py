"""Subjects and streams. Pure.

In an account of its own, each publisher uses the plain subjects below. The server maps them (``events.accounts``), so
that a message reaches us as ``received.<organisation>.<credential>.<subject>``: its sender can't be forged. Each
organisation's stream keeps what its publishers sent. Our messages to an organisation go out as
``out.<organisation>.<subject>``, which its accounts see under the plain subject.

Earlier releases had ``in.`` in the place of ``received.``, in streams that all organisations shared. What they left
there is still read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple
from uuid import UUID

TRAJECTORY: Final = "agent.rl.trajectory.v1"
REWARD: Final = "agent.rl.reward.v1"
REQUEST: Final = "agent.rl.training.request.v1"
STATUS: Final = "agent.rl.training.status.v1"
DEPLOYED: Final = "agent.rl.model.deployed.v1"
DEAD_LETTERS: Final = "agent.rl.dlq"  # followed by the stream's name
SUBJECTS: Final = (TRAJECTORY, REWARD, REQUEST, STATUS, DEPLOYED)
RECEIVED: Final = "received"
DAY: Final = 86_400.0


@dataclass(frozen=True)
class StreamPlan:
    """A stream of the site: ``max_age`` in seconds; ``share``: of the bytes of all streams."""

    name: str
    plain: tuple[str, ...]
    max_age: float
    max_msgs: int
    share: float

    block: ClassVar[int] = 64  # messages of a transaction

    @property
    def family(self) -> str:
        return self.name

    @property
    def subjects(self) -> list[str]:
        return [form for one in self.plain for form in (one, f"in.*.*.{one}", f"out.*.{one}")]

    @property
    def inbound(self) -> list[str]:
        """The subjects of consumers: all but our own messages."""
        return [form for one in self.plain if one != DEPLOYED for form in (one, f"in.*.*.{one}")]


@dataclass(frozen=True)
class InboxPlan:
    """The stream of what an organisation's publishers send (``events.inboxes``)."""

    organization_id: UUID
    inbound: ClassVar[list[str] | None] = None  # all of it
    family: ClassVar[str] = "RL_IN"
    block: ClassVar[int] = 8  # organisations take turns: a neighbour waits for no more

    @classmethod
    def named(cls, name: str) -> InboxPlan | None:
        """The plan of a stream with that name; None of any other stream."""
        family, _, organization = name.rpartition("_")
        return cls(UUID(organization)) if family == cls.family else None

    @property
    def name(self) -> str:
        return f"{self.family}_{self.organization_id.hex}"

    @property
    def subjects(self) -> list[str]:
        return [f"{RECEIVED}.{self.organization_id}.>"]


STREAMS: Final = (
    StreamPlan("RL_TRAJECTORIES", (TRAJECTORY,), 30 * DAY, 1_000_000, 0.3),
    StreamPlan("RL_REWARDS", (REWARD,), 30 * DAY, 500_000, 0.1),
    StreamPlan("RL_TRAINING", (REQUEST, STATUS, DEPLOYED), 7 * DAY, 10_000, 0.05),
)
DEAD_STREAM: Final = "RL_DEAD_LETTERS"
DEAD_SHARE: Final = 0.05  # the other half of all bytes is for the streams of organisations
DURABLE: Final = "agentcore"  # the consumer of each stream


Publisher = tuple[UUID | None, UUID | None]  # its organisation and its credential


class Origin(NamedTuple):
    """The origin of a message; without ids if it was published by the plain subject, in our own account."""

    subject: str
    organization_id: UUID | None = None
    credential_id: UUID | None = None

    @property
    def publisher(self) -> Publisher:
        return self.organization_id, self.credential_id


def of_publisher(subject: str) -> bool:
    """True for a message of a publisher, false for one on a plain subject or of ours."""
    return subject.startswith(("in.", f"{RECEIVED}."))


def origin_of(subject: str) -> Origin:
    """Raises:
    ValueError: it is no subject that we read."""
    if of_publisher(subject):
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
