"""Production traces with what people thought of them, for learning loops."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentcore_site.ids import uuid7
from evaluation.serving.models import Feedback, ProductionTrace
from experiences.models import Agent


def judged(agent: Agent, said: Iterable[tuple[str, str]], *, giver: str = "", **more: Any) -> list[ProductionTrace]:
    """One trace for each (question, answer), liked; ``giver`` "": another person each."""
    traces = [
        ProductionTrace(
            id=uuid7(),
            organization=agent.organization,
            agent=agent,
            arm="current",
            session=f"session {number}",
            model="small",
            request={"messages": [{"role": "user", "content": query}]},
            response={"role": "assistant", "content": answer},
            status="ok",
            cost_micros=20,
            **more,
        )
        for number, (query, answer) in enumerate(said)
    ]
    ProductionTrace.objects.bulk_create(traces)
    Feedback.objects.bulk_create(
        Feedback(
            organization=agent.organization, trace=one, metric="thumbs", value=1.0, giver=giver or f"person {number}"
        )
        for number, one in enumerate(traces)
    )
    return traces
