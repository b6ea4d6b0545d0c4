"""What a serving adapter is given, and what it answers. Pure.

A deployment says which releases an agent is served by, each with its share of the sessions. An adapter tells whatever
serves it. It is told the whole plan each time and never a difference, so that one that was lost does no harm.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple

from evaluation.serving.releases.bundle import Bundle, digest

NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,59}")


class AdapterFailed(Exception):
    """What serves did not take the plan; the message says why. It holds no secret and no address."""


class DeploymentArm(NamedTuple):
    """A release with its ``share`` of the sessions, between 0 and 1. ``name`` names it within the plan."""

    name: str
    share: float
    bundle: Bundle


@dataclass(frozen=True)
class DeploymentPlan:
    """Who serves an agent from now on. ``id`` names the change: the same at each attempt to tell it, another at the
    next change.

    Raises:
        ValueError: no arm, a name that is none or stands twice, or shares that don't add up to 1.
    """

    id: str
    agent: str
    arms: tuple[DeploymentArm, ...]

    def __post_init__(self) -> None:
        names = [one.name for one in self.arms]
        if not names or len(set(names)) < len(names) or not all(NAME.fullmatch(one) for one in (self.agent, *names)):
            raise ValueError(
                f"An agent and its arms are named by small letters, digits, _ and -, each once; got {names}."
            )
        shares = [one.share for one in self.arms]
        if not all(0 <= one <= 1 for one in shares) or not math.isclose(math.fsum(shares), 1.0, abs_tol=1e-9):
            raise ValueError(f"Shares lie between 0 and 1 and add up to 1; got {shares}.")

    def as_json(self) -> dict[str, Any]:
        """The whole plan, each bundle with the digest of its release."""
        return {"id": self.id, "agent": self.agent, "arms": [_arm(one) for one in self.arms]}


def _arm(arm: DeploymentArm) -> dict[str, Any]:
    stored = arm.bundle.as_json()
    return {"name": arm.name, "share": arm.share, "digest": digest(stored), "bundle": stored}


@dataclass(frozen=True)
class AdapterTarget:
    """Where to, for adapters that call an address: which, and by what it is signed."""

    url: str = ""
    secret: str = field(default="", repr=False)


@dataclass(frozen=True)
class AppliedPlan:
    """What was done, in a sentence, and files to be put where they are served from, by their paths."""

    sentence: str
    files: Mapping[str, str] = field(default_factory=dict)


class ServingAdapter(ABC):
    """One way to serve. It holds no state."""

    title: ClassVar[str]
    needs_url: ClassVar[bool] = False

    @abstractmethod
    def faults(self, plan: DeploymentPlan) -> list[str]:
        """Why it can't serve this plan as it is; empty where it can. Asked before anything is deployed."""

    @abstractmethod
    def apply(self, plan: DeploymentPlan, target: AdapterTarget) -> AppliedPlan:
        """Tells it. Telling the same plan again changes nothing.

        Raises:
            AdapterFailed: it was not told, or refused.
            ValueError: the plan has faults.
        """


def refuse_faults(found: list[str]) -> None:
    """Raises ValueError: there is one."""
    if found:
        raise ValueError(" ".join(found))
