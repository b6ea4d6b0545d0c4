"""Input and output of a serving adapter. Pure.

A deployment gives each release of an agent its share of the sessions. An adapter passes this plan to the system that
serves the agent. It always passes the whole plan, never a difference, so that a lost plan does no harm.
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
    """The serving system refused the plan; the message is the reason. It holds no secret and no address."""


class DeploymentArm(NamedTuple):
    """A release with its ``share`` of the sessions, between 0 and 1. ``name`` is unique within the plan."""

    name: str
    share: float
    bundle: Bundle


@dataclass(frozen=True)
class DeploymentPlan:
    """The releases that serve an agent from now on. ``id`` identifies the change: equal for each attempt to deliver it.

    Raises:
        ValueError: no arm, a missing or duplicate name, or shares that don't add up to 1.
    """

    id: str
    agent: str
    arms: tuple[DeploymentArm, ...]

    def __post_init__(self) -> None:
        names = [arm.name for arm in self.arms]
        if not names or len(set(names)) < len(names) or not all(NAME.fullmatch(one) for one in (self.agent, *names)):
            raise ValueError(
                f"An agent and its arms are named by small letters, digits, _ and -, each once; got {names}."
            )
        shares = [arm.share for arm in self.arms]
        if not all(0 <= share <= 1 for share in shares) or not math.isclose(math.fsum(shares), 1.0, abs_tol=1e-9):
            raise ValueError(f"Shares lie between 0 and 1 and add up to 1; got {shares}.")

    def as_json(self) -> dict[str, Any]:
        """The whole plan, each bundle with the digest of its release."""
        return {"id": self.id, "agent": self.agent, "arms": [_arm(arm) for arm in self.arms]}


def _arm(arm: DeploymentArm) -> dict[str, Any]:
    stored = arm.bundle.as_json()
    return {"name": arm.name, "share": arm.share, "digest": digest(stored), "bundle": stored}


@dataclass(frozen=True)
class AdapterTarget:
    """Target of adapters that call a URL: the URL, and the secret of its signature."""

    url: str = ""
    secret: str = field(default="", repr=False)


@dataclass(frozen=True)
class AppliedPlan:
    """The result, in a sentence, and files for the serving system, by their paths."""

    sentence: str
    files: Mapping[str, str] = field(default_factory=dict)


class ServingAdapter(ABC):
    """One way to serve. It has no state."""

    title: ClassVar[str]
    needs_url: ClassVar[bool] = False

    @abstractmethod
    def faults(self, plan: DeploymentPlan) -> list[str]:
        """The reason why it can't serve this plan; empty if it can. Checked before anything is deployed."""

    @abstractmethod
    def apply(self, plan: DeploymentPlan, target: AdapterTarget) -> AppliedPlan:
        """Applies the plan. Applying the same plan again changes nothing.

        Raises:
            AdapterFailed: the plan was not delivered, or refused.
            ValueError: the plan has faults.
        """


def refuse_faults(found: list[str]) -> None:
    """Raises ValueError: there is a fault."""
    if found:
        raise ValueError(" ".join(found))
