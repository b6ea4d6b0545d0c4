"""``python -m tests.performance.memory [requests]``: memory of a web process that answers all pages.

``manage.py up --demo`` at shipped settings. An admin reads each page and list that links lead to, at random by sixteen
callers at once. Compares the web process's memory (PSS) after the first quarter with that at the end, and reports which
pages it grew by, if any is read alone. Ends with one JSON object; its exit code is 1 where the process grew by more
than 30 %. Limits of memory are off, so that no other process takes its place.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
import threading
from collections import Counter, deque
from http import HTTPStatus
from pathlib import Path
from typing import Final

import httpx

from agentcore_site.embedded.ports import free_port
from tests.performance.processor import family, proportional_mb
from tests.performance.soak import role_of
from tests.support.up import Up
from tests.support.walking import Page, shape

CALLERS: Final = 16
REQUESTS: Final = 20_000
ALONE: Final = 200  # requests to each page alone
LARGEST: Final = 8  # pages in the report
ALLOWED: Final = 0.3
FILES: Final = ("export", ".zip", ".csv", ".jsonl", ".parquet")  # in addresses that are left out


def signed_in(address: str, password: str) -> httpx.Client:
    client = httpx.Client(base_url=address, follow_redirects=True, timeout=120)
    forms = Page("/sign-in/", client.get("/sign-in/").text).forms
    [values] = [dict(form.values) for form in forms if "password" in form.names]
    sent = values | {"username": "adam", "password": password}
    assert client.post("/sign-in/", data=sent, headers={"referer": address}).status_code == HTTPStatus.OK
    return client


def pages(client: httpx.Client) -> list[str]:
    """One address of each shape that links lead to."""
    waiting, shapes, found = deque(["/", "/admin/", "/api/v1/agents", "/api/v1/jobs"]), set[str](), []
    while waiting:
        path = waiting.popleft()
        kind = shape(path.partition("?")[0])
        if kind in shapes or any(word in path for word in FILES):
            continue
        shapes.add(kind)
        answer = client.get(path)
        if answer.status_code == HTTPStatus.OK:
            found.append(path)
            waiting.extend(sorted(Page(path, answer.text).links))
    return found


class Readers:
    """Read pages at random, many at once."""

    def __init__(self, clients: list[httpx.Client], paths: list[str]) -> None:
        self.clients, self.paths, self.statuses = clients, paths, Counter[int]()

    def read(self, requests: int) -> None:
        threads = [
            threading.Thread(target=self._read, args=(client, requests // len(self.clients), random.Random(seed)))
            for seed, client in enumerate(self.clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _read(self, client: httpx.Client, requests: int, draw: random.Random) -> None:
        for _ in range(requests):
            self.statuses[client.get(draw.choice(self.paths)).status_code] += 1


def main() -> int:
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else REQUESTS
    folder = Path(tempfile.mkdtemp(prefix="memory-"))
    folder.chmod(0o711)
    port = free_port(0)
    up = Up(folder / "data", "--port", str(port), "--demo", WEB_MEMORY_MB="0")
    try:
        up.until("SELECT count(*) > 0 FROM jobs_job WHERE status = 'completed'", seconds=600)
        lines = (up.data / "secrets" / "demo-users.txt").read_text(encoding="utf-8").splitlines()
        password = dict(line.split(": ", 1) for line in lines if ": " in line)["adam"].strip()
        address = f"http://127.0.0.1:{port}"
        [web] = [pid for pid in family(up.process.pid) if role_of(pid) == "web"]
        clients = [signed_in(address, password) for _ in range(CALLERS)]
        paths = pages(clients[0])
        readers = Readers(clients, paths)
        readers.read(requests // 4)
        early = proportional_mb(web)
        readers.read(requests - requests // 4)
        late = proportional_mb(web)
        grown = {path: _alone(clients[0], web, path) for path in paths} if late > (1 + ALLOWED) * early else {}
        largest = sorted(grown.items(), key=lambda item: -item[1])[:LARGEST]
    finally:
        up.stop()
        shutil.rmtree(folder, ignore_errors=True)
    figures = {"pages": len(paths), "requests": requests, "statuses": dict(readers.statuses)}
    figures |= {"early_mb": round(early), "late_mb": round(late), "grown_mb_by_page": dict(largest)}
    print(json.dumps(figures))
    return int(late > (1 + ALLOWED) * early)


def _alone(client: httpx.Client, web: int, path: str) -> float:
    """MB by which the process grows while one page is read again and again."""
    before = proportional_mb(web)
    for _ in range(ALONE):
        client.get(path)
    return round(proportional_mb(web) - before, 1)


if __name__ == "__main__":
    sys.exit(main())
