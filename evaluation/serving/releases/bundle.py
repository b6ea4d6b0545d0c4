"""An agent in production, as one value: the same bytes for the same agent, with a digest.
Pure: ``bundle_builder`` makes bundles from rows. A bundle is JSON, stored whole in its release's row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, NamedTuple, Self

from experiences.learning.lessons.library import Lesson
from training.policies.served_context import ServedContext

FORMAT: Final = 1

NAMES: Final = {
    "name": "model",
    "endpoint": "endpoint's id",
    "endpoint_name": "endpoint",
    "kind": "kind of endpoint",
    "base_url": "address",
    "options": "options",
    "max_tokens": "longest answer",
}  # names of a model's fields in differences

Kind = Literal["added", "removed", "changed"]


@dataclass(frozen=True)
class ModelPart:
    """The called model: ``name`` at the endpoint of this id, with the endpoint's kind, address and options at the time,
    and the maximum length of an answer."""

    name: str = ""
    endpoint: str = ""
    endpoint_name: str = ""
    kind: str = ""
    base_url: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    max_tokens: int = 0


@dataclass(frozen=True)
class ToolServerPart:
    """A tool server, and its tools that the agent may call."""

    id: str
    name: str
    tools: tuple[str, ...]


@dataclass(frozen=True)
class PolicyPart:
    """Parameters that are too large for a bundle: their checkpoint and its SHA-256."""

    checkpoint: str
    sha256: str


@dataclass(frozen=True)
class PlayPart:
    """The play of a language model while it was measured: the ``instructions`` of its philosophy by name, the
    temperature (None: the service's own), and the limits of a rollout. ``world``: the environment without which it
    can't be played so, because its episodes bring tools or answer back; "" for none."""

    instructions: Mapping[str, str] = field(default_factory=dict)
    temperature: float | None = None
    max_steps: int = 20
    seconds: float = 300.0
    world: str = ""


@dataclass(frozen=True)
class Bundle:
    """``system`` comes before every task; ``context`` gives the additional text for each query. ``policy`` has the
    parameters of an agent that chooses actions; None for a language model. ``play`` is None for other agents, and in
    releases of earlier versions of AgentCore, which are served without instructions."""

    runtime: str
    philosophy: str = ""
    model: ModelPart = field(default_factory=ModelPart)
    system: str = ""
    tools: tuple[str, ...] = ()
    servers: tuple[ToolServerPart, ...] = ()
    context: ServedContext = field(default_factory=ServedContext)
    policy: PolicyPart | None = None
    play: PlayPart | None = None

    @property
    def is_played(self) -> bool:
        """True if the gateway adds instructions and, where needed, makes several calls for an answer."""
        return self.play is not None and bool(self.play.instructions) and not self.play.world

    def as_json(self) -> dict[str, Any]:
        plain = {
            "format": FORMAT,
            "runtime": self.runtime,
            "philosophy": self.philosophy,
            "model": asdict(self.model),
            "system": self.system,
            "tools": list(self.tools),
            "servers": [asdict(server) for server in self.servers],
            "context": self.context.as_json(),
            "policy": None if self.policy is None else asdict(self.policy),
        }
        if self.play is not None:  # without it the digests of earlier releases stay as they are
            plain["play"] = asdict(self.play)
        return json.loads(json.dumps(plain))  # type: ignore[no-any-return]  # as it is read again: lists, no tuples

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Raises:
        ValueError: a later version of the program wrote the bundle."""
        if stored["format"] != FORMAT:
            raise ValueError(f"A bundle of format {stored['format']} can't be read here; this reads {FORMAT}.")
        return cls(
            runtime=stored["runtime"],
            philosophy=stored["philosophy"],
            model=ModelPart(**stored["model"]),
            system=stored["system"],
            tools=tuple(stored["tools"]),
            servers=tuple(ToolServerPart(**{**one, "tools": tuple(one["tools"])}) for one in stored["servers"]),
            context=ServedContext.from_json(stored["context"]),
            policy=None if stored["policy"] is None else PolicyPart(**stored["policy"]),
            play=PlayPart(**stored["play"]) if stored.get("play") else None,
        )


def digest(stored: Mapping[str, Any]) -> str:
    """SHA-256 of a bundle's JSON with sorted names: equal for bundles that serve the same."""
    plain = json.dumps(stored, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(plain.encode()).hexdigest()


# -- differences -------------------------------------------------------------------------------------------------------


class BundleDifference(NamedTuple):
    """One difference between two bundles: ``part`` is its section, ``name`` its name within the section ("" for the
    only one)."""

    part: str
    name: str
    kind: Kind
    before: str
    after: str


def differences(before: Bundle, after: Bundle) -> list[BundleDifference]:
    """The differences of ``after`` from ``before``, in the order of a page."""
    return [
        *setting_differences(before, after),
        *_diff("agent", [(name, *values) for name, values in _played(before, after).items()]),
        *_texts(before.context.lessons, after.context.lessons),
        *_rule(before, after),
        *_diff("policy", [("parameters", _sha256(before), _sha256(after))]),
    ]


def setting_differences(before: Bundle, after: Bundle) -> list[BundleDifference]:
    """Differences in the settings that a context was proven with: runtime, model, prompt, tools."""
    models = asdict(before.model), asdict(after.model)
    return [
        *_diff("agent", [(name, getattr(before, name), getattr(after, name)) for name in ("runtime", "philosophy")]),
        *_diff("model", [(NAMES[name], _text(models[0][name]), _text(models[1][name])) for name in NAMES]),
        *_diff("prompt", [("system prompt", before.system, after.system)]),
        *_named("tool", dict.fromkeys(before.tools, ""), dict.fromkeys(after.tools, "")),
        *_named("tool of a server", _granted(before), _granted(after)),
    ]


def _played(before: Bundle, after: Bundle) -> dict[str, tuple[str, str]]:
    """Texts of the play of both, by their names."""
    plays = [PlayPart() if one.play is None else one.play for one in (before, after)]
    said = [
        {
            "instructions": "\n".join(text for _, text in sorted(play.instructions.items())),
            "temperature": "" if play.temperature is None else f"{play.temperature:g}",
            "limits": f"{play.max_steps} steps in {play.seconds:g} s" if play.instructions else "",
            "environment": play.world,
        }
        for play in plays
    ]
    return {name: (said[0][name], said[1][name]) for name in said[0]}


def _diff(part: str, values: Sequence[tuple[str, str, str]]) -> list[BundleDifference]:
    return [BundleDifference(part, name, _kind(a, b), a, b) for name, a, b in values if a != b]


def _kind(before: str, after: str) -> Kind:
    return "added" if not before else "removed" if not after else "changed"


def _named(part: str, before: Mapping[str, str], after: Mapping[str, str]) -> list[BundleDifference]:
    gone = [BundleDifference(part, name, "removed", before[name] or name, "") for name in before if name not in after]
    new = [BundleDifference(part, name, "added", "", after[name] or name) for name in after if name not in before]
    return gone + new


def _granted(bundle: Bundle) -> dict[str, str]:
    return {f"{server.name}: {tool}": "" for server in bundle.servers for tool in server.tools}


def _texts(before: Sequence[Lesson], after: Sequence[Lesson]) -> list[BundleDifference]:
    old, new = ({lesson.handle: lesson for lesson in lessons} for lessons in (before, after))
    found = []
    for handle in dict.fromkeys([*old, *new]):
        a, b = old.get(handle), new.get(handle)
        part = "item" if (b or a).category else "lesson"  # type: ignore[union-attr]
        found.extend(_diff(part, [(handle, a.text if a else "", b.text if b else "")]))
    return found


def _rule(before: Bundle, after: Bundle) -> list[BundleDifference]:
    rules = [one.context.rule for one in (before, after)]
    stored = [None if rule is None else rule.as_json() for rule in rules]
    if stored[0] == stored[1]:
        return []
    texts = ["" if rule is None else f"chooses among {len(rule.handles)} lessons for each query" for rule in rules]
    return [
        BundleDifference(
            "rule", "lessons for each query", "changed", *(text or "all queries receive all lessons" for text in texts)
        )
    ]


def _sha256(bundle: Bundle) -> str:
    return "" if bundle.policy is None else bundle.policy.sha256


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
