"""Production traces and their feedback as pages show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rest_framework import serializers

from agentcore_site.lib.money import dollars
from agentcore_site.rest.shapes import Shape
from agentcore_site.tenancy.actors import Actor
from evaluation.serving.feedback.opinions import ABANDONED, COMMENT, CORRECTION, IMPLICIT, RETRIED, STARS, THUMBS
from evaluation.serving.feedback.services import giver_of
from evaluation.serving.models import ArmName, Feedback, ProductionTrace, TraceStatus, text_of

MARKS: Final = {
    TraceStatus.OK: ("check", "good"),
    TraceStatus.REFUSED: ("stopped", "warn"),
    TraceStatus.FAILED: ("cross", "bad"),
    TraceStatus.INTERRUPTED: ("alert", "warn"),
}
SIGNALS: Final = {RETRIED: "asked again", ABANDONED: "abandoned"}
PARTS: Final = {
    "completion": "Completion",
    "efficiency": "Efficiency",
    "code_quality": "Code quality",
    "feedback": "Feedback",
}


@dataclass(frozen=True, slots=True)
class ShownOpinion:
    """One feedback in words; ``tone`` is good, bad or "". ``mine``: its reader may take it back."""

    row: Feedback
    text: str
    tone: str
    by: str
    mine: bool = False


@dataclass(frozen=True, slots=True)
class ShownTrace:
    """A trace as a list and its page show it, to a reader who may give feedback or not."""

    row: ProductionTrace
    icon: str
    tone: str
    release: int | None
    may_give: bool
    opinions: list[ShownOpinion] = field(default_factory=list)

    @property
    def mine(self) -> dict[str, ShownOpinion]:
        """The viewer's feedback, by metric."""
        return {opinion.row.metric: opinion for opinion in self.opinions if opinion.mine}

    @property
    def thumb(self) -> float | None:
        """The viewer's thumb."""
        mine = self.mine.get(THUMBS)
        return mine.row.value if mine else None

    @property
    def tags(self) -> list[ShownOpinion]:
        """The feedback of others and of rules, and the viewer's own except thumbs, which the buttons show."""
        return [opinion for opinion in self.opinions if not (opinion.mine and opinion.row.metric == THUMBS)]


def shown_traces(actor: Actor, rows: Sequence[ProductionTrace], numbers: Mapping[Any, int]) -> list[ShownTrace]:
    given = Feedback.objects.filter(trace__in=rows).select_related("user").order_by("id")
    who, giver, by_trace = Actor.of(actor), giver_of(actor), dict[Any, list[ShownOpinion]]()
    for one in given:
        by_trace.setdefault(one.trace_id, []).append(_opinion(one, giver))
    return [
        ShownTrace(
            row,
            *MARKS[TraceStatus(row.status)],
            numbers.get(row.release_id) if row.release_id else None,
            who.may("feedback.give", row.organization_id),
            by_trace.get(row.pk, []),
        )
        for row in rows
    ]


def _opinion(row: Feedback, giver: str) -> ShownOpinion:
    text, tone = _text_and_tone(row)
    by = "a rule" if row.metric in IMPLICIT else row.user.username if row.user else "former member"
    if row.giver.startswith("key "):
        by = f"{row.giver}… of {by}"
    return ShownOpinion(row, text, tone, by, row.giver == giver)


def _text_and_tone(row: Feedback) -> tuple[str, str]:
    if row.metric in SIGNALS:
        return SIGNALS[row.metric], "bad"
    if row.metric == CORRECTION:
        return "corrected", "bad"
    if row.metric == COMMENT or row.value is None:
        return row.metric, ""
    if row.metric == THUMBS:
        return ("thumbs up", "good") if row.value else ("thumbs down", "bad")
    if row.metric == STARS:
        tone = "good" if row.value >= 4 else "bad" if row.value <= 2 else ""
        return f"{row.value:.0f} of 5 stars", tone
    return f"{row.metric.replace('_', ' ')} {row.value:g}", ""


@dataclass(frozen=True, slots=True)
class RewardPart:
    """A component of an answer's reward; None where it was not measured or not worked out."""

    title: str
    raw: float | None
    z: float | None
    weight: float | None
    paid: float | None


