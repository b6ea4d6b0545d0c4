"""Mutation runs over the pure core: small changes of the code, each of which a fast test has to notice.

``.ci/mutants.toml`` names the modules, their tests, and the mutants that are equivalent, with reasons. pytest collects
the tests of a module once. Each mutant is a fork in which the changed function gets its new bytecode: no file changes,
and a mutant costs no start. What runs at import (constants, tables, defaults) is changed in a new process.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import types
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import Phase
from hypothesis import settings as hypothesis

ROOT: Final = Path(__file__).parent.parent
CONFIG: Final = ROOT / ".ci" / "mutants.toml"
SECONDS: Final = 60.0  # after which a mutant that still runs is killed: it loops. More where the tests take long
COMPARED: Final[dict[type, tuple[type, ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,), ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}  # fmt: skip
REPLACED: Final[dict[type, type]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
CALLED: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
UNREAD: Final = frozenset({"annotation", "returns", "decorator_list", "bases"})


class Mutant(NamedTuple):
    path: str
    where: str  # qualified name of the outermost function; "" for what runs at import
    name: str  # path, function, and the change; the same as long as the code is
    tree: ast.Module


def is_for_people(node: ast.AST) -> bool:
    """Sentences, log lines and ``__all__``: only a copy of them in a test would notice a change. Names of a type
    are for a checker of types."""
    match node:
        case ast.Constant(str(text)):
            return text.count(" ") >= 3 and "\n" not in text
        case ast.Expr(ast.Call(ast.Attribute(ast.Name("log")))) | ast.Assign([ast.Name("__all__")]):
            return True
        case ast.Subscript(ast.Name("Literal")):
            return True
    return False


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """The changed forms of one node."""
    match node:
        case ast.Compare(left, [op], right):
            for other in COMPARED[type(op)]:
                yield ast.Compare(left, [other()], right)
        case ast.BinOp(left, op, right) if type(op) in REPLACED:
            yield ast.BinOp(left, REPLACED[type(op)](), right)
        case ast.BoolOp(op, values):
            yield ast.BoolOp(REPLACED[type(op)](), values)
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield operand
        case ast.Call(ast.Name(name), args, keywords) if name in CALLED:
            yield ast.Call(ast.Name(CALLED[name], ast.Load()), args, keywords)
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value)):
            yield ast.Constant(value + 1)
        case ast.Constant(float(value)):
            yield ast.Constant(0.9 * value or 1.0)
        case ast.Constant(str(value)) if value:
            yield ast.Constant(f"{value}~")
        case ast.Return(ast.expr() as value) if not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(None))
        case ast.AugAssign() | ast.Expr(ast.Call()):
            yield ast.Pass()


def children(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None]]:
    """(child, field, index) of what is run; no docstrings, types, imports, texts for people or parts of f-strings."""
    for name, value in ast.iter_fields(node):
        if name in UNREAD or isinstance(node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom):
            continue
        for at, child in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                continue
            if isinstance(child, ast.AST) and not is_for_people(child):
                yield child, name, at if isinstance(value, list) else None


def mutants(path: str) -> Iterator[Mutant]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    seen: dict[str, int] = {}

    def walk(node: ast.AST, scope: tuple[str, ...], function: str) -> Iterator[Mutant]:
        for child, name, at in children(node):
            for changed in changes(child):
                # What runs when the module is imported: its own body, those of classes, and defaults of parameters.
                where = function if not isinstance(node, ast.arguments) and name != "defaults" else ""
                put(node, name, at, ast.copy_location(changed, child))
                after = ast.unparse(ast.fix_missing_locations(changed))
                text = f"{path}:{'.'.join(scope)}: {ast.unparse(child)} -> {after}"
                seen[text] = seen.get(text, 0) + 1
                label = f"{text} #{seen[text]}" if seen[text] > 1 else text
                yield Mutant(path, where, label, copy.deepcopy(ast.fix_missing_locations(tree)))
                put(node, name, at, child)
            named = isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            inner = (*scope, child.name) if named else scope
            is_outermost = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not function
            below = "" if isinstance(child, ast.arguments) else function
            yield from walk(child, inner, ".".join(inner) if is_outermost else below)

    yield from walk(tree, (), "")


def put(node: ast.AST, name: str, at: int | None, child: ast.AST) -> None:
    if at is None:
        setattr(node, name, child)
    else:
        getattr(node, name)[at] = child


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield one
            yield from codes(one)


def patch(mutant: Mutant) -> None:
    """Gives the loaded function, wherever it is referred to, the changed bytecode."""
    file = str(ROOT / mutant.path)
    made = {(one.co_qualname, one.co_firstlineno): one for one in codes(compile(mutant.tree, file, "exec"))}
    gc.unfreeze()  # conftest.py froze what was loaded, which takes it out of the list
    for one in gc.get_objects():
        if isinstance(one, types.FunctionType) and one.__code__.co_filename == file:
            new = made.get((one.__code__.co_qualname, one.__code__.co_firstlineno))
            if new is not None and one.__code__.co_qualname == mutant.where:
                one.__code__ = new


class Runner:
    """A pytest plugin that runs the collected tests in a fork for each mutant, in place of once."""

    def __init__(self, chosen: list[Mutant], jobs: int, report: Callable[[Mutant, bool], None]) -> None:
        self.chosen, self.jobs, self.report = chosen, jobs, report
        self.baseline, self.seconds = False, SECONDS

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """A failing example is enough: to make it small takes Hypothesis longer than all other tests."""
        phases = (Phase.explicit, Phase.generate)
        hypothesis.register_profile(
            "mutants", hypothesis.get_profile("ours"), phases=phases, deadline=None, database=None
        )
        hypothesis.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        def passes(mutant: Mutant | None) -> bool:
            if mutant is not None:
                patch(mutant)
            for item, following in zip(session.items, [*session.items[1:], None], strict=True):
                if any(one.failed for one in runtestprotocol(item, log=False, nextitem=following)):
                    return False
            return bool(session.items)

        began = time.monotonic()
        (self.baseline,) = forked([lambda: passes(None)], 1, lambda at, passed: None, 10 * SECONDS)
        self.seconds = max(SECONDS, 4 * (time.monotonic() - began))
        if self.baseline:
            work = [lambda one=one: passes(one) for one in self.chosen]
            forked(work, self.jobs, lambda at, passed: self.report(self.chosen[at], passed), self.seconds)
        return True


def forked(work: list[Callable[[], bool]], jobs: int, done: Callable[[int, bool], None], seconds: float) -> list[bool]:
    """Whether each call returned True, each in a process of its own, ``jobs`` at a time. A call that takes longer than
    ``seconds``, raises, or ends the process counts as False."""
    running: dict[int, tuple[int, float]] = {}
    results, following = [False] * len(work), 0
    while following < len(work) or running:
        if following < len(work) and len(running) < jobs:
            if not (pid := os.fork()):
                os.setpgid(0, 0)
                try:
                    os._exit(0 if work[following]() else 1)
                finally:
                    os._exit(2)
            running[pid] = following, time.monotonic() + seconds
            following += 1
            continue
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in running:
            at, _ = running.pop(pid)
            results[at] = status == 0
            done(at, results[at])
        for late in [one for one, (_, until) in running.items() if time.monotonic() > until]:
            os.killpg(late, signal.SIGKILL)
        time.sleep(0.02 if not pid else 0)
    return results


def at_import(mutant: Mutant, command: list[str], seconds: float) -> bool:
    """Whether tests pass in a process that begins with the changed module."""
    given = {**os.environ, "MUTANT_PATH": mutant.path, "MUTANT_SOURCE": ast.unparse(mutant.tree)}
    process = [sys.executable, "-m", "tests.mutants", "--pytest", *command]
    with subprocess.Popen(process, env=given, cwd=ROOT, stdout=-3, stderr=-3, start_new_session=True) as running:
        try:
            return running.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            return False


def begin_changed() -> None:
    """The module of MUTANT_PATH is loaded from MUTANT_SOURCE in this process."""
    path, source, usual = str(ROOT / os.environ["MUTANT_PATH"]), os.environ["MUTANT_SOURCE"], SourceFileLoader.get_code
    SourceFileLoader.get_code = lambda self, name: (  # type: ignore[method-assign,assignment]
        compile(source, path, "exec") if self.path == path else usual(self, name)
    )


def run(
    module: dict[str, Any], sample: int, seed: int, jobs: int, equivalent: dict[str, str]
) -> tuple[int, int] | None:
    """(mutants, killed) of a module, with the survivors printed; None where its tests fail without a change."""
    paths = [str(one.relative_to(ROOT)) for pattern in module["source"] for one in sorted(ROOT.glob(pattern))]
    found = [one for path in paths for one in mutants(path) if one.name not in equivalent]
    total = len(found)
    if sample and sample < total:
        found = random.Random(seed).sample(found, sample)
    killed = 0

    def report(mutant: Mutant, passed: bool) -> None:
        nonlocal killed
        killed += not passed
        print(f"{'survived' if passed else 'killed  '}  {mutant.name}", file=sys.__stderr__, flush=True)

    options = ["-q", "-m", "fast", "-n", "0", "-x", "-p", "no:cacheprovider", f"--hypothesis-seed={seed}"]
    command = [*options, *module["tests"]]
    early = [one for one in found if not one.where]
    runner = Runner([one for one in found if one.where], jobs, report)
    pytest.main(command, plugins=[runner])
    if not runner.baseline:
        return None
    forked(
        [lambda one=one: at_import(one, command, 2 * runner.seconds) for one in early],
        jobs,
        lambda at, passed: report(early[at], passed),
        3 * runner.seconds,
    )
    print(f"{module['name']}: {total} mutants, {len(found)} tried, {killed} killed", file=sys.__stderr__, flush=True)
    return len(found), killed


def main() -> int:
    if sys.argv[1:2] == ["--pytest"]:
        begin_changed()
        return pytest.main(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--module", action="append", help="a name in .ci/mutants.toml; all without it")
    parser.add_argument("--sample", type=int, default=60, help="mutants for each module; 0: all")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    config = tomllib.loads(CONFIG.read_text(encoding="utf-8"))
    seed = int(os.environ.get("SEED") or random.randrange(10**6))
    print(f"SEED={seed}", flush=True)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = tempfile.mkdtemp(prefix="mutants-")  # failing examples are not kept
    equivalent = {name: one["reason"] for one in config.get("equivalent", []) for name in one["mutants"]}
    table, bad = [], False
    for module in config["module"]:
        if options.module and module["name"] not in options.module:
            continue
        # Each in a fork: a process that has loaded and run one module's tests is not the same as before.
        read, write = os.pipe()
        if not (pid := os.fork()):
            result = run(module, options.sample, seed, options.jobs, equivalent)
            os.write(write, repr(result).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            result = ast.literal_eval(pipe.read() or "None")
        os.waitpid(pid, 0)
        share = result[1] / max(result[0], 1) if result else 0.0
        bad |= share < config["least"]
        table.append(
            f"{module['name']:40} " + (f"{result[0]:5} {share:8.0%}" if result else "its tests fail unchanged")
        )
    print(f"\n{'module':40} {'tried':>5} {'killed':>8}   SEED={seed}\n" + "\n".join(table))
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
