"""Releases as pages show them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from rest_framework import serializers

from agentcore_site.rest.shapes import Shape
from agentcore_site.tenancy.actors import Actor
from evaluation.serving.models import Release, ReleaseSource
from evaluation.serving.releases.bundle import Bundle, BundleDifference
from evaluation.serving.releases.bundle_builder import known_of
from experiences.lessons.presenters import Piece, difference
from experiences.models import Agent, AgentRuntime, Philosophy, Playbook
from training.selectors.runs import checkpoints_visible

MARKS: Final = {"added": ("plus", "new"), "removed": ("cross", "gone"), "changed": ("edit", "changed")}
OFFERED: Final = 20  # checkpoints, and versions of the playbook


@dataclass(frozen=True, slots=True)
class ShownBundleDifference:
    """A difference as a page shows it; ``pieces`` are its removed and added words."""

    part: str
    name: str
    kind: str
    icon: str
    word: str
    pieces: list[Piece]


def shown(found: Iterable[BundleDifference]) -> list[ShownBundleDifference]:
    return [
        ShownBundleDifference(one.part, one.name, one.kind, *MARKS[one.kind], difference(one.before, one.after))
        for one in found
    ]


def sources_of(actor: Actor, agent: Agent) -> list[tuple[str, str]]:
    """The sources of the agent's next release that this person may use, as (key, title) of form choices; empty if they
    may not make a release."""
    if agent.archived_at is not None or not Actor.of(actor).may("release.make", agent.organization_id):
        return []
    checkpoints = checkpoints_visible(actor).filter(agent=agent).order_by("-created_at")[:OFFERED]
    found = [] if agent.runtime == AgentRuntime.ACTION else [("agent", "the agent's current settings")]
    found += [(f"checkpoint:{checkpoint.pk}", checkpoint.label) for checkpoint in checkpoints]
    newest = Playbook.objects.filter(agent=agent).values_list("version", flat=True).first() or 0
    versions = range(newest, max(newest - OFFERED, 0), -1)
    return found + [(f"playbook:{n}", f"version {n} of its playbook") for n in versions]


@dataclass(frozen=True, slots=True)
class ReleaseProof:
    """Evidence on a release, as a sentence; ``tone`` is that of a verdict. ``proven``: on held-out queries."""

    text: str
    tone: str
    proven: bool = False


def proof_of(release: Release) -> ReleaseProof:
    """The release's measurements, with a warning if they are of another state of the agent."""
    evidence = known_of(release)
    if not evidence:
        why = (
            "its checkpoint was uploaded, and not evaluated here"
            if release.checkpoint_id
            else "it was not made from a checkpoint"
        )
        return ReleaseProof(f"No measurements: {why}.", "")
    proven: dict[str, Any] = evidence["held_out"]
    if moved := evidence["moved"]:
        names = " and ".join(moved)
        return ReleaseProof(
            f"Not proven: its agent had another {names} when it was measured.",
            "warn",
        )
    if proven.get("verdict"):
        low, high = proven.get("low"), proven.get("high")
        tone = "good" if low is not None and low > 0 else "bad" if high is not None and high < 0 else ""
        return ReleaseProof(str(proven["verdict"]), tone, proven=True)
    if evidence["validation_score"] is not None:
        score = evidence["validation_score"]
        return ReleaseProof(f"Not proven on held-out queries; {score:.1%} on the selection queries.", "")
    return ReleaseProof("Not proven: its checkpoint was not measured.", "")


def served_as(bundle: Bundle) -> str:
    """Sentences on the gateway's prompting of the model, compared with that while it was measured."""
    name = dict(Philosophy.choices).get(bundle.philosophy, "its philosophy")
    if bundle.runtime == AgentRuntime.ACTION:
        return "As it was measured: it plays one episode for each query, always with its best action."
    if bundle.runtime != AgentRuntime.LLM:
        return "Not at the gateway: an agent over HTTP is called at its own address."
    if bundle.play is None:
        why = f"the gateway sends prompt and context without the instructions of {name}"
        return f"Made by an earlier version: {why}. Make a new release to serve it as it is measured."
    if bundle.play.world:
        why = f"{name} was measured in {bundle.play.world}, whose tools and answers exist only there"
        return f"Not as it was measured: {why}. The gateway sends prompt and context; callers bring their own tools."
    if not bundle.is_played:
        return "As it was measured: prompt, context and the caller's messages, and nothing else."
    tools = len(bundle.tools) + sum(len(server.tools) for server in bundle.servers)
    runs = f", runs its {tools} tools" if tools > 1 else ", runs its tool" if tools else ""
    return f"As it was measured: the gateway adds the instructions of {name}{runs} and returns the final answer."


class ReleaseOut(Shape):
    id = serializers.UUIDField()
    agent_id = serializers.UUIDField()
    agent = serializers.CharField(source="agent.slug", help_text="The agent's slug.")
    number = serializers.IntegerField(help_text="Counted by agent, from 1.")
    digest = serializers.CharField(help_text="SHA-256 of what is served.")
    source = serializers.ChoiceField(choices=ReleaseSource.choices)  # type: ignore[assignment]
    checkpoint_id = serializers.UUIDField(allow_null=True)
    playbook_version = serializers.IntegerField(allow_null=True)
    note = serializers.CharField()
    evidence = serializers.JSONField(help_text="Its measurements; empty without any.")
    by = serializers.CharField(source="created_by.username", default="", help_text="Who made it.")
    created_at = serializers.DateTimeField()

    computed = {"evidence": known_of}