def parts_of(trace: ProductionTrace) -> list[RewardPart]:
    stored = trace.components
    columns = [stored.get(name, {}) for name in ("raw", "normalised", "weights", "parts")]
    return [RewardPart(title, *(column.get(name) for column in columns)) for name, title in PARTS.items()]


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """``calls``: of tools, as (name, arguments)."""

    role: str
    text: str
    calls: list[tuple[str, Any]]


def conversation(trace: ProductionTrace) -> list[ShownMessage]:
    """The request, message by message, the steps that the agent took, and the answer; empty if the agent may not be
    recorded."""
    said = [_message(message) for message in trace.messages if isinstance(message, dict)]
    if not trace.response:
        return said
    steps = trace.response.get("agentcore_steps") or [{}]
    if trace.status != TraceStatus.OK and "content" not in trace.response:
        return [*said, *map(_step, steps)]
    *steps, _ = steps  # the last one is the answer
    return [*said, *map(_step, steps), _message({"role": "assistant", **trace.response})]


def _step(given: Mapping[str, Any]) -> ShownMessage:
    action, result = given.get("action", {}), given.get("result", {})
    calls = [(str(action["tool"]), action.get("parameters"))] if action.get("tool") else []
    return ShownMessage(str(action.get("type", "")), str(result.get("output") or result.get("error") or ""), calls)


def _message(given: Mapping[str, Any]) -> ShownMessage:
    called = [one.get("function", one) for one in given.get("tool_calls") or [] if isinstance(one, dict)]
    calls = [(str(one.get("name", "")), one.get("arguments")) for one in called if isinstance(one, dict)]
    return ShownMessage(str(given.get("role", "")), text_of(given), calls)


def verdict_of(trace: ShownTrace) -> tuple[str, str]:
    """In a sentence: what came of it, by which release, and what was thought of it; and its tone."""
    row = trace.row
    who = f"release {trace.release}" if trace.release else row.model
    arm = f", the {row.get_arm_display().lower()} arm" if row.arm else ""
    if row.status != TraceStatus.OK:
        ended = row.get_status_display()
        text = f"{ended} by {who}{arm}." if row.status == TraceStatus.REFUSED else f"{ended}: no answer of {who}{arm}."
        return text, trace.tone
    thought = ", ".join(dict.fromkeys(opinion.text for opinion in trace.opinions))
    tones = {opinion.tone for opinion in trace.opinions}
    text = thought.capitalize() if thought else "Nothing was said of it yet"
    return f"Answered by {who}{arm}. {text}.", next((tone for tone in ("bad", "good") if tone in tones), "")


class ProductionTraceRow(Shape):
    id = serializers.UUIDField(help_text="The `x-agentcore-trace-id` of the answer.")
    agent_id = serializers.UUIDField(allow_null=True, help_text="Null where a model was called by its own name.")
    agent = serializers.CharField(allow_null=True, source="agent.slug", help_text="The agent's slug.")
    release_id = serializers.UUIDField(allow_null=True)
    deployment_id = serializers.UUIDField(allow_null=True)
    arm = serializers.ChoiceField(choices=ArmName.choices, allow_blank=True)
    session = serializers.CharField(help_text="As the caller named it.")
    model = serializers.CharField()
    status = serializers.ChoiceField(choices=TraceStatus.choices)
    http_status = serializers.IntegerField()
    error = serializers.CharField()
    finish_reason = serializers.CharField()
    streamed = serializers.BooleanField()
    input_tokens = serializers.IntegerField()
    output_tokens = serializers.IntegerField()
    cost_usd = serializers.FloatField()
    duration_ms = serializers.FloatField()
    first_token_ms = serializers.FloatField(allow_null=True)
    safety = serializers.IntegerField(allow_null=True, help_text="Findings in the answer; null: not checked.")
    reward = serializers.FloatField(allow_null=True, help_text="Null until it was worked out, and where there is none.")
    created_at = serializers.DateTimeField()

    computed = {"cost_usd": lambda trace: dollars(trace.cost_micros)}
