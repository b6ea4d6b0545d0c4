"""Documents name things that exist: the tests that hold the promises on security and reliability, and the papers and
sections that comments, docstrings, templates and documents refer to."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from experiences.rollouts.environments import environments
from experiences.rollouts.rewards import rewards
from tests.support.recipes import HOW_TO, examples
from training.schema import GRPOConfig

ROOT = Path(__file__).parent.parent
NAMED = re.compile(r"`(tests/[\w/.]*)(?:::(\w+))?`")
# Papers that a newcomer can't open: they are not in the repository.
OUTSIDE = re.compile(
    r"\b(?:SPEC|ALGORITHMS|DESIGN|STACK|FIELD(?:-NOTES)?|LEARNING|SPEED|HOUSE|STYLE)[ ,:]+(?:[A-Z]{0,2}\d|invariant)"
    r"|\bTOOL-ROUTER\b|\b[Ss]ource documents?\b|\([A-Z]\d{1,2}(?:, [A-Z]\d{1,2})*\)"
)
DOCUMENT = re.compile(r"\bdocs/[\w./-]+\.md(?:#[\w-]+)?")
LINK = re.compile(r"\]\(([^)\s]+)\)")
PACKAGES = ("agentcore_site", "budgets", "evaluation", "experiences", "training")
MODULE = re.compile(rf"`((?:{'|'.join((*PACKAGES, 'tests'))})/[\w./{{}},-]*)`")
# Signs of a missing noun: a docstring says which worker, person or process it means.
MISSING_NOUN = re.compile(r"\b(?:nobody|somebody|whoever)\b", re.IGNORECASE)


@cache
def tracked() -> tuple[Path, ...]:
    """Files that git knows or would take in, migrations aside: they are never changed."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    found = (ROOT / name for name in listed if "/migrations/" not in f"/{name}")
    return tuple(path for path in found if path.is_file())


def of_kind(*suffixes: str) -> list[Path]:
    return [path for path in tracked() if path.suffix in suffixes and path.name != "test_docs.py"]


def mentions(pattern: re.Pattern[str], path: Path) -> list[str]:
    """The matches of the pattern in the comments and texts of a Python file, or anywhere in another file."""
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py" or not pattern.search(source):
        return [match.group() for match in pattern.finditer(source)]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    texts = (token.string for token in tokens if token.type in (tokenize.COMMENT, tokenize.STRING))
    return [match.group() for text in texts for match in pattern.finditer(text)]


def explained(path: Path) -> Iterator[str]:
    """The comments and docstrings of a Python file, without what they quote as code."""
    source = path.read_text(encoding="utf-8")
    if not MISSING_NOUN.search(source):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield re.sub(r"``.*?``", "", ast.get_docstring(node) or "", flags=re.DOTALL)


def expanded(name: str) -> list[str]:
    """``a/{b,c}.py`` as its two names."""
    head, brace, rest = name.partition("{")
    names, _, tail = rest.partition("}")
    return [f"{head}{one}{tail}" for one in names.split(",")] if brace else [name]


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted names."""
    result: dict[str, Any] = {}
    for name, value in values.items():
        result |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return result


def alike(value: Any, text: str) -> bool:
    return value == (float(text) if isinstance(value, int | float) else text)


@cache
def sections(path: Path) -> frozenset[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ +(.+?)\s*$", path.read_text(encoding="utf-8"), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", head) for head in heads)
    return frozenset(re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in plain)


def missing(target: Path, section: str) -> bool:
    return not target.exists() or (bool(section) and target.suffix == ".md" and section not in sections(target))


def dead_links(path: Path) -> Iterator[str]:
    for link in LINK.findall(path.read_text(encoding="utf-8")):
        name, _, section = link.partition("#")
        outside = link.startswith(("http://", "https://", "mailto:", "<", "/"))
        if not outside and missing((path.parent / name).resolve() if name else path, section):
            yield link


@cache
def functions_of(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = (node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(name for name in found if name.startswith("test_"))


def promises(name: str) -> list[list[str]]:
    """The rows of a document's first table, and of those with as many columns, without heads, cell by cell."""
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    tables = [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines() if line.startswith("| ")]
        for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    ]
    columns = len(tables[0][0])
    mine = [table for table in tables if len(table[0]) == columns]
    assert all(len(row) == columns for table in mine for row in table)
    return [row for table in mine for row in table[1:]]


