"""Pages and their forms, of the console and of the admin: found by following links, then asked with hostile values."""

from __future__ import annotations

import random
import time
from collections import Counter, deque
from typing import Any, Final

import requests

from tests.performance.fuzz.tally import Tally
from tests.performance.fuzz.world import Caller
from tests.support.walking import Page, hostile_form, hostile_query, leaves, shape

ALIKE: Final = 2  # pages of one shape that are read
EXPECTED: Final = {200, 204, 302, 303, 304, 400, 401, 403, 404, 405, 409, 413, 415, 422, 429}
SLOW: Final = 10.0  # seconds: such an answer is worth a look


class Walk:
    """One caller's browser on the site at ``base``, from ``start`` on."""

    def __init__(self, base: str, caller: Caller, start: str, number: int) -> None:
        self.base, self.caller, self.start = base, caller, start
        self.chance = random.Random(number)
        self.tally = Tally("admin" if start == "/admin/" else "console", caller.name)
        self.session = requests.Session()
        if caller.cookie:
            self.session.cookies.set("sessionid", caller.cookie)
        self.pages: list[Page] = []

    def run(self, n: int) -> Tally:
        """Reads what there is, a third of ``n`` at most; then asks until ``n`` requests were sent."""
        self._read(n // 3)
        self.tally.examples[f"pages: {len(self.pages)} read, {sum(len(one.forms) for one in self.pages)} forms"] = ""
        while self.pages and self.tally.requests < n:
            page = self.chance.choice(self.pages)
            forms = [form for form in page.forms if form.method == "post" and not leaves(form.action)]
            if forms and self.chance.random() < 0.6:
                sent, files = hostile_form(self.chance.choice(forms), self.chance)
                self._send("POST", self.chance.choice(forms).action, data=sent, files=files or None)
            else:
                self._send("GET", page.path.split("?")[0], params=hostile_query(page, self.chance))
        return self.tally

    def _read(self, most: int) -> None:
        waiting, seen, alike = deque([self.start, *self._known()]), set[str](), Counter[str]()
        while waiting and self.tally.requests < most:
            link = waiting.popleft()
            if link in seen or alike[shape(link)] >= ALIKE or self._strays(link):
                continue
            seen.add(link)
            alike[shape(link)] += 1
            answer = self._send("GET", link)
            if answer is not None and answer.status_code == 200 and "html" in answer.headers.get("Content-Type", ""):
                page = Page(link, answer.text)
                self.pages.append(page)
                waiting.extend(sorted(page.links))
            elif answer is not None and answer.status_code in {302, 303}:
                waiting.append(answer.headers.get("Location", self.start))

    def _known(self) -> list[str]:
        """Pages of rows of both organisations, which links alone need not lead to."""
        if self.start == "/admin/":
            return []
        places = {"agents": "agents", "jobs": "jobs", "evaluations": "evaluations", "trajectories": "trajectories"}
        places |= {"reviews": "reviews", "experiences": "experiences", "budgets": "budgets", "evolutions": "evolutions"}
        places |= {"executions": "executions", "prompt-packs": "prompt-packs", "tool-servers": "tool-servers"}
        places |= {"endpoints": "model-endpoints"}
        known = [f"/{place}/{id}/" for place, name in places.items() for id in self.caller.ids.get(name, [])]
        return [*known, *(f"/agents/{id}/playbook/" for id in self.caller.ids.get("agents", [])[1::2])]

    def _strays(self, link: str) -> bool:
        """Out of the part that is walked, or out of the session."""
        inside = link.startswith("/admin/") == (self.start == "/admin/")
        return not link.startswith("/") or not inside or leaves(link) or link.startswith("/api/")

    def _send(self, method: str, path: str, **more: Any) -> requests.Response | None:
        headers = {"Referer": self.base + path, "Origin": self.base}
        if token := self.session.cookies.get("csrftoken"):
            headers["X-CSRFToken"] = token
        if self.chance.random() < 0.2:
            headers["HX-Request"] = "true"
        began = time.monotonic()
        try:
            answer = self.session.request(
                method, self.base + path, headers=headers, allow_redirects=False, timeout=120, **more
            )
        except (requests.exceptions.InvalidHeader, UnicodeError, ValueError):
            self.tally.unsent += 1
            return None
        what = f"{method} {path} {str(more)[:200]}"
        self.tally.answer(answer.status_code, answer.text, list(self.caller.foreign), what)
        if answer.status_code not in EXPECTED and answer.status_code < 500:
            self.tally.fault("undocumented", f"{answer.status_code} {what}", answer.text[:200])
        if (took := time.monotonic() - began) > SLOW:
            self.tally.fault("slow", f"{took:.0f} s {what}", "")
        return answer


def console(base: str, caller: Caller, n: int, number: int) -> Tally:
    return Walk(base, caller, "/", number).run(n)


def admin(base: str, caller: Caller, n: int, number: int) -> Tally:
    return Walk(base, caller, "/admin/", number).run(n)
