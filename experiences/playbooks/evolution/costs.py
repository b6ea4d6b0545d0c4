"""The most that an evolution may cost: its reflector's rounds and the question that suggests changes."""

from __future__ import annotations

from typing import Final

from agentcore_site.lib.errors import Unavailable
from budgets.meter_port import UnknownPrice
from budgets.metering.price_book import DatabasePriceBook
from budgets.pricing import worst_case_micros
from experiences.agents.endpoint_config import (
    BadEndpoint,
    endpoint_of_agent,
    endpoint_of_reflector,
    has_reflector,
)
from experiences.agents.evolution_settings import evolution_settings
from experiences.models import Agent

PROMPT_TOKENS: Final = 8_000  # of a question, about
MAX_TOKENS: Final = 2_048  # of its answer


def evolution_worst_case_micros(agent: Agent) -> int:
    """With every round of reflection, and no answer that has to be repaired.

    Raises:
        Unavailable: there is no model to ask, or it has no price.
    """
    try:
        models = evolution_models(agent)
        prices = DatabasePriceBook.load(agent.organization_id)
        each = [prices.price(model) for model in models]
    except (BadEndpoint, UnknownPrice) as error:
        raise Unavailable(f"There is no model that evolution can ask: {error}") from error
    return sum(worst_case_micros(price, prompt_tokens=PROMPT_TOKENS, max_tokens=MAX_TOKENS) for price in each)


def evolution_models(agent: Agent) -> list[str]:
    """The model of each question that an evolution may ask: one for each round of reflection, and the one that suggests
    changes.

    Raises:
        BadEndpoint: an endpoint can't be used.
    """
    own = evolution_settings(agent)
    curator = own.delta_model or endpoint_of_agent(agent).model
    if not own.reflection_rounds:
        return [curator]
    reflector = endpoint_of_reflector(agent).model if has_reflector(agent) else curator
    return [reflector] * own.reflection_rounds + [curator]