@pytest.mark.parametrize("name", ["security.md", "reliability.md"])
def test_each_promise_names_a_test_that_exists(name: str) -> None:
    rows = promises(name)
    assert len(rows) >= 10
    for what, *_, held_by in rows:
        named = NAMED.findall(held_by)
        assert any(test for _, test in named), f"{name}: no test function is named for: {what}"
        for path, test in named:
            assert (ROOT / path).exists(), f"{name}: there is no {path}, named for: {what}"
            assert not test or test in functions_of(ROOT / path), f"{name}: {path} has no {test}, named for: {what}"


def test_nothing_refers_to_a_paper_outside_of_the_repository() -> None:
    values = {
        f"{path.relative_to(ROOT)}: {mention}"
        for path in of_kind(".py", ".html", ".md", ".js", ".css", ".yml", ".yaml", ".toml", ".sh")
        for mention in mentions(OUTSIDE, path)
    }
    assert not values, f"Give the reason, a paper, or a section of docs/ instead: {sorted(values)}"


def test_each_document_that_is_referred_to_is_there_with_its_section() -> None:
    names = set()
    for path in of_kind(".py", ".html", ".md", ".yml", ".toml"):
        for named in mentions(DOCUMENT, path):
            name, _, section = named.partition("#")
            if missing(ROOT / name, section):
                names.add(f"{path.relative_to(ROOT)}: {named}")
    assert not names, sorted(names)


def test_each_link_of_a_document_leads_somewhere() -> None:
    values = {f"{path.relative_to(ROOT)}: {link}" for path in of_kind(".md") for link in dead_links(path)}
    assert not values, sorted(values)


def test_the_defaults_that_the_page_on_algorithms_names_are_those_of_the_code() -> None:
    known = {name.rpartition(".")[2]: value for name, value in flat(GRPOConfig().as_dict()).items()}
    page = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    in_tables = re.findall(r"^\| `(\w+)` \| `?([\w.]+)`? \|", page, re.MULTILINE)
    in_text = re.findall(r"`(?:\w+\.)*(\w+)`\s\((\.?\d[\d.]*)\)", page)
    named = [(name, value) for name, value in in_tables + in_text if name in known]
    assert len(named) >= 15
    assert {name: value for name, value in named if not alike(known[name], value)} == {}


def test_each_module_that_a_document_names_is_there() -> None:
    values = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in of_kind(".md")
        for named in MODULE.findall(path.read_text(encoding="utf-8"))
        for name in expanded(named)
        if path.name not in ("CHANGELOG.md", "api.md")
        and not any((ROOT / f"{name.rstrip('/')}{end}").exists() for end in ("", ".py"))
    }
    assert not values, sorted(values)


@pytest.mark.parametrize("recipe", sorted(path.stem for path in HOW_TO.glob("*.md")))
def test_each_name_that_a_recipe_imports_is_there(recipe: str) -> None:
    made_there = "training.services.checkpoint_check"
    written = "\n".join(block for path in HOW_TO.glob("*.md") for block in examples(path.stem))
    own = {*re.findall(r"^(?:def|class) (\w+)", written, re.MULTILINE)}  # by an earlier step, or another recipe
    for module, names in re.findall(r"^ *from (\S+) import ([\w, ]+)", "\n".join(examples(recipe)), re.MULTILINE):
        found = vars(import_module(module)) if module not in ("__future__", made_there) else names.split(", ")
        assert not [name for name in names.strip().split(", ") if name not in {*found, *own}], (recipe, module)


def test_the_page_on_rewards_has_a_row_for_each() -> None:
    page = (ROOT / "docs" / "rewards.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| \S", page, re.MULTILINE)
    assert sorted(rows) == rewards.built_in(), "Write what each reward pays into the first table of docs/rewards.md"


def test_the_page_on_environments_has_a_row_for_each() -> None:
    page = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| \S", page.partition("## Your own data")[0], re.MULTILINE)
    assert sorted(rows) == environments.built_in(), "Write each into the first table of docs/environments.md"


def test_docstrings_and_comments_name_who_is_meant() -> None:
    values = {
        f"{path.relative_to(ROOT)}: {text.strip()[:100]}"
        for path in of_kind(".py")
        if path.relative_to(ROOT).parts[0] in PACKAGES
        for text in explained(path)
        if MISSING_NOUN.search(text)
    }
    assert not values, f"Say which person, worker, process or caller is meant: {sorted(values)}"
