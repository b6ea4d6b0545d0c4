"""The cost of spans to a run: the share of its time that making them takes. Its model answers
within 50 ms, ten times sooner than the quickest services; with one that answers at once it is 4 to 5 %."""

from __future__ import annotations

import time
from statistics import median
from types import SimpleNamespace
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from experiences.rollouts.types import Step
from tests.performance.table import Figure, at_most
from tests.support.context_runs import learned
from tests.support.simulated_model import simulated_server
from tests.support.world import World
from training.services.spans import RunSpans

CONFIG: dict[str, Any] = {
    "n_iterations": 8, "batch_size": 8, "n_trajectories_per_query": 6, "eval_interval": 4, "eval_samples": 4,
    "early_stopping": {"enabled": False},
}  # fmt: skip
LATENCY = 0.05
CALLS = 3  # of tools, that each rollout is given: the simulated model itself calls none


def spans() -> list[Figure]:
    world = World(7)
    with simulated_server(world, latency_s=LATENCY) as server:
        shares, each = zip(*(share(server.base_url, world, seed) for seed in range(3)), strict=True)
    return [
        at_most("X4", "spans of a run, of its time", 100 * median(shares), 5, "%"),
        at_most("X4", "one span", 1000 * median(each), 0.5, "ms", digits=3),
    ]


def share(base_url: str, world: World, seed: int) -> tuple[float, float]:
    """(share of the run's time, seconds of one span)."""
    began = time.perf_counter()
    finished = learned(base_url, world.rows(100, seed), CONFIG, seed=seed)
    took = time.perf_counter() - began
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=16_384))
    run: Any = SimpleNamespace(
        policy_kind="llm",
        job_id="bench",
        agent=SimpleNamespace(slug="bench"),
        config={"algorithm": "grpo", "n_trajectories_per_query": 6},
    )
    made = RunSpans.of(run, provider.get_tracer("bench"))
    for report in finished.reports:
        for group in report.groups:
            for one in group.trajectories:
                one.steps += [_tool_call(one.started_at)] * CALLS
    spent = time.perf_counter()
    for answered in finished.answered:
        made.asked(answered)
    for report in finished.reports:
        made.iteration(report)
    spent = time.perf_counter() - spent
    provider.shutdown()
    return spent / took, spent / len(exporter.get_finished_spans())


def _tool_call(at: float) -> Step:
    return Step({}, {"type": "tool", "tool": "calc"}, {"success": True}, timestamp=at, duration_ms=1.0, cost_micros=5)
