"""The JSON-RPC interface: every method of ``rpc.discover``, batches, and bodies that are no request."""

from __future__ import annotations

import json
import random
from typing import Any, Final

import requests

from tests.performance.fuzz.tally import Tally
from tests.performance.fuzz.world import Caller
from tests.support.hostile import BODIES, VALUES, deep

INTERNAL: Final = -32603
BATCH: Final = (0, 1, 3, 49, 50, 51, 200)


def rpc(base: str, caller: Caller, n: int, number: int) -> Tally:
    """``n`` requests of one caller. Internal errors count as 5xx, codes that no document names as undocumented."""
    tally, chance = Tally("JSON-RPC", caller.name), random.Random(number)
    session = requests.Session()
    session.headers.update(caller.headers | {"Content-Type": "application/json"})
    address = f"{base}/api/v1/jsonrpc"
    document = _document(base, caller)
    codes = {one["code"] for one in document["components"]["errors"].values()} | {401, 405, 415}
    while tally.requests < n:
        body = _body(document["methods"], caller, chance)
        answer = session.post(address, data=body)
        tally.answer(answer.status_code, answer.text, list(caller.foreign), body[:200].decode("latin-1"))
        _judge(tally, answer, body, codes)
    return tally


def _document(base: str, caller: Caller) -> Any:
    """The interface's description of itself; for the stranger, as the repository's own table has it."""
    asked = {"jsonrpc": "2.0", "method": "rpc.discover", "id": 1}
    answer = requests.post(f"{base}/api/v1/jsonrpc", json=asked, headers=caller.headers, timeout=30).json()
    return answer.get("result") or {
        "methods": [{"name": "training.get_status", "params": []}],
        "components": {"errors": {}},
    }


def _body(methods: list[Any], caller: Caller, chance: random.Random) -> bytes:
    draw = chance.random()
    if draw < 0.1:
        return chance.choice(BODIES)
    if draw < 0.2:
        return json.dumps([_request(methods, caller, chance) for _ in range(chance.choice(BATCH))]).encode()
    return json.dumps(_request(methods, caller, chance)).encode()


def _request(methods: list[Any], caller: Caller, chance: random.Random) -> Any:
    method = chance.choice(methods)
    params: Any = {
        one["name"]: _value(one["name"], caller, chance) for one in method["params"] if chance.random() < 0.6
    }
    draw = chance.random()
    if draw < 0.1:
        params = list(params.values())
    elif draw < 0.2:
        params = chance.choice((*VALUES, deep(chance)))
    request: dict[str, Any] = {"jsonrpc": "2.0", "method": method["name"], "params": params, "id": chance.randrange(99)}
    if chance.random() < 0.15:
        request[chance.choice(("jsonrpc", "method", "params", "id", "odd"))] = chance.choice((*VALUES, deep(chance)))
    if chance.random() < 0.1:
        del request[chance.choice([*request])]
    return request


def _value(name: str, caller: Caller, chance: random.Random) -> Any:
    places = {"job_id": "jobs", "training_job_id": "jobs", "agent_id": "agents", "checkpoint_id": "checkpoints"}
    ids = caller.ids.get(places.get(name, ""), [])
    if name == "wait_seconds":
        return chance.choice((0, 0.01, -1, "x"))
    return chance.choice(ids) if ids and chance.random() < 0.6 else chance.choice((*VALUES, deep(chance)))


def _judge(tally: Tally, answer: requests.Response, body: bytes, codes: set[int]) -> None:
    what = body[:200].decode("latin-1")
    if answer.status_code == 429 or answer.status_code >= 500:
        return
    if answer.status_code not in {200, 204, 400, 401, 403, 405, 413}:
        tally.fault("undocumented", f"status {answer.status_code} {what}", answer.text[:300])
    if answer.status_code == 204:
        return
    try:
        found = answer.json()
    except ValueError:
        tally.fault("undocumented", f"no JSON {what}", answer.text[:300])
        return
    for one in found if isinstance(found, list) else [found]:
        error = one.get("error") if isinstance(one, dict) else {"code": 0}
        if error and error["code"] == INTERNAL:
            tally.fault("5xx", f"-32603 {what}", json.dumps(error)[:300])
        elif error and error["code"] not in codes and len(codes) > 3:
            tally.fault("undocumented", f"code {error['code']} {what}", json.dumps(error)[:300])
