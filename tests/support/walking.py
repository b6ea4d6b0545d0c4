"""Pages as a browser reads them: their links and their forms. What sends the requests is the caller's."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Final
from urllib.parse import parse_qsl, urljoin, urlsplit

from tests.support.hostile import TEXTS

# They end the session of the person who walks.
LEAVING: Final = ("sign-out", "logout", "password")
USUAL: Final = (
    "page",
    "sort",
    "order",
    "cursor",
    "after",
    "search",
    "q",
    "o",
    "p",
    "e",
    "all",
    "limit",
    "tab",
    "unknown",
)
"""Query parameters that are tried on every page, whether or not a link of it has them."""
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|(?<=/)\d+(?=/)")


@dataclass
class Form:
    """One form: where it is sent, and what a browser would send of it untouched."""

    action: str
    method: str = "get"
    values: list[tuple[str, str]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.values if name != "csrfmiddlewaretoken"]


class Page(HTMLParser):
    """A page's links and forms, with absolute paths."""

    def __init__(self, path: str, html: str) -> None:
        super().__init__()
        self.path, self.links, self.forms = path, set[str](), list[Form]()
        self._form: Form | None = None
        self._select = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        for name in ("href", "hx-get", "src"):
            if tag in {"a", "button", "form", "div", "section", "tr", "select", "input"} and given.get(name):
                self._link(given[name])
        if tag == "form" or "hx-post" in given:
            action = given.get("hx-post") or given.get("action") or self.path
            method = "post" if "hx-post" in given else given.get("method", "get").lower()
            form = Form(urljoin(self.path, action), method)
            self.forms.append(form)
            self._form = form if tag == "form" else self._form
        if self._form is not None and given.get("name"):
            self._field(self._form, tag, given)
        if tag == "option" and self._form is not None and self._select and "selected" in given:
            self._form.values.append((self._select, given.get("value", "")))

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = None
        if tag == "select":
            self._select = ""

    def _field(self, form: Form, tag: str, given: dict[str, str]) -> None:
        name, kind = given["name"], given.get("type", "text")
        if tag == "select":
            self._select = name
            form.values.append((name, ""))
        elif kind == "file":
            form.files.append(name)
        elif tag in {"input", "textarea", "button"} and (kind not in {"checkbox", "radio"} or "checked" in given):
            form.values.append((name, given.get("value", "")))

    def _link(self, target: str) -> None:
        parts = urlsplit(urljoin(self.path, target))
        if not parts.netloc and not parts.path.startswith("/static/") and not leaves(parts.path):
            self.links.add(parts.path + (f"?{parts.query}" if parts.query else ""))


def leaves(path: str) -> bool:
    """Whether a request there would sign the person out."""
    return any(word in path for word in LEAVING)


def shape(link: str) -> str:
    """The address without ids and values: links of one shape lead to the same view."""
    parts = urlsplit(link)
    names = ",".join(sorted({name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}))
    return _ID.sub("#", parts.path) + (f"?{names}" if names else "")


def parameters_of(page: Page) -> list[str]:
    """Names of query parameters that the page itself uses, with the usual ones."""
    own = {name for link in page.links for name, _ in parse_qsl(urlsplit(link).query, keep_blank_values=True)}
    own |= {name for form in page.forms if form.method == "get" for name in form.names}
    return sorted(own | set(USUAL))


def hostile_query(page: Page, chance: random.Random) -> list[tuple[str, str]]:
    """One to three of the page's parameters with values that it does not expect."""
    names = parameters_of(page)
    return [(chance.choice(names), chance.choice(TEXTS)) for _ in range(chance.choice((1, 1, 2, 3)))]


def hostile_form(form: Form, chance: random.Random) -> tuple[list[tuple[str, str]], dict[str, tuple[str, bytes]]]:
    """The form's values with one of them, some, or all made hostile, and a file for each of its file fields."""
    names = form.names
    share = chance.choice((0.0, 0.2, 1.0))
    changed = {name for name in names if chance.random() < share} | ({chance.choice(names)} if names else set())
    sent = [(name, chance.choice(TEXTS) if name in changed else value) for name, value in form.values]
    if chance.random() < 0.2:
        sent = [pair for pair in sent if pair[0] == "csrfmiddlewaretoken" or chance.random() < 0.5]
    files = {name: (chance.choice(NAMES), chance.choice(CONTENTS)) for name in form.files}
    return sent, files


NAMES: Final = (
    "a.csv", "a.jsonl", "a.json", "../../a.csv", "x" * 300 + ".csv", "a.exe", "a\x00.csv", ".", "é.jsonl"
)  # fmt: skip
CONTENTS: Final = (
    b"", b"\x00" * 50, b"\xff\xfe\x00", b"query,expected\n1", b'{"query": "x"}\n{"query": ', b"[" * 5_000,
    b"query\n" * 200, b'[{"query": "\\ud800"}]', b'"' * 1_000, b"query\n" + b"x" * 200_000,
    b'{"query": 1}\n[]\nnull',    b"\xef\xbb\xbfquery\nx",
)  # fmt: skip
