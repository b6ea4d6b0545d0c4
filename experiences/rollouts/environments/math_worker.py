"""Compares mathematical answers with math-verify. A program: one JSON list [expected, answer] a line in, a verdict out.

It runs in a process of its own: sympy takes memory and time without a limit on some expressions, and holds Python's
lock meanwhile. Standard library and math-verify only. The signal of a used-up limit ends the process.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import resource
import signal
import sys
from typing import Any, Final

CPU_SECONDS: Final = 3.0  # for one comparison
WALL_SECONDS: Final = 30.0  # where a machine is too busy to give it any
MEMORY: Final = 1 << 30
_MATH: Final = re.compile(r"\$|\\\(|\\\[|\\boxed")
_WORD: Final = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{3,}")
_FUNCTION: Final = re.compile(
    r"\\(?:begin|end)\{\w+\}|\\?\b(sqrt|log|ln|sin|cos|tan|cot|sec|csc|exp|pi|infty|infinity|inf|oo)(?![a-zA-Z])"
)
_ROOT: Final = re.compile(r"(?:\bsqrt|√)\s*(?:\(([^()]*)\)|(\d+|[a-zA-Z]))")


def as_latex(text: str) -> str:
    """Plain signs and functions of a formula in LaTeX."""
    text = _ROOT.sub(lambda found: rf"\sqrt{{{found[1] or found[2]}}}", text)
    text = re.sub(r"(?<![\\a-zA-Z])(pi|log|ln|sin|cos|tan|exp)(?![a-zA-Z])", r"\\\1 ", text)
    text = re.sub(r"(?<![\\a-zA-Z])(?:infinity|inf|oo)\b|∞", r"\\infty ", text)
    for sign, latex in (("π", r"\pi "), ("≤", r"\le "), ("≥", r"\ge "), ("≠", r"\ne "), ("∪", r"\cup "), ("±", r"\pm "),
                        ("**", "^"), ("×", r"\times "), ("·", r"\cdot "), ("÷", "/")):  # fmt: skip
        text = text.replace(sign, latex)
    return text.strip()


def parsed(parse: Any, text: str, *, gold: bool) -> list[Any]:
    """The expressions of a text: of a formula the formula, of prose the parts between dollars and the numbers."""
    if not _MATH.search(text) and (gold or not _WORD.search(_FUNCTION.sub("", text))):
        text = f"${as_latex(text)}$"
    return list(parse(text, parsing_timeout=None))


def same(expected: str, answer: str) -> bool:
    from math_verify import parse, verify

    gold, found = parsed(parse, expected, gold=True), parsed(parse, answer, gold=False)
    # an interval is the inequality that it solves
    return bool(verify(gold, found, allow_set_relation_comp=True, timeout_seconds=None))


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    logging.disable(logging.CRITICAL)
    sys.set_int_max_str_digits(100_000)
    verdicts = sys.stdout
    sys.stdout = sys.stderr  # what a library prints is no verdict
    with contextlib.suppress(Exception):
        same("1", "x")  # imports, before any limit of time
    verdicts.write("ready\n")
    verdicts.flush()
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        signal.setitimer(signal.ITIMER_REAL, WALL_SECONDS)
        try:
            said = "true" if same(*json.loads(line)) else "false"
        except (Exception, RecursionError):  # sympy raises much on texts that are no formula
            said = "false"
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        verdicts.write(said + "\n")
        verdicts.flush()


if __name__ == "__main__":
    main()
