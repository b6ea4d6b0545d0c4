"""The description of the API as people read it: operations by tag, made from the same document as ``schema/``."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from threading import RLock
from typing import Any, Final

from django.utils.text import slugify
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiYamlRenderer

from agentcore_site.console.snippets import ApiCall

VERBS: Final = ("get", "post", "put", "patch", "delete")
JSON: Final = "application/json"
_making = RLock()


@dataclass(frozen=True, slots=True)
class FieldLine:
    """A parameter or a field, in words. ``place``: path, query or header; "" of a body."""

    name: str
    type: str
    required: bool
    about: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class AnswerLine:
    status: str
    about: str
    type: str
    fields: tuple[FieldLine, ...]


@dataclass(frozen=True, slots=True)
class OperationPage:
    """One operation. ``call``: a request of it, with an example for a body and names for the parts of the path."""

    id: str
    verb: str
    path: str
    summary: str
    about: str
    parameters: tuple[FieldLine, ...]
    body: tuple[FieldLine, ...]
    answers: tuple[AnswerLine, ...]
    call: ApiCall


@dataclass(frozen=True, slots=True)
class TagPage:
    name: str
    slug: str
    operations: tuple[OperationPage, ...]

    @property
    def lists(self) -> list[OperationPage]:
        """Operations that need no id: the first ones to call."""
        return [operation for operation in self.operations if operation.verb == "GET" and "{" not in operation.path]


def document() -> dict[str, Any]:
    """The OpenAPI document; made once a process, since it follows from the code alone. Of several threads that ask at
    once the first makes it: it takes a second of the processor, and callers need no account."""
    with _making:
        return _document()


@cache
def _document() -> dict[str, Any]:
    generator: Any = SchemaGenerator
    return dict(generator().get_schema(request=None, public=True))


def rendered(form: str) -> tuple[bytes, str]:
    """The document as yaml or json, and its ETag."""
    with _making:
        return _rendered(form)


@cache
def _rendered(form: str) -> tuple[bytes, str]:
    renderer = OpenApiJsonRenderer() if form == OpenApiJsonRenderer.format else OpenApiYamlRenderer()
    text = renderer.render(document(), renderer_context={})
    body = text.encode() if isinstance(text, str) else text
    return body, f'"{hashlib.sha256(body).hexdigest()[:32]}"'


@cache
def reference() -> dict[str, TagPage]:
    """The pages by their slug, in the order of their names."""
    by_tag: dict[str, list[OperationPage]] = {}
    schemas = document()["components"]["schemas"]
    for path, operations in document()["paths"].items():
        for verb in VERBS:
            if verb in operations:
                by_tag.setdefault(operations[verb]["tags"][0], []).append(_page(path, verb, operations[verb], schemas))
    return {slugify(tag): TagPage(tag, slugify(tag), tuple(by_tag[tag])) for tag in sorted(by_tag)}


def _page(path: str, verb: str, operation: dict[str, Any], schemas: dict[str, Any]) -> OperationPage:
    content: dict[str, Any] = operation.get("requestBody", {}).get("content", {})
    media: dict[str, Any] = content.get(JSON) or next(iter(content.values()), {})
    answers = [_answer(status, one, schemas) for status, one in sorted(operation["responses"].items())]
    return OperationPage(
        id=operation["operationId"],
        verb=verb.upper(),
        path=path,
        summary=operation.get("summary", ""),
        about=operation.get("description", ""),
        parameters=tuple(_parameter(one) for one in operation.get("parameters", ())),
        body=_fields(media.get("schema", {}), schemas),
        answers=tuple(answers),
        call=ApiCall(verb.upper(), path, _example(media, schemas) if JSON in content else None),
    )


def _parameter(one: dict[str, Any]) -> FieldLine:
    about = one.get("description", "")
    return FieldLine(one["name"], type_of(one.get("schema", {})), bool(one.get("required")), about, one["in"])


def _answer(status: str, one: dict[str, Any], schemas: dict[str, Any]) -> AnswerLine:
    content: dict[str, Any] = one.get("content", {})
    media = next(iter(content), "")
    schema: dict[str, Any] = content[media].get("schema", {}) if media else {}
    shown = "" if not media else type_of(schema) if media == JSON else media
    fields = _fields(schema, schemas) if status.startswith("2") else ()
    return AnswerLine(status, one.get("description", ""), shown, fields)


def _named(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """The schema that a reference names, also alone in an ``allOf``; of a list, the schema of its rows."""
    if len(schema.get("allOf", ())) == 1:
        return _named(schema["allOf"][0], schemas)
    if "$ref" in schema:
        return _named(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    if schema.get("type") == "array":
        return _named(schema["items"], schemas)
    results = schema.get("properties", {}).get("results")
    return _named(results, schemas) if results and "next" in schema["properties"] else schema


def _fields(schema: dict[str, Any], schemas: dict[str, Any]) -> tuple[FieldLine, ...]:
    found = _named(schema, schemas)
    required = found.get("required", ())
    return tuple(
        FieldLine(name, type_of(one), name in required, one.get("description", ""))
        for name, one in found.get("properties", {}).items()
    )


def type_of(schema: dict[str, Any]) -> str:
    """A schema's type in a few words: ``string (uuid)``, ``list of Agent``, ``one of a, b``."""
    several = schema.get("oneOf") or schema.get("anyOf") or schema.get("allOf") or ()
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if several:
        return " or ".join(dict.fromkeys(type_of(one) for one in several))
    if "enum" in schema:
        return "one of " + ", ".join(str(one) or '""' for one in schema["enum"] if one is not None)
    if schema.get("type") == "array":
        return f"list of {type_of(schema.get('items', {}))}"
    kind = str(schema.get("type", "any"))
    return f"{kind} ({schema['format']})" if "format" in schema else kind


def _example(media: dict[str, Any], schemas: dict[str, Any]) -> Any:
    """The first example of a body; where there is none, the fields that have to be given."""
    for one in media.get("examples", {}).values():
        return one["value"]
    found = _named(media.get("schema", {}), schemas)
    if "example" in found:
        return found["example"]
    return {name: _sample(found["properties"][name]) for name in found.get("required", ())}


def _sample(schema: dict[str, Any]) -> Any:
    samples = {"integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}
    return schema.get("default", samples.get(schema.get("type", ""), "…"))
