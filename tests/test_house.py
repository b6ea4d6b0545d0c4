"""The structure of the source, as far as import contracts (pyproject.toml) don't hold it."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from graphlib import TopologicalSorter
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from django.apps import apps
from django.db.models import Field

from agentcore_site.lib.retention import rules

ROOT = Path(__file__).parent.parent
APPS = ("agentcore_site", "budgets", "experiences", "training", "evaluation")


class Source(NamedTuple):
    """The parts of a module that the tests below read."""

    imports: list[ast.Import | ast.ImportFrom]  # also inside of functions and for types alone
    classes: list[str]
    strong_locks: list[int]  # lines


@cache
def modules() -> dict[str, Source]:
    """Every module by its dotted name, without migrations. One walk serves all tests."""
    values = {}
    for app in APPS:
        for path in (ROOT / app).rglob("*.py"):
            if "migrations" not in path.parts:
                name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
                values[name] = found = Source([], [], [])
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                    if isinstance(node, ast.Import | ast.ImportFrom):
                        found.imports.append(node)
                    elif isinstance(node, ast.ClassDef):
                        found.classes.append(node.name)
                    elif isinstance(node, ast.Call) and is_strong_lock(node):
                        found.strong_locks.append(node.lineno)
    return values


def is_strong_lock(call: ast.Call) -> bool:
    named = isinstance(call.func, ast.Attribute) and call.func.attr == "select_for_update"
    return named and "no_key" not in {word.arg for word in call.keywords}


def arrows(known: dict[str, Source]) -> dict[str, set[str]]:
    """The modules that each module imports."""
    values: dict[str, set[str]] = {name: set() for name in known}
    for name, source in known.items():
        for node in source.imports:
            if isinstance(node, ast.Import):
                values[name] |= {alias.name for alias in node.names} & known.keys()
            elif node.module:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    values[name] |= {inner if inner in known else node.module} & known.keys()
    return values


def test_no_module_imports_itself_by_a_detour() -> None:
    TopologicalSorter(arrows(modules())).prepare()  # a CycleError names the detour


def test_nothing_asks_for_the_kind_of_a_policy_but_its_learner() -> None:
    asks = re.compile(r"policy_kind (==|!=)|policy_kind\) (==|!=)|isinstance\([^()]*(Context|Action)Policy\)")
    found = [
        str(path.relative_to(ROOT))
        for app in APPS
        for path in (ROOT / app).rglob("*.py")
        if asks.search(path.read_text(encoding="utf-8")) and "learners" not in path.parts
    ]
    assert found == []


def test_no_lock_on_a_row_blocks_foreign_keys_to_that_row() -> None:
    """``FOR UPDATE`` waits for every row that refers to the locked one, and they for it: two changes that cross, and a
    deadlock. A key is never changed here, so that the weaker lock is enough."""
    assert {name: found.strong_locks for name, found in modules().items() if found.strong_locks} == {}


def test_no_two_classes_have_one_name() -> None:
    values: dict[str, list[str]] = {}
    for name, source in modules().items():
        for one in source.classes:
            if one not in ("Meta", "Command"):
                values.setdefault(one, []).append(name)
    assert {name: places for name, places in values.items() if len(places) > 1} == {}


def layers() -> list[list[list[str]]]:
    """The contracts of layers, from the top: the rooms of each layer, in which a room of several modules is one."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return [
        [re.split(r" [|:] ", layer) for layer in contract["layers"]]
        for contract in config["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
    ]


def test_the_picture_of_the_architecture_is_that_of_the_contracts() -> None:
    picture = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split("```")[1]
    flat = re.sub(r" >\n +(?!\w+(\.\w+)* {2,})", " > ", picture)
    rows = re.findall(r"^ (\w*) +(\w+(?:\.\w+)*) {2,}(.+)$", flat, re.M)
    floors = [floor for floor, _, _ in rows if floor not in {"", "roof", "ground"}]
    contracts = layers()
    assert [[floor] for floor in floors] == contracts[0]
    assert [[app] for _, app, _ in rows[1:4]] == contracts[1][:3]  # evaluation's own three
    drawn = {app: [part.split(", ") for part in rooms.split(" > ")] for _, app, rooms in rows if " > " in rooms}
    held = {}
    for contract in contracts[2:]:
        app = next(app for app in sorted(drawn, key=len, reverse=True) if contract[0][0].startswith(f"{app}."))
        short = [[room.removeprefix(f"{app}.").split(".")[0] for room in layer] for layer in contract]
        held[app] = [layer for layer, _ in groupby(short)]
    assert drawn == held
    there = modules()
    assert [room for layer in contracts for rooms in layer for room in rooms if room not in there] == []


def test_fields_of_micro_dollars_say_so_in_their_names() -> None:
    fields = [field for model in apps.get_models() for field in model._meta.get_fields() if isinstance(field, Field)]
    money = [field for field in fields if "micro-dollars" in str(field.help_text).lower()]
    assert len(money) > 5
    assert [str(field) for field in money if not field.name.endswith("_micros")] == []


def test_the_retention_list_names_every_table_once() -> None:
    named = [table for _, rule in rules.items() for table in rule.tables]
    assert len(named) == len(set(named))
    tables = {model._meta.db_table for model in apps.get_models(include_auto_created=True) if not model._meta.proxy}
    assert set(named) ^ tables == set(), "A rule in an app's `retention.py` says how rows age, or that they are kept"
