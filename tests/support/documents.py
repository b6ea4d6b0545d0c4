"""The commands, addresses, names and JSON that the documents show, as a reader copies them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import yaml

from agentcore_site import env

PAGES = sorted((env.ROOT / "docs").rglob("*.md")) + [
    env.ROOT / n for n in ("README.md", "CONTRIBUTING.md", "SECURITY.md")
]
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"`([^`\n]+)`")
ADDRESS = re.compile(r"(GET|POST|PUT|PATCH|DELETE) (/?[\w.{<…][^ ]*)$")
SITE = re.compile(r"^(?:https?://[\w.:]+|localhost:\d+|\$[A-Z]+)(?=/)")
ANY = "*"  # a segment of an address that is each value


@dataclass(frozen=True)
class Code:
    """``text`` as a page shows it. ``language`` of a block; empty for code within a sentence."""

    page: str
    text: str
    language: str = ""

    def __str__(self) -> str:
        return f"{self.page}: {self.text}"


@cache
def code() -> tuple[Code, ...]:
    found = []
    for path in PAGES:
        page, text = str(path.relative_to(env.ROOT)), path.read_text(encoding="utf-8")
        found += [Code(page, body, language or "text") for language, body in BLOCK.findall(text)]
        found += [Code(page, span) for span in SPAN.findall(BLOCK.sub("", text))]
    return tuple(found)


def blocks(language: str) -> list[Code]:
    return [one for one in code() if one.language == language]


@cache
def commands() -> tuple[tuple[Code, tuple[str, ...]], ...]:
    """Each command line of a block for shells as its words, and each piece of code within a sentence."""
    found = []
    for block in blocks("sh"):
        lines = ""
        for line in block.text.splitlines():
            lines += line
            try:
                words = tuple(shlex.split(lines, comments=True))
            except ValueError:  # a quotation, or a line, goes on
                lines = lines.removesuffix("\\") + "\n"
                continue
            lines = ""
            if words:
                found.append((Code(block.page, shlex.join(words), "sh"), words))
    for one in code():
        if not one.language:
            found.append((one, tuple(re.sub(r"[\[\]\"]", "", one.text).split())))
    return tuple(found)


def first_cells(head: str) -> Iterator[tuple[str, str]]:
    """The page and the first cell of each row of the tables whose first column has this head."""
    for path in PAGES:
        inside = False
        for line in path.read_text(encoding="utf-8").splitlines():
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)]
            if not line.startswith("|"):
                inside = False
            elif inside and not line.startswith("|-"):
                yield str(path.relative_to(env.ROOT)), cells[1]
            elif cells[1] == head:
                inside = True


def after(words: tuple[str, ...], *names: str) -> Iterator[list[str]]:
    """The words after a program of one of these names, up to the end of its command."""
    starts = [n for n, word in enumerate(words) if word.rpartition("(")[2].rpartition("/")[2] in names]
    for start in starts:
        rest = list(words[start + 1 :])
        ends = [n for n, word in enumerate(rest) if re.fullmatch(r"[|;&>]+", word)]
        yield rest[: ends[0]] if ends else rest


@cache
def openapi() -> Any:
    text = (env.ROOT / "docs" / "openapi.yaml").read_text(encoding="utf-8")
    return yaml.load(text, Loader=yaml.CSafeLoader)


def segments(address: str) -> list[tuple[str, ...]]:
    """An address as its segments, once for each of its alternatives: ``<id>``, ``{agent}``, ``ID`` and ``$JOB`` are
    ``ANY``, and of ``a|b``, ``{a,b}`` and ``<a|b>`` each is meant."""
    choices = []
    for part in SITE.sub("", address.partition("?")[0]).strip("/").split("/"):
        inner = part.strip("<>{}")
        if (part != inner and not re.search(r"[|,]", inner)) or re.fullmatch(r"[A-Z_]+|\$\w+|…", part):
            choices.append([ANY])
        else:
            choices.append(re.split(r"[|,]", inner))
    return [tuple(one) for one in product(*choices)]


def same(shown: tuple[str, ...], known: tuple[str, ...]) -> bool:
    return len(shown) == len(known) and all(
        b == ANY or a == b or a == ANY == b for a, b in zip(shown, known, strict=True)
    )


def body_of(words: list[str]) -> Any:
    """The JSON that a command line of curl sends; None where there is none."""
    sent = [words[n + 1] for n, word in enumerate(words[:-1]) if word in ("-d", "--data", "--data-binary")]
    return json.loads(sent[0]) if sent and sent[0].startswith("{") else None


def method_of(words: list[str]) -> str:
    if "-X" in words:
        return words[words.index("-X") + 1]
    return "POST" if {"-d", "--data", "--data-binary", "-F"} & {*words} else "GET"
