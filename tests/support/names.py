"""Names with addresses of the tests' own, in the place of the system's resolver."""

from __future__ import annotations

import socket
from typing import Any

import pytest

SYSTEM = socket.getaddrinfo


class Names:
    """``Names(monkeypatch, {"pages.test": ["127.0.0.1"]})``. Several answers for one name are given one after the
    other; an answer may hold several addresses. What is no name of these is looked up by the system."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, names: dict[str, list[str]]) -> None:
        self.names, self.asked = names, []
        monkeypatch.setattr(socket, "getaddrinfo", self)

    def __call__(self, host: Any, port: Any, *args: Any, **options: Any) -> list[Any]:
        if host not in self.names:
            return SYSTEM(host, port, *args, **options)
        self.asked.append(host)
        answers = self.names[host]
        addresses = (answers.pop(0) if len(answers) > 1 else answers[0]).split()
        return [self._info(one, port or 0) for one in addresses]

    @staticmethod
    def _info(address: str, port: int) -> Any:
        if ":" in address:
            return socket.AF_INET6, socket.SOCK_STREAM, 6, "", (address, port, 0, 0)
        return socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)
