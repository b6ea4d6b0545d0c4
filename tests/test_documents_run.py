"""Everything that a reader copies from the documents works: commands with their options, addresses with their methods,
names of settings, and JSON. Nothing is started here; the programs of the documents run in thorough tests."""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any

from django.core.management import get_commands, load_command_class
from django.core.management.base import CommandError
from django.urls import URLPattern, URLResolver, get_resolver
from jsonschema import Draft7Validator
from openapi_schema_validator import OAS30Validator

from agentcore_site import env, mcp_path
from agentcore_site.notices.catalogue import EVENT_TYPES
from agentcore_site.rest import openrpc
from agentcore_site.routing import websocket_urlpatterns
from agentcore_site.rpc import METHODS
from evaluation.serving.gateway.application import INTERFACES
from evaluation.serving.suite_spec import SuiteSpec
from experiences.rollouts.rewards import rewards
from tests.support.documents import (
    ADDRESS,
    ANY,
    SPAN,
    after,
    blocks,
    body_of,
    code,
    commands,
    first_cells,
    method_of,
    openapi,
    same,
    segments,
)
from tests.support.recipes import HOW_TO
from tests.test_docs import tracked

MAKEFILE = (env.ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = frozenset(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
# Pages on servers that others wrote, with their addresses.
NAME = re.compile(r"(?<![\w$%])[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b(?!_?…)")
THEIRS = {"docs/agentgym.md", "docs/decisions/0021-weights.md"}


@cache
def parser_of(name: str) -> Any:
    parser = load_command_class(get_commands()[name], name).create_parser("manage.py", name)
    for action in parser._actions:
        action.type = None  # the documents have placeholders
        if action.choices is not None and not isinstance(action, argparse._SubParsersAction):
            action.choices = [*action.choices, *(one for one in ("ROLE", "NAME") if action.option_strings)]
    return parser


def test_each_make_target_of_the_documents_exists_and_reads_its_variables() -> None:
    source = MAKEFILE + (env.ROOT / "agentcore_site" / "settings.py").read_text(encoding="utf-8")
    benches = (env.ROOT / "tests" / "performance" / "__main__.py").read_text(encoding="utf-8")
    wrong, seen = [], 0
    for shown, words in commands():
        for given in after(words, "make"):
            in_a_sentence = not shown.language and words[0] != "make"  # "to make sure of"
            if in_a_sentence or not given or not re.fullmatch(r"[a-z][a-z-]*", given[0]):
                continue
            seen += 1
            names = [one.partition("=")[0] for one in given[1:] if re.fullmatch(r"[A-Z_]+=.*", one)]
            if given[0] not in TARGETS or not all(re.search(rf"\b{name}\b", source) for name in names):
                wrong.append(str(shown))
            if given[0] == "bench":
                chosen = " ".join(given[1:]).removeprefix("ARGS=").split()
                parts = chosen[:1] if any(one.startswith("--") for one in chosen) else chosen
                for part, _, only in (one.partition(".") for one in parts):
                    if not re.search(rf'"{part}": .*\b{only}\b', benches):
                        wrong.append(str(shown))
    assert not wrong, "\n".join(wrong)
    assert seen > 40


def test_each_command_of_the_documents_takes_its_options() -> None:
    wrong, seen = [], 0
    for shown, words in commands():
        for given in after(words, "manage.py"):
            if not given:
                continue
            seen += 1
            name, *rest = given
            if name not in get_commands():
                wrong.append(f"{shown}: no such command")
                continue
            parser = parser_of(name)
            options = [one.partition("=")[0] for one in rest if one.startswith("--")]
            wrong += [f"{shown}: no {one}" for one in options if one not in parser._option_string_actions]
            if "…" in rest or (not rest and not shown.language):
                continue  # named, not shown as it is typed
            try:
                parser.parse_args(rest)
            except CommandError as error:
                wrong.append(f"{shown}: {error}")
    assert not wrong, "\n".join(wrong)
    assert seen > 60


def test_each_option_that_the_documents_name_alone_is_of_a_command() -> None:
    known = {option for name in get_commands() for option in parser_of(name)._option_string_actions}
    named = {one for one in code() if not one.language and re.match(r"--[a-z]", one.text)}
    sources = '"--scale"' + "".join(  # of docker compose
        path.read_text(encoding="utf-8")
        for path in tracked()
        if path.suffix in (".py", ".sh", "") and path.relative_to(env.ROOT).parts[0] in ("tests", ".ci", "docker")
    )
    wrong = [
        str(one)
        for one in named
        if (option := re.split(r"[ =]", one.text)[0]) not in known and f'"{option}"' not in sources
    ]
    assert not wrong, "\n".join(sorted(wrong))


# -- addresses --------------------------------------------------------------------------------------------------------


@cache
def described() -> dict[tuple[str, ...], dict[str, Any]]:
    """The operations of the description, by the segments of their paths."""
    values = {}
    for path, operations in openapi()["paths"].items():
        values[tuple(ANY if part.startswith("{") else part for part in path.strip("/").split("/"))] = operations
    return values


def routes(patterns: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    for one in patterns:
        route = before + re.sub(r"^\^|\\Z|\$$", "", str(one.pattern))
        if isinstance(one, URLResolver):
            yield from routes(one.url_patterns, route)
        elif isinstance(one, URLPattern):
            yield route, one.callback


@cache
def served() -> dict[tuple[str, ...], Any]:
    """All views of the site, by the segments of their addresses."""
    values = {}
    # ASGI applications of their own.
    in_front = [(one, None) for one in (*INTERFACES, "/v1/models", "/v1/models/<id>", mcp_path.PATH)]
    # Those of the recipes' own examples, which tests/console/test_recipes.py adds to a site.
    shown = "".join(path.read_text(encoding="utf-8") for path in HOW_TO.glob("*.md"))
    examples = [(one, None) for one in re.findall(r'`path\("([\w/-]+)"', shown)]
    examples += [(f"api/v1/{one}", None) for one in re.findall(r'`router\.register\("([\w-]+)"', shown)]
    for route, view in [*routes([*get_resolver().url_patterns, *websocket_urlpatterns]), *in_front, *examples]:
        values.setdefault(tuple(ANY if "<" in part else part for part in route.strip("/").split("/")), view)
    return values


def allows(view: Any, method: str) -> bool:
    if actions := getattr(view, "actions", None):
        return method.lower() in actions
    kind = getattr(view, "cls", None) or getattr(view, "view_class", None)
    return kind is None or hasattr(kind, method.lower())


def there(address: str, method: str, page: str) -> bool:
    """Whether the site has the address, as it is or below one that its page writes the addresses under."""
    # Relative ones are of REST: pages of the console have the same names.
    bases = [
        ("api", "v1"),
        *([()] if address[0] in "/." else []),
        *([("internal", "ace")] if page == "docs/ace.md" else []),
    ]
    ends = address.startswith("…/")
    for shown in segments(address.removeprefix("…/")):
        if ends:
            found = any(path[-len(shown) :] == shown and method.lower() in known for path, known in described().items())
            found = found or any(
                path[-len(shown) :] == shown and allows(view, method) for path, view in served().items()
            )
        else:
            wholes = [(*base, *shown) for base in bases]
            found = any(
                same(one, path) and method.lower() in known for one in wholes for path, known in described().items()
            ) or any(same(one, path) and allows(view, method) for one in wholes for path, view in served().items())
        if not found:
            return False
    return True


def test_each_address_of_the_documents_is_served_and_takes_its_method() -> None:
    wrong, seen = [], 0
    for one in code():
        if one.language or one.page in THEIRS or not (found := ADDRESS.match(one.text)):
            continue
        method, address = found.groups()
        if address.startswith(("{base_url}", '{"', "<")):
            continue  # of a model's service, or the end of an address that a table began
        seen += 1
        if not there(address, method, one.page):
            wrong.append(str(one))
    assert not wrong, "\n".join(wrong)
    assert seen > 100


def test_each_address_in_a_table_of_addresses_is_served() -> None:
    wrong, seen = [], 0
    for page, first in first_cells("address"):
        for address in SPAN.findall(first):
            one = re.sub("^[A-Z]+ ", "", address)
            seen += 1
            if not any(there(one, method, page) for method in ("GET", "POST", "PATCH", "PUT", "DELETE")):
                wrong.append(f"{page}: {address}")
    assert not wrong, "\n".join(wrong)
    assert seen > 150


def operation(words: list[str]) -> tuple[str, dict[str, Any] | None]:
    """The address that a command line of curl asks, and its operation in the description."""
    [url] = [one for one in words if re.search(r"/api/v1/|/v1/", one)]
    method = method_of(words)
    found = [
        (path.count(ANY), known[method.lower()])
        for shown in segments(url)
        for path, known in described().items()
        if same(shown, path) and method.lower() in known
    ]
    return url, min(found, key=lambda one: one[0], default=(0, None))[1]


def problems(schema: dict[str, Any], value: Any) -> list[str]:
    """The problems of a body by its schema, with members that the schema does not have."""
    root = schema | {"components": openapi()["components"]}
    found = [f"{'.'.join(map(str, one.path))}: {one.message}" for one in OAS30Validator(root).iter_errors(value)]
    name = schema.get("$ref", "").rpartition("/")[2]
    known = openapi()["components"]["schemas"].get(name, schema).get("properties")
    return found + [f"no {one}" for one in (value if known is not None else ()) if one not in known]


def test_each_line_of_curl_asks_an_operation_with_parameters_and_a_body_that_are_described() -> None:
    wrong, seen = [], 0
    for shown, words in commands():
        for given in after(words, "curl", "api") if shown.language else ():
            if not any("/v1/" in one for one in given):
                continue
            url, known = operation(given)
            seen += 1
            if known is None:
                wrong.append(f"{shown}: no such operation")
                continue
            named = {one["name"] for one in known.get("parameters", ()) if one["in"] == "query"}
            wrong += [f"{url}: no {one}" for one in re.findall(r"[?&](\w+)=", url) if one not in named]
            sent = body_of(given)
            if sent is not None and not url.endswith("/jsonrpc"):
                schema = known["requestBody"]["content"]["application/json"]["schema"]
                wrong += [f"{url}: {one}" for one in problems(schema, sent)]
            elif sent is not None:
                wrong += [f"{url}: {one}" for one in rpc_problems(sent)]
    assert not wrong, "\n".join(wrong)
    assert seen > 12


# -- JSON -------------------------------------------------------------------------------------------------------------


@cache
def methods() -> tuple[dict[str, Any], dict[str, Any]]:
    """The methods of JSON-RPC by name, and the schemas that they share."""
    document = openrpc.document(METHODS, "", "")
    return {one["name"]: one for one in document["methods"]}, document["components"]


def rpc_problems(request: dict[str, Any]) -> list[str]:
    by_name, components = methods()
    if (method := by_name.get(request["method"])) is None:
        return [f"no method {request['method']}"]
    properties = {one["name"]: one["schema"] for one in method["params"]}
    required = [one["name"] for one in method["params"] if one["required"]]
    schema = {"properties": properties, "required": required, "additionalProperties": False, "components": components}
    return [one.message for one in Draft7Validator(schema).iter_errors(request["params"])]


def test_the_results_that_the_page_on_methods_shows_are_as_they_are_described() -> None:
    page = (env.ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    by_name, components = methods()
    seen, wrong = 0, []
    for heading, section in re.findall(r"^### (`[^\n]+)\n(.*?)(?=^##)", page, re.MULTILINE | re.DOTALL):
        for block in re.findall(r"```json\n(.*?)```", section, re.DOTALL):
            name, seen = re.findall(r"`([\w.]+)`", heading)[0], seen + 1
            schema = by_name[name]["result"]["schema"] | {"components": components}
            for one in Draft7Validator(schema).iter_errors(json.loads(block)):
                if "…" in one.instance and one.validator in ("required", "additionalProperties"):
                    continue  # there are more members than are shown
                wrong.append(f"{name} {'.'.join(map(str, one.path))}: {one.message}")
    assert not wrong, "\n".join(wrong)
    assert seen >= 5


def test_all_json_of_the_documents_is_valid_and_accepted() -> None:
    for block in blocks("json"):
        shown = json.loads(block.text)
        if "parts" in shown:
            SuiteSpec.of(shown)
        if "reward" in shown:
            assert shown["reward"] in rewards.names(), block
        if "timestamp" in shown:
            assert shown["type"] in {*EVENT_TYPES} | {"deployment.changed"}, block
    for block in blocks("http"):
        shown = json.loads(block.text.partition("\n\n")[2])
        assert shown["type"] in {*EVENT_TYPES}


# -- names ------------------------------------------------------------------------------------------------------------


def test_each_setting_that_the_documents_name_is_read() -> None:
    sources = "".join(
        path.read_text(encoding="utf-8")
        for path in tracked()
        if path.suffix in (".py", ".sh", ".yaml", ".yml", ".toml", "") and path.name not in ("LICENSE",)
    )
    known = {*NAME.findall(sources), "NAME_FILE"}
    made_up: dict[str, set[str]] = defaultdict(set)  # the recipes make settings and tools of their own
    for block in blocks("python"):
        made_up[block.page] |= {*NAME.findall(block.text)}
    read = {*re.findall(r'"([A-Z]+)"', sources)}
    wrong = {
        f"{page}: {name}"
        for head in ("name", "setting")
        for page, first in first_cells(head)
        for name in SPAN.findall(first)
        if re.fullmatch("[A-Z]+", name) and name not in read
    }
    wrong |= {
        f"{one.page}: {name}"
        for one in code()
        for name in NAME.findall(one.text)
        if not one.language and not {name, name.removesuffix("_FILE")} & (known | made_up[one.page])
    }
    assert not wrong, "\n".join(sorted(wrong))
