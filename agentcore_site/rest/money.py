"""Money in REST: dollars outside, exact to a micro-dollar, and integer micro-dollars inside."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from agentcore_site.lib.money import dollars, micros


@extend_schema_field(float)
class Usd(serializers.Field):  # type: ignore[type-arg]
    """Integer micro-dollars, shown as dollars."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(read_only=True, **kwargs)

    def to_representation(self, value: int) -> float:
        return dollars(value)


class Money(serializers.Field):  # type: ignore[type-arg]
    """Two fields of a ``Shape`` for an attribute of micro-dollars: ``<name>_usd`` and ``<name>_micros``.

    The attribute is ``<name>_micros`` too, unless ``source`` is another one.
    """

    def named(self, name: str) -> dict[str, Any]:
        plain: dict[str, Any] = {"allow_null": self.allow_null}
        usd = Usd(source=self.source or f"{name}_micros", help_text=self.help_text, **plain)
        return {f"{name}_usd": usd, f"{name}_micros": serializers.IntegerField(source=self.source, **plain)}


class UsdIn(serializers.DecimalField):
    """Dollars with at most six decimals, as integer micro-dollars."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_digits=15, decimal_places=6, min_value=0, **kwargs)

    def to_internal_value(self, data: Any) -> Any:
        return micros(super().to_internal_value(data))

    def run_validation(self, data: Any = serializers.empty) -> Any:
        if isinstance(data, bool):
            raise serializers.ValidationError("A valid number is required.")
        return super().run_validation(data)
