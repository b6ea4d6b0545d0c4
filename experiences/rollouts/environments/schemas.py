"""Untrusted JSON schemas on untrusted answers: each check has a time limit."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import jsonschema  # type: ignore[import-untyped]

from experiences.rollouts.environments.references import references_check
from experiences.rollouts.environments.safe_regex import Search, TooSlow, compiled

CHECK_SECONDS: Final = 0.25  # of the event loop's time

Keyword = Callable[[Any, Any, Any, Any], Iterable[Any] | None]
_known = lru_cache(maxsize=1_000)(compiled)


class Schema:
    """A checked schema. ``accepts`` says whether a JSON value fits.

    Raises:
        ValueError: the schema is faulty, or can't be checked here. The message is for the row's author.
    """

    def __init__(self, schema: Any) -> None:
        try:
            jsonschema.Draft202012Validator.check_schema(schema)
        except jsonschema.SchemaError as error:
            raise ValueError(f"its JSON schema is faulty: {error.message}.") from None
        parts = list(_objects(schema))
        for part in parts:
            _check(part)
        references_check(schema, parts)
        if any("unevaluatedProperties" in part for part in parts) and any(
            "patternProperties" in part for part in parts
        ):
            raise ValueError("its JSON schema has unevaluatedProperties beside patternProperties; use one of them.")
        self._ends = 0.0
        ours = {
            "pattern": self._pattern,
            "patternProperties": self._pattern_properties,
            "additionalProperties": self._additional_properties,
            "uniqueItems": self._unique_items,
        }
        keywords = {**jsonschema.Draft202012Validator.VALIDATORS, **ours}
        made = jsonschema.validators.extend(
            jsonschema.Draft202012Validator, {name: self._in_time(keyword) for name, keyword in keywords.items()}
        )
        self._validator = made(schema)

    def accepts(self, value: Any) -> bool:
        """Raises TooSlow."""
        self._ends = time.monotonic() + CHECK_SECONDS
        try:
            return bool(self._validator.is_valid(value))
        except RecursionError:
            raise TooSlow("the answer is nested too deeply for its JSON schema") from None

    def _in_time(self, keyword: Keyword) -> Keyword:
        def checked(validator: Any, value: Any, instance: Any, schema: Any) -> Iterable[Any] | None:
            self._left()
            return keyword(validator, value, instance, schema)

        return checked

    def _left(self) -> float:
        left = self._ends - time.monotonic()
        if left <= 0:
            raise TooSlow("the JSON schema takes too long on this answer")
        return left

    def _pattern(self, validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
        if isinstance(instance, str) and not _known(pattern)(instance, self._left()):
            yield jsonschema.ValidationError("a text does not match its pattern")

    def _pattern_properties(
        self, validator: Any, patterns: Mapping[str, Any], instance: Any, schema: Any
    ) -> Iterator[Any]:
        if not isinstance(instance, dict):
            return
        for pattern, part in patterns.items():
            search = _known(pattern)
            for name, value in instance.items():
                if search(name, self._left()):
                    yield from validator.descend(value, part, path=name, schema_path=pattern)

    def _additional_properties(
        self, validator: Any, allowed: Any, instance: Any, schema: Mapping[str, Any]
    ) -> Iterator[Any]:
        if not isinstance(instance, dict):
            return
        named = schema.get("properties", {})
        searches: list[Search] = [_known(pattern) for pattern in schema.get("patternProperties", {})]
        for name, value in instance.items():
            if name not in named and not any(search(name, self._left()) for search in searches):
                yield from validator.descend(value, allowed, path=name)

    def _unique_items(self, validator: Any, wanted: bool, instance: Any, schema: Any) -> Iterator[Any]:
        """In linear time: the package compares every pair of items that can't be sorted."""
        if wanted and isinstance(instance, list):
            written = [json.dumps(_as_compared(one), sort_keys=True) for one in instance]
            if len(set(written)) < len(written):
                yield jsonschema.ValidationError("an item occurs twice")


def _as_compared(value: Any) -> Any:
    """A value of JSON so that equal ones are written alike: 1.0 is 1, and true is not."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_as_compared(one) for one in value]
    if isinstance(value, dict):
        return {name: _as_compared(one) for name, one in value.items()}
    return value


def _objects(schema: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(schema, Mapping):
        yield schema
    if isinstance(schema, Mapping | list):
        for part in schema.values() if isinstance(schema, Mapping) else schema:
            yield from _objects(part)


def _check(part: Mapping[str, Any]) -> None:
    """Raises ValueError: it refers to another document, or has a faulty pattern."""
    for key in ("$ref", "$dynamicRef"):
        if isinstance(part.get(key), str) and not part[key].startswith("#"):
            raise ValueError("its JSON schema refers to another document; only references within it (#/...) work.")
    patterns = part.get("patternProperties")
    written = [part.get("pattern"), *(patterns if isinstance(patterns, Mapping) else ())]
    for pattern in written:
        if isinstance(pattern, str):
            _known(pattern)
