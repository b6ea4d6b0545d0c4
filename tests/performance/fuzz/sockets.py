"""Websockets: addresses, queries, handshakes and frames that no page would send."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from typing import Final
from urllib.parse import quote

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.sync.client import ClientConnection, connect

from tests.performance.fuzz.tally import Tally
from tests.performance.fuzz.world import Caller
from tests.support.hostile import TEXTS

SERVER_ERROR: Final = 1011
OURS: Final = (1000, 1001, 3000, 4999)  # how the client closes; the server says it back
DOCUMENTED: Final = {*OURS, 1002, 1005, 1006, 1007, 1009, 1013, 4401, 4404, 4429}
ORIGINS: Final = (None, "http://evil.example", "null", "http://127.0.0.1:1", "\u00e9")


def sockets(base: str, caller: Caller, n: int, number: int) -> Tally:
    """``n`` connections, each with some frames; a close for an error of the server counts as a 5xx."""
    tally, chance = Tally("sockets", caller.name), random.Random(number)
    while tally.requests < n:
        _one(base.replace("http", "ws", 1), caller, chance, tally)
    return tally


def _one(base: str, caller: Caller, chance: random.Random, tally: Tally) -> None:
    path = _path(caller, chance)
    headers = dict(caller.headers) if chance.random() < 0.5 else {}
    if caller.cookie and chance.random() < 0.5:
        headers["Cookie"] = f"sessionid={caller.cookie}"
    try:
        with connect(
            base + path,
            additional_headers=headers,
            origin=chance.choice(ORIGINS),  # type: ignore[arg-type]
            open_timeout=20,
            close_timeout=2,
            max_size=None,
        ) as socket:
            received, code = _frames(socket, chance)
    except InvalidStatus as refused:
        tally.answer(refused.response.status_code, "", [], path)
        return
    except (InvalidHandshake, InvalidURI, OSError, UnicodeError, ValueError, EOFError) as error:
        tally.unsent += 1
        tally.examples.setdefault(f"unsent: {type(error).__name__}", str(error)[:100])
        return
    tally.answer(500 if code == SERVER_ERROR else 101, received, list(caller.foreign), f"{path} closed with {code}")
    if code not in DOCUMENTED | {SERVER_ERROR}:
        tally.fault("undocumented", f"{path} closed with {code}", "")


def _path(caller: Caller, chance: random.Random) -> str:
    jobs = caller.ids["jobs"]
    odd = quote(chance.choice(TEXTS)[:500], safe="")
    path = chance.choice(
        (f"/ws/jobs/{chance.choice(jobs)}/", f"/ws/jobs/{odd}/", f"/ws/shared/{odd}/", f"/ws/{odd}", "/", "/ws")
    )
    return path + (f"?after={odd}" if chance.random() < 0.5 else "")


def _frames(socket: ClientConnection, chance: random.Random) -> tuple[str, int]:
    """Sends some frames, and returns the received ones and the code of the close."""
    received = ""
    with suppress(ConnectionClosed, TimeoutError):
        for _ in range(chance.choice((0, 1, 3, 10))):
            frame: str | bytes = chance.choice((chance.choice(TEXTS), "{", "[" * 9_000, os.urandom(50), b""))
            socket.send(frame)
        received = str(socket.recv(timeout=0.2))
    socket.close(code=chance.choice(OURS))
    return received, socket.protocol.close_rcvd.code if socket.protocol.close_rcvd else 1006
