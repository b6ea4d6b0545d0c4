"""An environment server on a real socket: a small world of crafting in AgentGym's two dialects, with their traps.

Errors come as HTTP 200 with {"error"}, steps after the success are taken and answered with ``done: false``, and a
session lives until it is closed. It misbehaves on request (``will``).
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter, defaultdict, deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

RECIPES = {  # what one craft makes, and of what
    "oak planks": (4, {"oak log": 1}),
    "stick": (4, {"oak planks": 2}),
    "crafting table": (1, {"oak planks": 4}),
}
GOALS = tuple(RECIPES)
COMMANDS = "\n".join(
    f"craft {made} {item} using {', '.join(f'{n} {part}' for part, n in parts.items())}"
    for item, (made, parts) in RECIPES.items()
)
PLANS = {  # how each goal is reached
    "oak planks": ["get 1 oak log", "craft 4 oak planks using 1 oak log"],
    "stick": ["get 1 oak log", "craft 4 oak planks using 1 oak log", "craft 4 stick using 2 oak planks"],
    "crafting table": [
        "get 1 oak log", "craft 4 oak planks using 1 oak log", "craft 1 crafting table using 4 oak planks",
    ],
}  # fmt: skip


class World:
    """One session."""

    def __init__(self) -> None:
        self.task, self.has, self.won = -1, Counter[str](), False

    def reset(self, task: int) -> None:
        self.task, self.has, self.won = task, Counter(), False

    @property
    def goal(self) -> str:
        return GOALS[self.task % len(GOALS)]

    @property
    def observation(self) -> str:
        return f"Crafting commands:\n{COMMANDS}\n\nGoal: craft {self.goal}."

    def step(self, action: str) -> tuple[str, float, bool]:
        if action == "inventory":
            held = " ".join(f"[{item}] ({n})" for item, n in self.has.items() if n)
            return f"Inventory: {held or 'nothing'}", 0.0, False
        if found := re.fullmatch(r"get (\d+) oak log", action):
            self.has["oak log"] += int(found[1])
            return f"Got {found[1]} oak log", 0.0, False
        if (found := re.fullmatch(r"craft \d+ (.+) using .+", action)) and found[1] in RECIPES:
            return self._craft(found[1])
        return f"Could not execute {action}", 0.0, False

    def _craft(self, item: str) -> tuple[str, float, bool]:
        made, parts = RECIPES[item]
        if any(self.has[part] < n for part, n in parts.items()):
            return f"Could not find enough items to craft {item}", 0.0, False
        self.has.subtract(parts)
        self.has[item] += made
        if item != self.goal or self.won:
            return f"Crafted {made} {item}", 0.0, False  # also after the success: done is false then
        self.won = True
        return f"Crafted {made} {item}", 1.0, True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512


class GymServer:
    """``with GymServer("A") as server: server.url``. ``task_key`` is the field by which dialect B resets.

    ``sessions`` are those that are open, ``resets`` what they were set to, ``steps`` the actions that arrived.
    """

    def __init__(self, dialect: str = "A", *, task_key: str = "item_id", reset_observes: bool = True) -> None:
        self.dialect, self.task_key, self.reset_observes = dialect, task_key, reset_observes
        self.sessions: dict[int, World] = {}
        self.opened = 0
        self.resets: list[tuple[int, int]] = []
        self.steps: list[str] = []
        self.arrived = threading.Event()  # a request that hangs has arrived
        self._lock, self._stopping = threading.Lock(), threading.Event()
        self._faults: dict[str, deque[str]] = defaultdict(deque)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else each answer waits 40 ms for an acknowledgement

            def do_GET(self) -> None:
                where = urlsplit(self.path)
                outer.answer(self, where.path, dict(parse_qsl(where.query)))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
                outer.answer(self, self.path, body)

            def log_message(self, *_: Any) -> None: ...

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def will(self, path: str, *faults: str) -> None:
        """The faults of the next requests of a path: crash, hang, slow, bad_json, huge, nan, redirect, hang_up."""
        self._faults[path].extend(faults)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, to: BaseHTTPRequestHandler, path: str, asked: dict[str, Any]) -> None:
        fault = self._faults[path].popleft() if self._faults[path] else ""
        if fault in {"hang", "slow"}:
            self.arrived.set()
            if fault == "hang":
                self._stopping.wait(30)
                return
            self._stopping.wait(0.3)
        if fault == "hang_up":
            to.close_connection = True
            return
        with self._lock:
            status, value = self._do(path, asked)
        body = json.dumps(value).encode()
        match fault:
            case "crash":
                status, body = 500, b"Internal Server Error"
            case "bad_json":
                body = b"<html>not today</html>"
            case "huge":
                body = json.dumps({"observation": "x" * 10_000_000, "reward": 0, "done": False}).encode()
            case "nan":
                body = b'{"observation": "?", "reward": NaN, "done": false}'
            case "redirect":
                status = 307
        try:
            to.send_response(status)
            if status == 307:
                to.send_header("location", f"{self.url}/elsewhere")
            to.send_header("content-length", str(len(body)))
            to.end_headers()
            to.wfile.write(body)
        except ConnectionError:
            to.close_connection = True

    def _do(self, path: str, asked: dict[str, Any]) -> tuple[int, Any]:
        a = self.dialect == "A"
        if path == "/create":
            number, self.opened = self.opened, self.opened + 1
            self.sessions[number] = World()
            return 200, ({"id": number, "observation": "No task yet."} if a else number)
        given = asked.get("id" if a else "env_idx")
        if given is None:
            return 422, {"detail": "there is no session"}
        session = int(given)
        if session not in self.sessions:
            return 200, {"error": f"there is no environment {session}"}
        return self._of_session(path, session, self.sessions[session], asked)

    def _of_session(self, path: str, number: int, world: World, asked: dict[str, Any]) -> tuple[int, Any]:
        a = self.dialect == "A"
        if path == "/reset":
            task = asked.get("data_idx" if a else self.task_key)
            if task is None:
                return 422, {"detail": [{"loc": ["body", self.task_key], "msg": "Field required"}]}
            world.reset(task)
            self.resets.append((number, task))
            if not self.reset_observes:
                return 200, {"reward": 0, "done": False} if a else None
            return 200, (
                {"observation": world.observation, "reward": 0, "done": False} if a else [world.observation, None]
            )
        if path == "/step":
            self.steps.append(asked["action"])
            if asked["action"].startswith("explode"):
                return 200, {"error": "this world can't explode"}
            observation, reward, done = world.step(asked["action"])
            return 200, {"observation" if a else "state": observation, "reward": reward, "done": done, "info": None}
        if path == "/observation":
            return 200, world.observation
        if path == "/close":
            del self.sessions[number]
            return 200, True
        return 404, {"detail": "Not Found"}
