"""Budgets and prices as programs read them."""

from __future__ import annotations

from datetime import date

from rest_framework import serializers

from agentcore_site.rest.money import Money
from agentcore_site.rest.shapes import Shape
from budgets.models import Budget, Period, Scope


class BudgetOut(Shape):
    """``left`` is the limit less what is spent, on hold and owed; null without a limit."""

    id = serializers.IntegerField()
    scope = serializers.ChoiceField(choices=Scope.choices)
    owner_id = serializers.UUIDField(help_text="Of the organisation, the agent or the job.")
    agent_id = serializers.UUIDField(allow_null=True)
    job_id = serializers.UUIDField(allow_null=True)
    period = serializers.ChoiceField(choices=Period.choices)
    period_start = serializers.SerializerMethodField(help_text="First day of the month (UTC); null for a total.")
    limit = Money(allow_null=True, help_text="Null: not limited.")
    spent = Money()
    reserved = Money(help_text="On hold for calls that are under way.")
    debt = Money(help_text="Owed: what calls cost beyond their holds and the limit had no room for.")
    left = Money(allow_null=True)
    created_at = serializers.DateTimeField()

    def get_period_start(self, row: Budget) -> date | None:
        return row.period_start if row.period == Period.MONTH else None


class TokenRatesOut(Shape):
    """Prices of other kinds of tokens, per million; null: as the prompt or the answer."""

    cache_write = Money(allow_null=True, help_text="Prompt tokens that are written to the cache.")
    cache_write_1h = Money(allow_null=True, help_text="Those that stay in the cache for an hour.")
    audio_input = Money(allow_null=True)
    image_input = Money(allow_null=True)
    reasoning = Money(allow_null=True)
    audio_output = Money(allow_null=True)
    image_output = Money(allow_null=True)


class PriceTierOut(Shape):
    """Prices of calls whose prompt has more than ``above_tokens`` tokens: of all their tokens."""

    above_tokens = serializers.IntegerField()
    input = Money()
    cached_input = Money(allow_null=True, source="rates.cached_input_micros")
    output = Money()
    rates = TokenRatesOut()


class PriceOut(Shape):
    """Prices are per million tokens."""

    id = serializers.IntegerField()
    model = serializers.CharField()
    own = serializers.BooleanField(read_only=True, help_text="Your organisation's own; else it is for all.")
    valid_from = serializers.DateField()
    free = serializers.BooleanField()
    input = Money()
    cached_input = Money(allow_null=True, help_text="Null: priced as input.")
    output = Money()
    per_call = Money()
    rates = TokenRatesOut()
    tiers = PriceTierOut(many=True, help_text="Prices of long prompts.")
    price_source = serializers.CharField(source="source")
    updated_at = serializers.DateTimeField()

    computed = {
        "own": lambda price: price.organization_id is not None,
        "rates": lambda price: price.value().rates,
        "tiers": lambda price: price.value().tiers,
    }
