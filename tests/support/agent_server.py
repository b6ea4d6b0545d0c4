"""A foreign agent on a real socket: an HTTP service in its own framework that knows only a model's address."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Work = Callable[[dict[str, Any], "Ask"], Any]


class Ask:
    """The agent's own client of its model: plain urllib, as a stranger's code would have it."""

    def __init__(self, base_url: str, key: str) -> None:
        self.base_url, self.key = base_url, key

    def __call__(self, *messages: dict[str, Any], **extra: Any) -> dict[str, Any]:
        """A chat completion, with its HTTP status; a stream's ``chunks``."""
        result = self._post("chat/completions", {"messages": messages, **extra})
        return {"status": 200, **({"chunks": result} if isinstance(result, list) else result)}

    def response(self, given: Any, **extra: Any) -> dict[str, Any]:
        """One of the Responses API, whose own ``status`` is a word; a refusal with its HTTP status; a stream's
        ``events``."""
        result = self._post("responses", {"input": given, **extra})
        return {"events": result} if isinstance(result, list) else result

    def events(self, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The events of a stream, each as soon as it has come."""
        with urllib.request.urlopen(self._request(path, {**body, "stream": True}), timeout=20) as answer:
            for line in answer:
                if line.startswith(b"data: {"):
                    yield json.loads(line[6:])

    def _request(self, path: str, body: dict[str, Any]) -> urllib.request.Request:
        return urllib.request.Request(
            f"{self.base_url}/{path}",
            json.dumps({"model": "whatever", **body}).encode(),
            {"authorization": f"Bearer {self.key}", "content-type": "application/json"},
        )

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        request = self._request(path, body)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                raw = answer.read()
        except urllib.error.HTTPError as error:
            return {"status": error.code, **json.loads(error.read())}
        if body.get("stream"):
            return [json.loads(line[6:]) for line in raw.decode().splitlines() if line.startswith("data: {")]
        return json.loads(raw)


class AgentServer:
    """``with AgentServer(work) as server: server.url``. ``work(asked, ask)`` returns an answer, or (status, bytes)."""

    def __init__(self, work: Work) -> None:
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                result = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.asked.append(result)
                outer.headers.append({name.lower(): value for name, value in self.headers.items()})
                answer = work(result, Ask(result["base_url"], result["api_key"]))
                status, body = answer if isinstance(answer, tuple) else (200, json.dumps({"answer": answer}).encode())
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/rollout"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()  # ends within 10 ms
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
