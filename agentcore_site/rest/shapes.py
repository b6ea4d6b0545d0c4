"""REST shapes that are declared once: fields, and beside them what the row has no attribute for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, ClassVar

from rest_framework import serializers
from rest_framework.fields import empty

from agentcore_site.rest.money import Money


# A comment, since OpenAPI would describe every shape by a docstring: a serializer whose fields are attributes of the
# row, but for those in ``computed``. Unlike a ``SerializerMethodField`` such a field keeps its type and its help text.
class Shape(serializers.Serializer[Any]):
    computed: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    part_of: ClassVar[tuple[type[Shape], str] | None] = None  # a shape, and names: its fields of these names, in order

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        declared, cls._declared_fields = cls._declared_fields, {}
        for name, field in declared.items():
            cls._declared_fields |= field.named(name) if isinstance(field, Money) else {name: field}
        if cls.part_of:
            (whole, text), own, cls.part_of = cls.part_of, cls._declared_fields, None
            names, computed = text.split(), {**whole.computed, **cls.computed}
            cls._declared_fields = {name: (whole._declared_fields | own)[name] for name in names}
            cls.computed = {name: computed[name] for name in names if name in computed}

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        fields = super().get_fields()
        dotted = {
            name: attrgetter(field.source)  # three times as fast as the framework's, which looks for keys and calls too
            for name, field in fields.items()
            if field.source and "." in field.source and not field.allow_null and field.default is empty
        }
        for name, read in (dotted | {**self.computed}).items():
            fields[name].get_attribute = read  # type: ignore[method-assign,assignment]
        return fields
