"""OpenTelemetry spans of a run of a language model: iteration, reflection, question, tool call.

Spans are made from the record after their iteration is committed, with the recorded times. Rollouts carry no extra
data, an iteration that was discarded leaves no span, and without a collector nothing is done.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from opentelemetry.context import Context
from opentelemetry.trace import Span, Tracer, set_span_in_context

from agentcore_site.lib import trace_context
from agentcore_site.lib.money import dollars
from agentcore_site.telemetry import inside as inside_trace
from agentcore_site.telemetry import tracer
from experiences.rollouts.structured_output import ModelAnswer
from experiences.rollouts.types import Step
from training.models import TrainingRun
from training.trainer import IterationReport

NANO = 1_000_000_000


@dataclass
class RunSpans:
    """The spans of one run. ``tracer`` None makes none; ``every`` are attributes of all of them."""

    tracer: Tracer | None
    every: Mapping[str, Any]
    _asked: list[tuple[float, ModelAnswer]] = field(default_factory=list)

    @classmethod
    def of(cls, run: TrainingRun, by: Tracer | None = None) -> Self:
        """Agents that choose actions make a thousand rollouts a second: their runs make no spans."""
        listening = (by or tracer()) if run.calls_model else None
        return cls(
            listening,
            {
                "job_id": str(run.job_id),
                "agent": run.agent.slug,
                "algorithm": run.configuration.algorithm,
                "group_size": run.configuration.n_trajectories_per_query,
            },
        )

    def asked(self, answered: ModelAnswer) -> None:
        """Called as each question of reflection is answered."""
        if self.tracer is not None:
            self._asked.append((time.time(), answered))

    def iteration(self, report: IterationReport) -> None:
        """Called when an iteration is committed."""
        if self.tracer is None:
            return
        asked, self._asked = self._asked, []
        ended, worked = time.time(), report.rollout_seconds + report.update_seconds
        rollouts = [trajectory for group in report.groups for trajectory in group.trajectories]
        every = {**self.every, "tfgrpo_epoch": report.epoch, "iteration": report.iteration}
        own = {
            "tool_cost_usd": dollars(sum(trajectory.cost_micros for trajectory in rollouts)),
            "latency_ms": 1e3 * worked,
            "rollouts": len(rollouts),
            "success_rate": float(report.metrics.get("success_rate", 0.0)),
        }
        began = min(
            [ended - worked, *(trajectory.started_at for trajectory in rollouts)]
        )  # some were kept from before a crash
        span = self._span("iteration", began, inside_trace(trace_context.current()), every | own)
        inside = set_span_in_context(span, Context())
        for rollout in rollouts:
            for step in rollout.steps:
                if step.action.get("type") == "tool":
                    self._tool(step, inside, every)
        if asked:
            self._reflection(asked, inside, every)
        span.end(int(ended * NANO))

    def _tool(self, step: Step, inside: Context, every: dict[str, Any]) -> None:
        name = str(step.action.get("tool") or "")
        own = {
            "tool": name,
            "tool_cost_usd": dollars(step.cost_micros),
            "latency_ms": step.duration_ms,
            "tokens": step.tokens,
            "success": bool(step.result.get("success")),
        }
        span = self._span(f"tool {name}", step.timestamp, inside, every | own)
        span.end(int((step.timestamp + step.duration_ms / 1e3) * NANO))

    def _reflection(self, asked: list[tuple[float, ModelAnswer]], inside: Context, every: dict[str, Any]) -> None:
        began = min(at - _seconds(one) for at, one in asked)
        ended = max(at for at, _ in asked)
        own = {
            "questions": len(asked),
            "tool_cost_usd": dollars(sum(one.cost_micros for _, one in asked)),
            "latency_ms": 1e3 * (ended - began),
        }
        span = self._span("reflection", began, inside, every | own)
        of_it = set_span_in_context(span, Context())
        for at, one in asked:
            self._question(at, one, of_it, every)
        span.end(int(ended * NANO))

    def _question(self, at: float, answer: ModelAnswer, inside: Context, every: dict[str, Any]) -> None:
        own = {
            "stage": answer.stage,
            "usable": answer.usable,
            "repaired": answer.repaired,
            "tokens": answer.tokens,
            "tool_cost_usd": dollars(answer.cost_micros),
            "latency_ms": answer.latency_ms,
            "own_ms": answer.own_ms,
        }
        span = self._span(f"question {answer.stage}", at - _seconds(answer), inside, every | own)
        span.end(int(at * NANO))

    def _span(self, name: str, began: float, inside: Context, attributes: Mapping[str, Any]) -> Span:
        assert self.tracer is not None
        return self.tracer.start_span(name, context=inside, start_time=int(began * NANO), attributes=attributes)


def _seconds(answer: ModelAnswer) -> float:
    return (answer.latency_ms + answer.own_ms) / 1e3
