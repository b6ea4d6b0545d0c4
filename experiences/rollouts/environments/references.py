"""References within a JSON schema: each leads somewhere, and none in a circle that reads nothing of the value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

# Keywords whose schemas are applied to the very same value.
_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SINGLE: Final = ("not", "if", "then", "else")
_REFERENCES: Final = ("$ref", "$dynamicRef")

Part = Mapping[str, Any]


def references_check(schema: Any, parts: Sequence[Part]) -> None:
    """``parts`` are all objects within ``schema``.

    Raises:
        ValueError: a reference leads nowhere or in a circle, or an inner schema has an address of its own. The message
            is for the row's author.
    """
    if any(isinstance(part.get("$id"), str) for part in parts if part is not schema):
        raise ValueError("its JSON schema has $id inside; give inner schemas in $defs, without one.")
    resolve = _Resolver(schema)
    targets = {id(part): list(_same_value(part, resolve)) for part in parts}
    done: set[int] = set()
    for part in parts:
        _walk(id(part), targets, done)


class _Resolver:
    def __init__(self, schema: Any) -> None:
        address = schema.get("$id", "") if isinstance(schema, Mapping) else ""
        resource = DRAFT202012.create_resource(schema)
        self._resolver = Registry().with_resource(address, resource).resolver(address)  # type: ignore[var-annotated]

    def __call__(self, reference: str) -> Any:
        try:
            return self._resolver.lookup(reference).contents
        except Unresolvable:
            raise ValueError(f"its JSON schema refers to {reference[:60]!r}, which is not in it.") from None


def _same_value(part: Part, resolve: _Resolver) -> Iterator[int]:
    """The schemas that a schema applies to the value that it is itself applied to."""
    found: list[Any] = [resolve(part[key]) for key in _REFERENCES if isinstance(part.get(key), str)]
    found += [one for key in _LISTS if isinstance(part.get(key), list) for one in part[key]]
    found += [part.get(key) for key in _SINGLE]
    dependent = part.get("dependentSchemas")
    found += dependent.values() if isinstance(dependent, Mapping) else ()
    return (id(one) for one in found if isinstance(one, Mapping))


def _walk(node: int, targets: Mapping[int, Sequence[int]], done: set[int]) -> None:
    """Raises ValueError: a circle. Without recursion in Python: a chain of references may be long."""
    stack = [(node, iter(targets.get(node, ())))]
    walking = {node}
    while stack:
        current, following = stack[-1]
        target = next((one for one in following if one not in done), None)
        if target is None:
            stack.pop()
            walking.discard(current)
            done.add(current)
        elif target in walking:
            raise ValueError("its JSON schema refers to itself in a circle, without going into the value.")
        else:
            walking.add(target)
            stack.append((target, iter(targets.get(target, ()))))
