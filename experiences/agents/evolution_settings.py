"""Settings of a playbook's evolution: the agent's own within the site's.

Each setting of the site (``ACE_...``) is the default of an agent that has none of its own. Three are limits as well: an
agent may ask for more confidence, fewer items and less money than the site, never the other way round. The model that
suggests changes, the number of executions between two evolutions and the rounds of reflection are free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from django.conf import settings

from experiences.learning.playbooks.leave_out import MOST
from experiences.models import Agent

MOST_EXECUTIONS = 100_000
MOST_ROUNDS = 5  # of reflection


@dataclass(frozen=True, slots=True)
class EvolutionSettings:
    """Evolution settings of one agent. ``delta_model`` "" is the agent's own model; ``frequency`` counts executions;
    ``reflection_rounds`` 0: changes are suggested without a reflector."""

    enabled: bool
    delta_model: str
    min_confidence: float
    review_confidence: float
    max_sections: int
    frequency: int
    reflection_rounds: int
    monthly_budget_usd: float


def evolution_settings(agent: Agent) -> EvolutionSettings:
    """The agent's settings where it has them, else the site's; never beyond the site's limits."""
    limit, own = settings.ACE_MONTHLY_BUDGET_USD, agent.ace_monthly_budget_usd
    rounds = agent.ace_reflection_rounds
    confidence = max(settings.ACE_MIN_CONFIDENCE, agent.ace_min_confidence or 0.0)
    return EvolutionSettings(
        enabled=settings.ACE_ENABLED and agent.evolves,
        delta_model=agent.ace_delta_model or settings.ACE_DELTA_MODEL,
        min_confidence=confidence,
        review_confidence=min(settings.ACE_REVIEW_CONFIDENCE, confidence),
        max_sections=min(settings.ACE_MAX_SECTIONS, agent.ace_max_sections or settings.ACE_MAX_SECTIONS),
        frequency=agent.ace_evolution_frequency or settings.ACE_EVOLUTION_FREQUENCY,
        reflection_rounds=settings.ACE_REFLECTION_ROUNDS if rounds is None else rounds,
        monthly_budget_usd=limit if own is None else min(limit, own),
    )


def evolution_settings_faults(agent: Agent) -> dict[str, str]:
    """Faults of the agent's own settings, by field; empty if there are none."""
    ranges: dict[str, tuple[float, float, str]] = {
        "ace_min_confidence": (settings.ACE_MIN_CONFIDENCE, 1, "ACE_MIN_CONFIDENCE"),
        "ace_max_sections": (1, settings.ACE_MAX_SECTIONS, "ACE_MAX_SECTIONS"),
        "ace_evolution_frequency": (1, MOST_EXECUTIONS, ""),
        "ace_reflection_rounds": (0, MOST_ROUNDS, ""),
        "ace_monthly_budget_usd": (0, settings.ACE_MONTHLY_BUDGET_USD, "ACE_MONTHLY_BUDGET_USD"),
        "leave_out_rate": (0, MOST, ""),
    }
    found = {}
    for name, (low, high, limit) in ranges.items():
        value = getattr(agent, name)
        if value is not None and not (math.isfinite(value) and low <= value <= high):
            why = f"; the site's {limit} is the limit" if limit else ""
            found[name] = f"{name} must be between {low:g} and {high:g}{why}; got {value:g}."
    return found
