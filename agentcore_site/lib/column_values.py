"""JSON values from outside, as columns compare them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import Field

from agentcore_site.lib.storable import in_utc, unstorable


def as_column(field: Field[Any, Any], value: Any) -> Any:
    """A JSON value from outside, converted for comparison with a column.

    Raises:
        ValueError, TypeError, ValidationError: it can't be converted.
    """
    if reason := unstorable(value):
        raise ValueError(reason)
    found = field.to_python(value)
    if isinstance(found, datetime):
        return in_utc(found)
    field.run_validators(found)  # the range of a whole number
    return found
