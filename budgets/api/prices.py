"""REST: prices of models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.db.models import QuerySet
from django_filters import rest_framework as filters
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.lib.errors import Missing
from agentcore_site.rest.filters import Flag
from agentcore_site.rest.money import UsdIn
from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.views import ScopedViewSet
from agentcore_site.tenancy.permissions import current_organization, require
from budgets.models import ModelPrice
from budgets.presenters.price_list import prices_in_force, prices_of
from budgets.presenters.shapes import PriceOut
from budgets.services import price_set


class TokenRatesIn(Strict):
    """Per million tokens; what is left out is priced as the prompt or the answer."""

    cache_write_usd = UsdIn(required=False, help_text="Prompt tokens that are written to the cache.")
    cache_write_1h_usd = UsdIn(required=False, help_text="Those that stay in the cache for an hour.")
    audio_input_usd = UsdIn(required=False)
    image_input_usd = UsdIn(required=False)
    reasoning_usd = UsdIn(required=False)
    audio_output_usd = UsdIn(required=False)
    image_output_usd = UsdIn(required=False)

    def to_internal_value(self, data: Any) -> Any:
        return _micros(super().to_internal_value(data))


class PriceTierIn(Strict):
    """Prices of calls whose prompt has more than ``above_tokens`` tokens."""

    above_tokens = serializers.IntegerField(min_value=1, max_value=10**9)
    input_usd = UsdIn()
    output_usd = UsdIn()
    cached_input_usd = UsdIn(required=False)
    rates = TokenRatesIn(required=False)

    def to_internal_value(self, data: Any) -> Any:
        found = _micros(super().to_internal_value(data))
        cached = {name: found.pop(name) for name in ("cached_input_micros",) if name in found}
        return found | {"rates": dict(found.get("rates") or {}) | cached}


def _micros(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("_usd", "_micros"): value for name, value in values.items()}


class PriceIn(Strict):
    model = serializers.CharField(max_length=200)
    free = serializers.BooleanField(default=False, help_text="Its calls are counted and cost nothing.")
    input_usd = UsdIn(required=False, help_text="Per million prompt tokens; needed unless the model is free.")
    cached_input_usd = UsdIn(required=False, allow_null=True, help_text="Of cached ones; null: priced as input.")
    output_usd = UsdIn(required=False, help_text="Per million answer tokens; needed unless the model is free.")
    per_call_usd = UsdIn(default=0, help_text="For each call.")
    rates = TokenRatesIn(required=False, help_text="Of other kinds of tokens; omitted: as they are in force.")
    tiers = PriceTierIn(
        many=True, required=False, help_text="Of long prompts; omitted: as they are in force, []: none."
    )
    valid_from = serializers.DateField(required=False, help_text="From today on, unless given.")
    price_source = serializers.CharField(
        max_length=200, required=False, allow_blank=True, help_text="Where the price is published."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        missing = [name for name in ("input_usd", "output_usd") if not attrs["free"] and name not in attrs]
        if missing:
            raise serializers.ValidationError(dict.fromkeys(missing, "Give a price, or say that the model is free."))
        return attrs


class PriceFilters(filters.FilterSet):
    model = filters.CharFilter(help_text="One model, by its whole name.")
    search = filters.CharFilter(field_name="model", lookup_expr="icontains", help_text="Text in the model's name.")
    history = Flag(method="as_it_is", help_text="Past and future prices too, not only those in force today.")

    class Meta:
        model = ModelPrice
        fields: list[str] = []

    def as_it_is(self, rows: QuerySet[ModelPrice], name: str, value: Any) -> QuerySet[ModelPrice]:
        return rows  # the view has chosen the rows by it


OWN_PRICE: Final = OpenApiExample(
    "An own price",
    {"model": "gpt-4o-mini", "input_usd": 0.15, "cached_input_usd": 0.075, "output_usd": 0.6},
    request_only=True,
)


SELF_HOSTED: Final = OpenApiExample("A model of your own", {"model": "qwen-local", "free": True}, request_only=True)


class PriceViewSet(ScopedViewSet):
    queryset = ModelPrice.objects.none()
    tag = "prices"
    serializer_class = PriceOut
    filterset_class = PriceFilters
    orderings = {"model": "model", "valid_from": "valid_from"}
    tiebreak = "id"
    lookup_value_converter = "int"

    @extend_schema(summary="Prices of models")
    def list(self, request: Request) -> Response:
        organization = current_organization(self.actor)
        require(self.actor, "budget.view", organization)
        everything = request.query_params.get("history", "").strip().lower() in {"true", "1"}
        rows = (prices_of if everything else prices_in_force)(self.actor, organization.id)
        return self.page(rows, PriceOut)

    @extend_schema(summary="One price")
    def retrieve(self, request: Request, pk: int) -> Response:
        organization = current_organization(self.actor)
        require(self.actor, "budget.view", organization)
        row = prices_of(self.actor, organization.id).filter(id=pk).first()
        if row is None:
            raise Missing("There is no such price.")
        return self.answer(row)

    @extend_schema(
        summary="Set your organisation's price of a model", request=PriceIn, examples=[OWN_PRICE, SELF_HOSTED]
    )
    def create(self, request: Request) -> Response:
        """The same day corrects its price; another day is another row."""
        organization = current_organization(self.actor)
        require(self.actor, "price.edit", organization)
        asked = parsed(PriceIn, request.data)
        values = {name.removeprefix("price_"): value for name, value in _micros(asked).items()}
        return self.made(request, lambda: price_set(self.actor, organization=organization, **values))
